"""Pods get a service account, its image pull secrets, and a volume with its token."""

import asyncio
from collections.abc import Iterator

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.auth.token_requests import PROJECTED_SECONDS
from gangline.apiserver.kinds.core.configs import MOUNTABLE_SECRETS_ANNOTATION
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest
from gangline.apiserver.registry.object_meta import generate_name
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store

DEFAULT_ACCOUNT = "default"
DEFAULT_ACCOUNT_SECONDS = 1.5
"""How long a pod waits for the default account of its namespace, which a controller creates."""
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
ROOT_CA = "kube-root-ca.crt"
VOLUME_PREFIX = "kube-api-access-"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_TRUE_TEXTS = ("1", "t", "T", "TRUE", "true", "True")
_SERVICE_ACCOUNTS = ("", "serviceaccounts")


class ServiceAccountAdmission(AdmissionPlugin):
    """Sets the service account of new pods and mounts its token."""

    name = "ServiceAccount"
    resources = frozenset({("", "pods")})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def prepare(self, request: AdmissionRequest) -> None:
        """Wait for the default account of a namespace that was just created."""
        spec = request.obj["spec"]
        if _is_mirror(request.obj) or (spec.get("serviceAccountName") or DEFAULT_ACCOUNT) != DEFAULT_ACCOUNT:
            return
        path = object_path(*_SERVICE_ACCOUNTS, request.key.namespace, DEFAULT_ACCOUNT)
        if self._store.get(path) is not None:
            return
        try:
            async with asyncio.timeout(DEFAULT_ACCOUNT_SECONDS):
                with self._store.watch(path, after=self._store.revision) as changes:
                    async for _ in changes:
                        if self._store.get(path) is not None:
                            return
        except TimeoutError:
            return

    def admit(self, request: AdmissionRequest) -> None:
        if _is_mirror(request.obj):
            _check_mirror_pod(request)
            return
        spec = request.obj["spec"]
        spec["serviceAccountName"] = spec["serviceAccount"] = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
        account = self._account(request)
        if _is_automounted(spec, account):
            _mount_token(spec)
        pull_secrets = account.get("imagePullSecrets") or ()
        if pull_secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": secret.get("name", "")} for secret in pull_secrets]
        if (account["metadata"].get("annotations") or {}).get(MOUNTABLE_SECRETS_ANNOTATION) in _TRUE_TEXTS:
            _check_mountable_secrets(request, account)

    def _account(self, request: AdmissionRequest) -> JSON:
        """The account of the pod. Raises `StatusError` (403) if it does not exist."""
        namespace, name = request.key.namespace, request.obj["spec"]["serviceAccountName"]
        record = self._store.get(object_path(*_SERVICE_ACCOUNTS, namespace, name)) if "/" not in name else None
        if record is None:
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise _forbidden(request, why)
        return decode_record(record)


def _forbidden(request: AdmissionRequest, why: str) -> apierrors.StatusError:
    return apierrors.forbidden(request.served_kind.resource, request.sent_name, why)


def _is_mirror(pod: JSON) -> bool:
    """Whether the pod shows a static pod of a kubelet, which must not be changed."""
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


def _is_automounted(spec: JSON, account: JSON) -> bool:
    for holder in (spec, account):
        wish = holder.get("automountServiceAccountToken")
        if wish is not None:
            return bool(wish)
    return True


def _mount_token(spec: JSON) -> None:
    """Mount a volume with token, CA and namespace into every container that mounts nothing at its path."""
    names = (volume.get("name") or "" for volume in spec.get("volumes") or ())
    existing = next((name for name in names if name.startswith(VOLUME_PREFIX)), None)
    name = existing or generate_name(VOLUME_PREFIX)
    is_needed = False
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        mounts = container.setdefault("volumeMounts", [])
        if all(mount.get("mountPath") != TOKEN_MOUNT for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT})
            is_needed = True
    if is_needed and existing is None:
        spec.setdefault("volumes", []).append({"name": name, "projected": _token_projection()})


def _token_projection() -> JSON:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": PROJECTED_SECONDS, "path": "token"}},
            {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
        "defaultMode": 0o644,
    }


# Limits of what pods may refer to


def _check_mirror_pod(request: AdmissionRequest) -> None:
    spec = request.obj["spec"]
    if spec.get("serviceAccountName"):
        raise _forbidden(request, "a mirror pod may not reference service accounts")
    if next(_secret_names(spec), None) is not None:
        raise _forbidden(request, "a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "serviceAccountToken" in source:
                raise _forbidden(request, "a mirror pod may not use ServiceAccountToken volume projections")


_SECRET_VOLUMES = (
    ("azureFile", "secretName"),
    ("secret", "secretName"),
    *((kind, "secretRef") for kind in ("cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos")),
    ("csi", "nodePublishSecretRef"),
)


def _secret_names(spec: JSON) -> Iterator[str]:
    """The Secrets that a pod refers to anywhere."""
    for secret in spec.get("imagePullSecrets") or ():
        yield secret.get("name", "")
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            for _, name in _environment_secrets(container):
                yield name
    for volume in spec.get("volumes") or ():
        for kind, field in _SECRET_VOLUMES:
            reference = (volume.get(kind) or {}).get(field)
            if reference:
                yield reference if isinstance(reference, str) else reference.get("name", "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "secret" in source:
                yield source["secret"].get("name", "")


def _environment_secrets(container: JSON) -> Iterator[tuple[str, str]]:
    """The Secrets of a container's environment: the source in kube-apiserver's words, and the name."""
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if reference is not None:
            yield f"envVar {variable['name']}", reference.get("name", "")
    for source in container.get("envFrom") or ():
        if source.get("secretRef") is not None:
            yield "envFrom", source["secretRef"].get("name", "")


def _check_mountable_secrets(request: AdmissionRequest, account: JSON) -> None:
    """Refuse a pod that refers to a Secret that its account does not list."""
    spec, owner = request.obj["spec"], account["metadata"]["name"]
    mountable = {secret.get("name") for secret in account.get("secrets") or ()}
    problem = f"is not allowed because service account {owner} does not reference that secret"
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName", "")
        if "secret" in volume and secret not in mountable:
            raise _forbidden(request, f'volume with secret.secretName="{secret}" {problem}')
    for kind, word in (("initContainers", "init container"), ("containers", "container")):
        for container in spec.get(kind) or ():
            for source, secret in _environment_secrets(container):
                if secret not in mountable:
                    where = f'{word} {container["name"]} with {source} referencing secret.secretName="{secret}"'
                    raise _forbidden(request, f"{where} {problem}")
    pull_secrets = {secret.get("name") for secret in account.get("imagePullSecrets") or ()}
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if secret.get("name") not in pull_secrets:
            where = f'imagePullSecrets[{index}].name="{secret.get("name", "")}"'
            why = f"is not allowed because service account {owner} does not reference that imagePullSecret"
            raise _forbidden(request, f"{where} {why}")

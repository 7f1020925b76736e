"""Certificate signing requests: those of kubelets are approved, and approved ones are signed with the plane's CA."""

import base64
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from gangline.api.meta import JSON, Key
from gangline.apiserver.admission.certificates import CERTIFICATES_GROUP, CLIENT_SIGNER, REQUESTS
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.users import UserInfo
from gangline.base.certificates.issued import IssuedKey
from gangline.base.certificates.requests import RequestedCertificate, parse_request, sign_request
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, storage_kind

PREFIX = collection_prefix(*REQUESTS)
APPROVAL_CALL = WriteContext(field_manager="kube-controller-manager", subresource="approval")
STATUS_CALL = WriteContext(field_manager="kube-controller-manager", subresource="status")
MAX_LIFETIME, MIN_LIFETIME = timedelta(days=365), timedelta(minutes=10)
KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER = (
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
)
SIGNERS = frozenset({CLIENT_SIGNER, KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER})
_NODES_GROUP, _NODE_PREFIX = "system:nodes", "system:node:"

SignerFunc = Callable[[], tuple[IssuedKey, datetime]]
"""The CA that signs now, and the time by the clock of certificates."""


class CertificateController:
    """Approves and signs requests for the signers of Kubernetes. Requests for other signers are left alone."""

    def __init__(self, registry: Registry, authorizer: Authorizer, signer: SignerFunc, clock: Clock) -> None:
        self._registry, self._authorizer, self._signer = registry, authorizer, signer
        self._worker = KeyWorker("signing of a certificate", self._reconcile, clock)

    async def run(self) -> None:
        """Handle every request at the start and after each change, until cancelled."""
        await self._worker.follow_objects(self._registry.store, PREFIX)

    async def _reconcile(self, path: str) -> None:
        record = self._registry.store.get(path)
        if record is None:
            return
        request = decode_record(record)
        spec, status = request["spec"], request.get("status") or {}
        if spec.get("signerName") not in SIGNERS or status.get("certificate"):
            return
        conditions = {item["type"] for item in status.get("conditions") or () if item.get("status") == "True"}
        if "Failed" in conditions or "Denied" in conditions:
            return
        try:
            wanted = parse_request(base64.b64decode(spec["request"]))
        except InputError:
            return  # it was valid when it was created
        if "Approved" not in conditions:
            await self._approve(request, wanted)
        elif problem := signer_problem(spec["signerName"], wanted, spec["usages"]):
            await self._write_condition(STATUS_CALL, request, "Failed", "SignerValidationFailure", problem)
        else:
            await self._sign(request)

    async def _approve(self, request: JSON, wanted: RequestedCertificate) -> None:
        spec = request["spec"]
        user = UserInfo(spec.get("username", ""), tuple(spec.get("groups", ())), spec.get("uid", ""))
        for right in approving_rights(spec, wanted):
            asked = AccessAttributes(user, "create", CERTIFICATES_GROUP, "*", REQUESTS[1], right)
            if self._authorizer.decide(asked).allowed:
                which = "self kubelet" if right == "selfnodeclient" else "kubelet"
                message = f"Auto approving {which} client certificate after SubjectAccessReview."
                await self._write_condition(APPROVAL_CALL, request, "Approved", "AutoApproved", message)
                return

    async def _sign(self, request: JSON) -> None:
        spec = request["spec"]
        ca, now = self._signer()
        lifetime = certificate_lifetime(spec.get("expirationSeconds"))
        pem = sign_request(ca, base64.b64decode(spec["request"]), tuple(spec["usages"]), now, lifetime)

        def edit(obj: JSON) -> None:
            obj.setdefault("status", {})["certificate"] = base64.b64encode(pem.encode()).decode()

        await self._edit(STATUS_CALL, request, edit)

    async def _write_condition(self, call: WriteContext, request: JSON, kind: str, reason: str, message: str) -> None:
        def edit(obj: JSON) -> None:
            condition = {"type": kind, "status": "True", "reason": reason, "message": message}
            status = obj.setdefault("status", {})
            status["conditions"] = [*(status.get("conditions") or ()), condition]

        await self._edit(call, request, edit)

    async def _edit(self, call: WriteContext, request: JSON, edit: Callable[[JSON], None]) -> None:
        metadata, kind = request["metadata"], storage_kind(self._registry, *REQUESTS)
        with ignore_status(404, 409):  # it is deleted, or a later change is waiting
            await edit_object(self._registry, call, kind, Key("", metadata["name"]), metadata["uid"], edit)


def certificate_lifetime(seconds: int | None) -> timedelta:
    """How long a certificate is valid: as long as is asked for, within limits."""
    return MAX_LIFETIME if seconds is None else max(MIN_LIFETIME, min(timedelta(seconds=seconds), MAX_LIFETIME))


def approving_rights(spec: JSON, wanted: RequestedCertificate) -> Sequence[str]:
    """The rights, each a subresource of requests, any of which approves a request. Only kubelets' ones have some."""
    signer = spec["signerName"]
    if signer != KUBELET_CLIENT_SIGNER or signer_problem(signer, wanted, spec["usages"]):
        return ()
    if spec.get("username") == wanted.common_name:
        return ("selfnodeclient", "nodeclient")
    return ("nodeclient",)


def signer_problem(signer: str, wanted: RequestedCertificate, usages: Iterable[str]) -> str:
    """Why a signer does not sign a request; empty if it does."""
    asked = set(usages)
    if signer == CLIENT_SIGNER:
        return _client_usage_problem(usages)
    serving = signer == KUBELET_SERVING_SIGNER
    if wanted.organizations != (_NODES_GROUP,):
        return "subject organization is not system:nodes"
    if serving and not wanted.dns_names and not wanted.ip_addresses:
        return "DNS or IP subjectAltName is required"
    if not serving and wanted.dns_names:
        return "DNS subjectAltNames are not allowed"
    if wanted.email_addresses:
        return "Email subjectAltNames are not allowed"
    if not serving and wanted.ip_addresses:
        return "IP subjectAltNames are not allowed"
    if wanted.uris:
        return "URI subjectAltNames are not allowed"
    if not wanted.common_name.startswith(_NODE_PREFIX):
        return "subject common name does not begin with system:node:"
    needed = {"digital signature", "server auth" if serving else "client auth"}
    if asked not in (needed, needed | {"key encipherment"}):
        return f"usages did not match [{' '.join(sorted(needed | {'key encipherment'}))}]"
    return ""


def _client_usage_problem(usages: Iterable[str]) -> str:
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"

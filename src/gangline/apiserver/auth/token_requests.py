"""Answers TokenRequests: a new token for a service account, bound to a pod, a Secret or a node if the request says so."""

from datetime import datetime, timedelta

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.auth.service_account_tokens import API_AUDIENCES, NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from gangline.apiserver.auth.signing_key import SigningKey
from gangline.apiserver.auth.token_claims import (
    ISSUER,
    LEGACY_ISSUER,
    BoundRef,
    KubernetesClaims,
    LegacyTokenClaims,
    TokenClaims,
    account_user_name,
)
from gangline.apiserver.errors import NamedKind
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.registry.object_meta import rfc3339
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.base.uuids import random_uuid
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, invalid

TOKEN_REQUEST = NamedKind("authentication.k8s.io", "TokenRequest", "TokenRequest")
DEFAULT_SECONDS, MIN_SECONDS, MAX_SECONDS = 3600, 600, 2**32
PROJECTED_SECONDS = 3607
"""The lifetime of the token that admission mounts into pods. Such a token is accepted for a year, as in kube-apiserver:
programs that do not read the file again keep working."""
EXTENDED_LIFETIME = timedelta(days=365)
_BINDABLE = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}


class TokenIssuer:
    """Issues tokens for service accounts that exist."""

    def __init__(self, store: Store, key: SigningKey, clock: Clock) -> None:
        self._store, self._key, self.clock = store, key, clock

    def issue(self, account_key: Key, request: JSON, *, only_for_us: bool = False) -> JSON:
        """The TokenRequest with its token. `request` is decoded and defaulted; it is not changed.

        `only_for_us` allows a token that only this server can verify. Raises `StatusError`.
        """
        metadata, spec = dict(request.get("metadata") or {}), request.get("spec") or {}
        name = metadata.get("name")
        if name and name != account_key.name:
            why = "must match the service account name if specified"
            raise apierrors.invalid(TOKEN_REQUEST, account_key.name, [invalid("metadata.name", name, why)])
        account = self._get(SERVICE_ACCOUNTS, account_key)["metadata"]
        uid = metadata.get("uid")
        if uid and uid != account["uid"]:
            why = f"the UID in the token request ({uid}) does not match the UID of the service account"
            raise apierrors.conflict(TOKEN_REQUEST, account_key.name, f"{why} ({account['uid']})")
        problems = _spec_problems(spec)
        if problems:
            raise apierrors.invalid(TOKEN_REQUEST, "", problems)
        now = self.clock.now()
        reference = spec.get("boundObjectRef")
        names = self._bound_names(account, reference) if reference is not None else _account_names(account)
        audiences, seconds = tuple(spec.get("audiences") or API_AUDIENCES), spec["expirationSeconds"]
        claims = _claims(names, audiences, timedelta(seconds=seconds), now)
        names_of_account = {name: account[name] for name in ("name", "namespace", "uid")}
        return {
            "kind": TOKEN_REQUEST.kind,
            "apiVersion": f"{TOKEN_REQUEST.group}/v1",
            "metadata": {**names_of_account, "creationTimestamp": rfc3339(now), **metadata, **names_of_account},
            "spec": {"audiences": list(audiences), "expirationSeconds": seconds, "boundObjectRef": reference},
            "status": {
                "token": self._key.sign(claims, only_for_us=only_for_us),
                "expirationTimestamp": rfc3339(now + timedelta(seconds=seconds)),
            },
        }

    def issue_legacy(self, account: JSON, secret: str) -> str:
        """A token that does not expire, for a Secret of the service account with this metadata."""
        namespace, name = account["namespace"], account["name"]
        user = account_user_name(namespace, name)
        return self._key.sign(LegacyTokenClaims(LEGACY_ISSUER, user, namespace, secret, name, account["uid"]))

    def _bound_names(self, account: JSON, reference: JSON) -> KubernetesClaims:
        """The claims of a token that is bound to an object. Raises `StatusError` if that is not possible."""
        kind, version = reference.get("kind") or "", reference.get("apiVersion") or ""
        group, _, short_version = version.rpartition("/")
        if group or kind not in _BINDABLE:
            text = f"cannot bind token to object of type {group}/{short_version}, Kind={kind}"
            raise apierrors.bad_request(text)
        name = reference.get("name") or ""
        if not name:
            raise apierrors.bad_request("Name parameter required.")
        if errors := formats.path_segment_errors(name):
            raise apierrors.bad_request(f"Name parameter invalid: {quoted_text(name)}: {';'.join(errors)}")
        namespace = "" if kind == "Node" else account["namespace"]
        bound = self._get(_BINDABLE[kind], Key(namespace, reference.get("name") or ""))
        names = _account_names(account)
        match kind:
            case "Pod":
                self._check_pod_account(account["name"], bound)
                claims = KubernetesClaims(
                    names.namespace, names.serviceaccount, pod=_reference(bound), node=self._node_of(bound)
                )
            case "Secret":
                claims = KubernetesClaims(names.namespace, names.serviceaccount, secret=_reference(bound))
            case _:
                claims = KubernetesClaims(names.namespace, names.serviceaccount, node=_reference(bound))
        uid = reference.get("uid")
        if uid and uid != bound["metadata"]["uid"]:
            why = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise apierrors.conflict(NamedKind("", kind, kind), reference.get("name") or "", why)
        return claims

    def _check_pod_account(self, account: str, pod: JSON) -> None:
        if pod["spec"].get("serviceAccountName", "") != account:
            raise apierrors.bad_request(
                f"cannot bind token for serviceaccount {quoted_text(account)} to pod running with different "
                "serviceaccount name."
            )

    def _node_of(self, pod: JSON) -> BoundRef | None:
        """The node of a pod, without a uid if there is no such node."""
        name = pod["spec"].get("nodeName")
        if not name:
            return None
        record = self._store.get(object_path(*NODES, "", name))
        return BoundRef(name) if record is None else _reference(decode_record(record))

    def _get(self, resource: tuple[str, str], key: Key) -> JSON:
        record = self._store.get(object_path(*resource, key.namespace, key.name)) if "/" not in key.name else None
        if record is None:
            raise apierrors.not_found(NamedKind(resource[0], "", resource[1]), key.name)
        return decode_record(record)


def _spec_problems(spec: JSON) -> list[FieldProblem]:
    seconds = spec["expirationSeconds"]
    if seconds < MIN_SECONDS:
        return [invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")]
    if seconds > MAX_SECONDS:
        return [invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _account_names(account: JSON) -> KubernetesClaims:
    return KubernetesClaims(account["namespace"], BoundRef(account["name"], account["uid"]))


def _reference(obj: JSON) -> BoundRef:
    return BoundRef(obj["metadata"]["name"], obj["metadata"]["uid"])


def _claims(names: KubernetesClaims, audiences: tuple[str, ...], lifetime: timedelta, now: datetime) -> TokenClaims:
    is_projected = names.pod is not None and lifetime.total_seconds() == PROJECTED_SECONDS
    if is_projected and set(audiences) <= set(API_AUDIENCES):
        names = msgspec.structs.replace(names, warnafter=int((now + lifetime).timestamp()))
        lifetime = EXTENDED_LIFETIME
    issued = int(now.timestamp())
    return TokenClaims(
        iss=ISSUER,
        sub=account_user_name(names.namespace, names.serviceaccount.name),
        exp=int((now + lifetime).timestamp()),
        iat=issued,
        nbf=issued,
        aud=audiences,
        jti=random_uuid(),
        kubernetes=names,
    )

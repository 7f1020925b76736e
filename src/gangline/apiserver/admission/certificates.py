"""Certificate signing requests: who asks, and who may approve and sign."""

import base64
from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.object_meta import rfc3339
from gangline.apiserver.users import MASTERS_GROUP, UserInfo
from gangline.base.clock import Clock
from gangline.schema.go_text import quoted_text

CERTIFICATES_GROUP = "certificates.k8s.io"
REQUESTS = (CERTIFICATES_GROUP, "certificatesigningrequests")
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


class CertificateRequester(AdmissionPlugin):
    """Requests name the user who made them, and conditions have times. In kube-apiserver it is no plugin."""

    name = "CertificateRequester"
    operations = frozenset({WriteOperation.CREATE, WriteOperation.UPDATE})
    resources = frozenset({REQUESTS})
    subresources = frozenset({"", "approval", "status"})

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def admit(self, request: AdmissionRequest) -> None:
        if request.operation is WriteOperation.CREATE:
            _set_requester(request.obj["spec"], request.context.user)
        elif request.context.subresource:
            before = ((request.old or {}).get("status") or {}).get("conditions") or ()
            new = (request.obj.get("status") or {}).get("conditions") or ()
            _set_times(new, before, rfc3339(self._clock.now()))


def _set_requester(spec: JSON, user: UserInfo) -> None:
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    known = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    spec |= {name: value for name, value in known.items() if value}
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}


def _set_times(conditions: Iterable[JSON], before: Iterable[JSON], now: str) -> None:
    """Give conditions the times that the client left out. One that was there keeps the time of its transition."""
    known = {(item.get("type"), item.get("status")): item.get("lastTransitionTime") for item in before}
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = known.get((condition.get("type"), condition.get("status"))) or now


class CertificateSubjectRestriction(AdmissionPlugin):
    """Nobody gets a certificate by which its user may do everything."""

    name = "CertificateSubjectRestriction"
    resources = frozenset({REQUESTS})

    async def validate(self, request: AdmissionRequest) -> None:
        spec = request.obj["spec"]
        if spec.get("signerName") != CLIENT_SIGNER:
            return
        from gangline.base.certificates.requests import parse_request

        if MASTERS_GROUP in parse_request(base64.b64decode(spec["request"])).organizations:
            why = f"use of {CLIENT_SIGNER} signer with {MASTERS_GROUP} group is not allowed"
            raise apierrors.forbidden(request.served_kind.resource, request.key.name, why)


class _SignerRights(AdmissionPlugin):
    """Checks the right to do something with requests for a signer."""

    operations = frozenset({WriteOperation.UPDATE})
    resources = frozenset({REQUESTS})

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def _check(self, request: AdmissionRequest, verb: str) -> None:
        assert request.old is not None
        signer = request.old["spec"].get("signerName", "")
        if not may_use_signer(self._authorizer, request.context.user, verb, signer):
            why = f"user not permitted to {verb} requests with signerName {quoted_text(signer)}"
            raise apierrors.forbidden(request.served_kind.resource, request.key.name, why)


def may_use_signer(authorizer: Authorizer, user: UserInfo, verb: str, signer: str) -> bool:
    """Whether a user has a right on a signer, or on all signers of its domain."""
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(
        authorizer.decide(AccessAttributes(user, verb, CERTIFICATES_GROUP, "*", "signers", name=name)).allowed
        for name in names
    )


class CertificateApproval(_SignerRights):
    name = "CertificateApproval"
    subresources = frozenset({"approval"})

    async def validate(self, request: AdmissionRequest) -> None:
        self._check(request, "approve")


class CertificateSigning(_SignerRights):
    name = "CertificateSigning"
    subresources = frozenset({"status"})

    async def validate(self, request: AdmissionRequest) -> None:
        assert request.old is not None
        new, old = request.obj.get("status") or {}, request.old.get("status") or {}
        if any(new.get(name) != old.get(name) for name in ("certificate", "conditions")):
            self._check(request, "sign")

"""Certificate signing requests on a whole plane: asked for, approved, signed."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gangline.apiserver.store.store import Store
from gangline.base.certificates.requests import RequestedCertificate
from gangline.base.clock import SystemClock
from gangline.kube.config.tls import ssl_context
from gangline.local.controllers.certificates import (
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    approving_rights,
    certificate_lifetime,
    signer_problem,
)
from gangline.local.plane import PlaneSettings, control_plane
from support.servers.plane import PlaneClient

JSON = dict[str, Any]
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


@asynccontextmanager
async def secure_plane(folder: Path) -> AsyncIterator[PlaneClient]:
    settings = PlaneSettings(token="t", certificates=folder)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.connection.tls is not None
        connector = aiohttp.TCPConnector(ssl=ssl_context(plane.connection.tls))
        headers = {"Authorization": "Bearer t"}
        async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session:
            yield PlaneClient(plane.url, session)


def request_pem(name: str, *groups: str) -> bytes:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def signing_request(pem: bytes, **spec: Any) -> JSON:
    encoded = base64.b64encode(pem).decode()
    fields = {"request": encoded, "signerName": CLIENT_SIGNER, "usages": ["client auth"], **spec}
    return {"metadata": {"name": "r"}, "spec": fields}


async def approve(plane: PlaneClient, request: JSON) -> Any:
    condition = {"type": "Approved", "status": "True", "reason": "ByTest", "message": "fine"}
    request["status"]["conditions"] = [condition]
    return await plane.call("PUT", f"{REQUESTS}/r/approval", request)


async def test_an_approved_request_is_signed_by_the_ca_of_the_plane(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as plane:
        created = await plane.call(
            "POST", REQUESTS, signing_request(request_pem("jane", "team-a"), expirationSeconds=7200)
        )
        assert created.status == 201, created.body
        assert created.body["spec"]["username"] == "admin"
        approved = await approve(plane, created.body)
        assert approved.status == 200, approved.body
        assert approved.body["status"]["conditions"][0]["lastUpdateTime"]
        signed = await plane.poll_until(f"{REQUESTS}/r", lambda answer: "certificate" in answer.body["status"])
        certificate = x509.load_pem_x509_certificate(base64.b64decode(signed.body["status"]["certificate"]))
        assert certificate.subject.rfc4514_string() == "CN=jane,O=team-a"
        authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
        certificate.verify_directly_issued_by(authority)
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert lifetime.total_seconds() == 7200 + 300


async def test_a_denied_request_is_not_signed_and_an_approval_stays(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as plane:
        created = await plane.call("POST", REQUESTS, signing_request(request_pem("jane")))
        approved = await approve(plane, created.body)
        approved.body["status"] = {}
        taken_back = await plane.call("PUT", f"{REQUESTS}/r/approval", {**approved.body, "metadata": {"name": "r"}})
        assert taken_back.status == 422
        assert 'updates may not remove a condition of type "Approved"' in taken_back.body["message"]


async def test_an_update_of_the_object_changes_neither_spec_nor_status(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as plane:
        created = await plane.call("POST", REQUESTS, signing_request(request_pem("jane")))
        changed = {**created.body, "spec": {**created.body["spec"], "username": "root"}}
        changed["metadata"]["labels"] = {"a": "b"}
        updated = await plane.call("PUT", f"{REQUESTS}/r", changed)
        assert updated.status == 200, updated.body
        assert updated.body["spec"]["username"] == "admin"
        assert updated.body["metadata"]["labels"] == {"a": "b"}


async def test_nobody_gets_a_certificate_of_the_masters(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as plane:
        refused = await plane.call("POST", REQUESTS, signing_request(request_pem("jane", "system:masters")))
        assert refused.status == 403
        expected = f"use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
        assert refused.body["message"].endswith(expected)


async def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as plane:
        refused = await plane.call("POST", REQUESTS, signing_request(b"nonsense"))
        assert refused.status == 422
        assert "PEM block type must be CERTIFICATE REQUEST" in refused.body["message"]


async def test_a_usage_that_a_signer_does_not_grant_makes_the_request_fail(tmp_path: Path) -> None:
    async with secure_plane(tmp_path) as plane:
        usages = ["client auth", "cert sign"]
        created = await plane.call("POST", REQUESTS, signing_request(request_pem("jane"), usages=usages))
        await approve(plane, created.body)
        failed = await plane.poll_until(f"{REQUESTS}/r", lambda answer: len(answer.body["status"]["conditions"]) > 1)
        condition = failed.body["status"]["conditions"][1]
        assert (condition["type"], condition["reason"]) == ("Failed", "SignerValidationFailure")
        assert condition["message"] == "invalid usage for client certificate: cert sign"


NODE = RequestedCertificate("system:node:n", ("system:nodes",))


@pytest.mark.parametrize(
    ("signer", "wanted", "usages", "problem"),
    [
        (KUBELET_CLIENT_SIGNER, NODE, ["digital signature", "client auth"], ""),
        (KUBELET_CLIENT_SIGNER, NODE, ["digital signature", "key encipherment", "client auth"], ""),
        (KUBELET_CLIENT_SIGNER, RequestedCertificate("n", ("system:nodes",)), [], "common name"),
        (KUBELET_CLIENT_SIGNER, RequestedCertificate("system:node:n", ()), [], "organization"),
        (KUBELET_CLIENT_SIGNER, RequestedCertificate("system:node:n", ("system:nodes",), ("h",)), [], "DNS"),
        (KUBELET_CLIENT_SIGNER, NODE, ["client auth"], "usages did not match"),
        (KUBELET_SERVING_SIGNER, NODE, ["digital signature", "server auth"], "DNS or IP subjectAltName"),
        (
            KUBELET_SERVING_SIGNER,
            RequestedCertificate("system:node:n", ("system:nodes",), ("h",)),
            ["digital signature", "server auth"],
            "",
        ),
        (CLIENT_SIGNER, RequestedCertificate("x", ()), ["digital signature"], "missing required usage"),
    ],
)
def test_each_signer_has_its_rules(signer: str, wanted: RequestedCertificate, usages: list[str], problem: str) -> None:
    found = signer_problem(signer, wanted, usages)
    assert problem in found if problem else not found


def test_only_requests_of_kubelets_are_approved_by_rights() -> None:
    spec = {"signerName": KUBELET_CLIENT_SIGNER, "usages": ["digital signature", "client auth"], "username": "boot"}
    assert approving_rights(spec, NODE) == ("nodeclient",)
    assert approving_rights({**spec, "username": "system:node:n"}, NODE) == ("selfnodeclient", "nodeclient")
    assert approving_rights({**spec, "signerName": CLIENT_SIGNER}, NODE) == ()


def test_a_lifetime_is_what_was_asked_for_within_limits() -> None:
    assert certificate_lifetime(None).days == 365
    assert certificate_lifetime(1).total_seconds() == 600
    assert certificate_lifetime(10**9).days == 365
    assert certificate_lifetime(3600).total_seconds() == 3600

"""Users by client certificate: whom a certificate stands for, and which ones are refused."""

import asyncio
import hashlib
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gangline.base.certificates.issued import LEAF_LIFETIME, IssuedKey
from gangline.base.certificates.x509_pem import issue, issue_ca
from gangline.kube.config.connection import Connection
from support.servers.real import RealServer

REVIEWS_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
UID_ATTRIBUTE = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]

    @property
    def user(self) -> dict[str, Any]:
        found: dict[str, Any] = self.body["status"]["userInfo"]
        return found


class CertificateCaller:
    """Asks a server who one is, with a certificate."""

    def __init__(self, server: Connection, ca: IssuedKey, folder: Path, *, is_real: bool) -> None:
        self._address, self._folder = urlsplit(server.server), folder
        self.ca, self.is_real = ca, is_real
        self.now = datetime.now(UTC)

    async def ask(self, presented: IssuedKey, token: str = "") -> Answer:
        # Not in the event loop, where the embedded server is.
        return await asyncio.to_thread(self._ask, presented, token)

    def _ask(self, presented: IssuedKey, token: str) -> Answer:
        context = ssl.create_default_context(cadata=self.ca.certificate)
        file = self._folder / "presented.pem"
        file.write_text(presented.certificate + presented.key)
        context.load_cert_chain(file)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        body = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
        with closing(HTTPSConnection(self._address.netloc, context=context, timeout=20)) as connection:
            connection.request("POST", REVIEWS_PATH, body, headers)
            response = connection.getresponse()
            return Answer(response.status, json.load(response))


@pytest.fixture
def caller(request: pytest.FixtureRequest, server: Connection, tmp_path: Path) -> CertificateCaller:
    is_real = "real" in request.node.callspec.params.values()
    real: RealServer | None = request.getfixturevalue("real_server") if is_real else None
    files = (
        (real.ca, real.ca_key)
        if real is not None
        else (tmp_path / "certificates" / "ca.crt", tmp_path / "certificates" / "ca.key")
    )
    certificate, key = (file.read_text() for file in files)
    loaded = x509.load_pem_x509_certificate(certificate.encode())
    ca = IssuedKey(certificate, key, loaded.not_valid_before_utc, loaded.not_valid_after_utc)
    return CertificateCaller(server, ca, tmp_path, is_real=is_real)


async def test_the_common_name_is_the_user_and_organizations_are_the_groups(caller: CertificateCaller) -> None:
    presented = issue(caller.ca, "jane", caller.now, groups=("dev", "ops"))
    encoded = x509.load_pem_x509_certificate(presented.certificate.encode()).public_bytes(serialization.Encoding.DER)
    assert (await caller.ask(presented)).user == {
        "username": "jane",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [f"X509SHA256={hashlib.sha256(encoded).hexdigest()}"]},
    }


async def test_a_valid_certificate_counts_more_than_a_token(caller: CertificateCaller) -> None:
    presented = issue(caller.ca, "jane", caller.now)
    assert (await caller.ask(presented, "nobody-token")).user["username"] == "jane"
    assert (await caller.ask(presented, "unknown")).user["username"] == "jane"


def expired(caller: CertificateCaller) -> IssuedKey:
    return issue(caller.ca, "jane", caller.now - LEAF_LIFETIME - timedelta(minutes=1), groups=("system:masters",))


async def test_an_expired_certificate_is_refused(caller: CertificateCaller) -> None:
    answer = await caller.ask(expired(caller))
    assert (answer.status, answer.body["message"]) == (401, "Unauthorized")


async def test_a_certificate_of_the_future_is_refused(caller: CertificateCaller) -> None:
    assert (await caller.ask(issue(caller.ca, "jane", caller.now + timedelta(days=1)))).status == 401


async def test_a_valid_token_makes_up_for_an_expired_certificate(caller: CertificateCaller) -> None:
    assert (await caller.ask(expired(caller), "nobody-token")).user["username"] == "nobody"
    assert (await caller.ask(expired(caller), "unknown")).status == 401


async def test_a_certificate_without_a_common_name_is_nobody(caller: CertificateCaller) -> None:
    presented = _with_subject(caller, [])
    answer = await caller.ask(presented)
    assert (answer.status, "system:anonymous" in answer.body["message"]) == (403, True)
    assert (await caller.ask(presented, "nobody-token")).user["username"] == "nobody"


async def test_the_subject_may_have_the_uid_of_the_user(caller: CertificateCaller) -> None:
    name = x509.NameAttribute(x509.NameOID.COMMON_NAME, "jane")
    uids = [x509.NameAttribute(UID_ATTRIBUTE, text) for text in ("one", "two")]
    assert (await caller.ask(_with_subject(caller, [name, uids[0]]))).user["uid"] == "one"
    assert (await caller.ask(_with_subject(caller, [name, *uids]))).status == 401


def _with_subject(caller: CertificateCaller, attributes: list[x509.NameAttribute[str]]) -> IssuedKey:
    """A client certificate with this subject."""
    template = issue(caller.ca, "template", caller.now)
    old = x509.load_pem_x509_certificate(template.certificate.encode())
    key, signer = (
        serialization.load_pem_private_key(pem.encode(), password=None) for pem in (template.key, caller.ca.key)
    )
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        old.issuer,
        x509.Name(attributes),
        key.public_key(),
        old.serial_number,
        old.not_valid_before_utc,
        old.not_valid_after_utc,
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    pem = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    return IssuedKey(pem, template.key, template.valid_from, template.valid_until)


def unverifiable(caller: CertificateCaller) -> Iterator[IssuedKey]:
    """A certificate of another CA with the same name as ours, and one for servers."""
    yield issue(issue_ca(caller.now), "jane", caller.now, groups=("system:masters",))
    yield issue(caller.ca, "jane", caller.now, groups=("system:masters",), hosts=("127.0.0.1",))


async def test_a_certificate_of_another_authority_or_for_servers_is_refused(caller: CertificateCaller) -> None:
    for presented in unverifiable(caller):
        if caller.is_real:
            assert (await caller.ask(presented)).status == 401
        else:
            # Python's TLS cannot ask for a certificate without verifying it, so the handshake fails.
            with pytest.raises(ssl.SSLError, match=r"alert (unknown ca|unsupported certificate)"):
                await caller.ask(presented)

import asyncio
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from gangline.kube.config.tls import TLS, ClientCertificate, Pem, ssl_context
from gangline.kube.errors import ConfigError
from support.builders.kubeconfigs import base64_text, connection_from


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def pair(ca: trustme.CA, name: str = "me") -> tuple[bytes, bytes]:
    issued = ca.issue_cert(name)
    return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


async def handshake(ca: trustme.CA, client: ssl.SSLContext, name: str | None = None) -> dict[str, Any]:
    """Connect to a server that requires a client certificate; the certificate that it got."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("api.example").configure_cert(context)
    ca.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    seen: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peercert") or {})
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name or "")
        try:
            await reader.read()
            return await seen
        finally:
            writer.close()


async def test_server_is_trusted_by_the_ca_and_sees_the_inline_client_certificate(
    tmp_path: Path, ca: trustme.CA
) -> None:
    certificate, key = pair(ca)
    cluster = {
        "certificate-authority-data": base64_text(ca.cert_pem.bytes()),
        "tls-server-name": "api.example",
    }
    user = {"client-certificate-data": base64_text(certificate), "client-key-data": base64_text(key)}
    tls = connection_from(tmp_path, cluster, user).tls
    assert tls is not None
    seen = await handshake(ca, ssl_context(tls), tls.server_name)
    assert ("DNS", "me") in seen["subjectAltName"]


async def test_files_are_read_when_the_context_is_built_so_rotation_is_seen(tmp_path: Path, ca: trustme.CA) -> None:
    paths = [tmp_path / ".kube" / name for name in ("me.crt", "me.key", "ca.crt")]
    paths[0].parent.mkdir()

    def rotate(name: str) -> None:
        for path, pem in zip(paths, (*pair(ca, name), ca.cert_pem.bytes()), strict=True):
            path.write_bytes(pem)

    rotate("before")
    tls = connection_from(
        tmp_path,
        {"certificate-authority": "ca.crt"},
        {"client-certificate": "me.crt", "client-key": "me.key"},
    ).tls
    assert tls is not None
    rotate("after")
    seen = await handshake(ca, ssl_context(tls), "api.example")
    assert ("DNS", "after") in seen["subjectAltName"]


async def test_certificate_of_a_plugin_is_shown_unless_the_kubeconfig_has_one(ca: trustme.CA) -> None:
    trust = Pem("ca", ca.cert_pem.bytes())

    def made(name: str) -> ClientCertificate:
        certificate, key = pair(ca, name)
        return ClientCertificate(Pem("certificate", certificate), Pem("key", key))

    seen = await handshake(ca, ssl_context(TLS(ca=trust), made("plugin")), "api.example")
    assert ("DNS", "plugin") in seen["subjectAltName"]
    both = ssl_context(TLS(ca=trust, client=made("file")), made("plugin"))
    assert ("DNS", "file") in (await handshake(ca, both, "api.example"))["subjectAltName"]


async def test_other_names_and_other_roots_are_refused_unless_insecure(ca: trustme.CA) -> None:
    trusting = ssl_context(TLS(ca=Pem("ca", ca.cert_pem.bytes())))
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(ca, trusting, "other.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(ca, ssl_context(TLS(ca=Pem("ca", trustme.CA().cert_pem.bytes()))), "api.example")
    assert await handshake(ca, ssl_context(TLS(insecure=True)), "other.example") == {}


async def test_intermediate_in_the_kubeconfig_is_trusted_by_itself(ca: trustme.CA) -> None:
    middle = ca.create_child_ca()
    context = ssl_context(TLS(ca=Pem("ca", middle.cert_pem.bytes())))
    await handshake(middle, context, "api.example")


def test_context_is_strict_by_default() -> None:
    context = ssl_context(TLS())
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_comments_in_a_bundle_may_be_in_any_language(ca: trustme.CA) -> None:
    bundle = "# Größe, 根证书\n".encode() + ca.cert_pem.bytes()
    assert ssl_context(TLS(ca=Pem("ca", bundle))).cert_store_stats()["x509_ca"] == 1


def test_inline_key_leaves_no_file_behind(tmp_path: Path, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    certificate, key = pair(ca)
    ssl_context(TLS(client=ClientCertificate(Pem("certificate", certificate), Pem("key", key))))
    _, other = pair(ca)
    with pytest.raises(ConfigError):
        ssl_context(TLS(client=ClientCertificate(Pem("certificate", certificate), Pem("key", other))))
    assert list(tmp_path.iterdir()) == []


def locked(key: bytes) -> bytes:
    return load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase")
    )


def test_bad_certificates_and_keys_name_their_field(tmp_path: Path, ca: trustme.CA) -> None:
    certificate, key = pair(ca)
    _, other = pair(ca)
    torn = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    where = "~/.kube/config: users[0].user.client-"
    no_certificate = 'holds no PEM certificate ("-----BEGIN CERTIFICATE-----")'
    no_key = 'holds no PEM key ("-----BEGIN … PRIVATE KEY-----")'
    mismatch = f"does not belong to the certificate in {where}certificate-data"
    for shown, secret, expected in (
        (b"words", key, f"{where}certificate-data: {no_certificate}"),
        (key, key, f"{where}certificate-data: {no_certificate}"),
        (certificate, b"words", f"{where}key-data: {no_key}"),
        (certificate, certificate, f"{where}key-data: {no_key}"),
        (certificate, torn, f"{where}key-data: is damaged: OpenSSL cannot read the key"),
        (certificate, other, f"{where}key-data: {mismatch}"),
        (certificate, locked(key), f"{where}key-data: is encrypted; store it without a passphrase"),
    ):
        user = {"client-certificate-data": base64_text(shown), "client-key-data": base64_text(secret)}
        tls = connection_from(tmp_path, user=user).tls
        assert tls is not None
        with pytest.raises(ConfigError) as caught:
            ssl_context(tls)
        assert str(caught.value) == expected


def test_bad_authority_names_its_field(tmp_path: Path) -> None:
    tls = connection_from(tmp_path, {"certificate-authority-data": base64_text(b"words")}).tls
    assert tls is not None
    with pytest.raises(ConfigError) as caught:
        ssl_context(tls)
    assert str(caught.value) == (
        "~/.kube/config: clusters[0].cluster.certificate-authority-data: "
        'holds no PEM certificate ("-----BEGIN CERTIFICATE-----")'
    )

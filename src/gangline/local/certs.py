"""The plane's own authority: a CA, a server certificate, a client certificate for the administrator.

Keys are written once, readable by their owner only, into the plane's folder. Nothing here is asked of the network or
of another program.
"""

import ipaddress
import os
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=3650)
RENEW = timedelta(days=30)
"""A certificate with less than this left is made anew at the next start."""
BACKDATED = timedelta(hours=1)
"""Clocks differ."""

NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority(msgspec.Struct, frozen=True):
    """All the plane's certificates."""

    ca: Path
    server: Pair
    admin: Pair


def authority(folder: Path, hosts: tuple[str, ...], now: datetime) -> Authority:
    """The certificates in a folder, made when missing, nearly expired, or not for these hosts. Idempotent."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = Pair(folder / "ca.crt", folder / "ca.key")
    server = Pair(folder / "server.crt", folder / "server.key")
    admin = Pair(folder / "admin.crt", folder / "admin.key")
    if not _good(ca, now):
        _make_ca(ca, now)
        for stale in (server, admin):
            stale.certificate.unlink(missing_ok=True)
    if not _good(server, now, hosts):
        _issue(ca, server, _subject("gangline"), now, hosts=hosts)
    if not _good(admin, now):
        _issue(ca, admin, _subject("admin", organization="system:masters"), now)
    return Authority(ca.certificate, server, admin)


def _good(pair: Pair, now: datetime, hosts: tuple[str, ...] = ()) -> bool:
    if not (pair.certificate.exists() and pair.key.exists()):
        return False
    certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
    if certificate.not_valid_after_utc - now < RENEW:
        return False
    return not hosts or set(_alternatives(hosts)) <= set(
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    )


def _make_ca(pair: Pair, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject("gangline-ca")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(pair, key, certificate)


def _issue(ca: Pair, pair: Pair, subject: x509.Name, now: datetime, hosts: tuple[str, ...] = ()) -> None:
    signer = serialization.load_pem_private_key(ca.key.read_bytes(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.certificate.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
    _write(pair, key, builder.sign(signer, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID)
    )


def _subject(name: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _alternatives(hosts: tuple[str, ...]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in (*NAMES, *hosts):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def _write(pair: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    plain = serialization.NoEncryption()
    private(
        pair.key,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )
    private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def private(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that only its owner may read: whole or not at all, and never readable by others in between."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    fresh.replace(path)

"""Issue and check X.509 certificates, as PEM bytes. Imports cryptography, which takes long."""

import ipaddress
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE_LIFETIME = timedelta(days=3650)
RENEW_BEFORE = timedelta(days=30)
"""A certificate that expires sooner than this is not valid any more."""
CLOCK_SKEW = timedelta(hours=1)
"""Certificates are valid from this long ago, because clocks differ."""

SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""DNS names of every server certificate."""


def is_valid(pem: bytes, now: datetime, hosts: tuple[str, ...] = ()) -> bool:
    """Whether a certificate is valid for some time to come and names these hosts."""
    certificate = x509.load_pem_x509_certificate(pem)
    if certificate.not_valid_after_utc - now < RENEW_BEFORE:
        return False
    return not hosts or set(_subject_alt_names(hosts)) <= set(
        certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    )


def issue_ca(now: datetime) -> tuple[bytes, bytes]:
    """Certificate and key of a new self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _subject_name("gangline-ca")
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
    return _pem(certificate, key)


def issue(
    ca_certificate: bytes,
    ca_key: bytes,
    name: str,
    now: datetime,
    *,
    organization: str = "",
    hosts: tuple[str, ...] = (),
) -> tuple[bytes, bytes]:
    """Certificate and key, signed by the CA: a server certificate if hosts are given, else a client certificate."""
    subject = _subject_name(name, organization)
    signer = serialization.load_pem_private_key(ca_key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca_certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName(_subject_alt_names(hosts)), critical=False)
    return _pem(builder.sign(signer, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + CERTIFICATE_LIFETIME)
    )


def _subject_name(name: str, organization: str = "") -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _subject_alt_names(hosts: tuple[str, ...]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in (*SERVER_NAMES, *hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _pem(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> tuple[bytes, bytes]:
    plain = serialization.NoEncryption()
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    )

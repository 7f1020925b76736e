"""Certificate signing requests: what they ask for, and their signing. Imports cryptography, which takes long."""

from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from gangline.base.certificates.issued import IssuedKey
from gangline.base.errors import InputError

BACKDATE, SHORT_LIFETIME = timedelta(minutes=5), timedelta(hours=8)
"""Certificates are valid from a little before now. Short-lived ones are not shortened by it."""

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_KEY_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}


class RequestedCertificate(msgspec.Struct, frozen=True):
    """What a request asks for."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    email_addresses: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def parse_request(pem: bytes) -> RequestedCertificate:
    """What a request in PEM asks for. Raises `InputError` if it is none, or if its signature is wrong."""
    request = _load_request(pem)
    names, common_names = _alternative_names(request), _attributes(request, NameOID.COMMON_NAME)
    return RequestedCertificate(
        common_names[-1] if common_names else "",
        tuple(_attributes(request, NameOID.ORGANIZATION_NAME)),
        tuple(names.get_values_for_type(x509.DNSName)) if names is not None else (),
        tuple(map(str, names.get_values_for_type(x509.IPAddress))) if names is not None else (),
        tuple(names.get_values_for_type(x509.RFC822Name)) if names is not None else (),
        tuple(names.get_values_for_type(x509.UniformResourceIdentifier)) if names is not None else (),
    )


def sign_request(ca: IssuedKey, pem: bytes, usages: tuple[str, ...], now: datetime, lifetime: timedelta) -> str:
    """The certificate that a request asks for, in PEM, signed by the CA. Raises `InputError`.

    It has the subject and the alternative names of the request, these usages, and ends no later than the CA.
    """
    request = _load_request(pem)
    signer = serialization.load_pem_private_key(ca.key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.certificate.encode())
    end = now + lifetime if lifetime < SHORT_LIFETIME else now + lifetime - BACKDATE
    used = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
    extended = [_EXTENDED_KEY_USAGES[usage] for usage in usages if usage in _EXTENDED_KEY_USAGES]
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(issuer.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(min(end, ca.valid_until))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if used:
        builder = builder.add_extension(_key_usage(used), critical=True)
    if extended:
        builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
    if (names := _alternative_names(request)) is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def certificates_problem(pem: bytes) -> str:
    """What is wrong with a text that should be certificates in PEM; empty if nothing is."""
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return str(error)
    return ""


def _load_request(pem: bytes) -> x509.CertificateSigningRequest:
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        raise InputError("PEM block type must be CERTIFICATE REQUEST")
    try:
        request = x509.load_pem_x509_csr(pem)
        if not request.is_signature_valid:
            raise InputError("x509: the signature of the request is not of its key")
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise InputError(str(error)) from error
    return request


def _attributes(request: x509.CertificateSigningRequest, kind: ObjectIdentifier) -> list[str]:
    return [str(item.value) for item in request.subject.get_attributes_for_oid(kind)]


def _alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _key_usage(used: set[str]) -> x509.KeyUsage:
    names = set(_KEY_USAGES.values())
    return x509.KeyUsage(**{name: name in used for name in names})

"""TLS settings of a connection: trusted roots and client certificate.

PEM files are read each time a context is built, so the next context uses a rotated certificate. No repr or error message
contains key material: they name fields and files.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Never

import msgspec

from gangline.kube.config.files import read_config_file
from gangline.kube.errors import ConfigError


class Pem(msgspec.Struct, frozen=True):
    """A certificate or key, inline or in a file, and the configuration field it comes from."""

    location: str
    """`FILE: FIELD`, the beginning of messages about it."""
    data: bytes = b""
    file: Path | None = None

    def read(self) -> bytes:
        """The PEM text. Raises `ConfigError` if the file cannot be read."""
        return self.data if self.file is None else read_config_file(self.file, self.location)

    def __repr__(self) -> str:
        return f"Pem({self.location!r})"


class ClientCertificate(msgspec.Struct, frozen=True):
    """A client certificate and its key."""

    certificate: Pem
    key: Pem


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """How to verify a server, and the client certificate to present."""

    ca: Pem | None = None
    """None: the roots of the system."""
    client: ClientCertificate | None = None
    server_name: str | None = None
    """The server name for SNI and verification, instead of the host in the URL (aiohttp's `server_hostname`)."""
    insecure: bool = False
    """Do not verify the server. Only if explicitly configured."""


def ssl_context(tls: TLS, plugin: ClientCertificate | None = None) -> ssl.SSLContext:
    """A context for connections to the server: TLS 1.2 or newer, verified unless `tls.insecure`.

    `plugin` is the certificate of `Credentials.client_certificate`; one in the kubeconfig takes precedence. Reads files,
    so it blocks for a moment. Raises `ConfigError` with the field of an invalid certificate or key.
    """
    # Not create_default_context: from 3.13 it sets VERIFY_X509_STRICT, which refuses the roots of many clusters.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The CA in a kubeconfig may be an intermediate certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs()
    else:
        _load_ca(context, tls.ca)
    client = tls.client or plugin
    if client is not None:
        _load_client_certificate(context, client)
    return context


def _load_ca(context: ssl.SSLContext, pem: Pem) -> None:
    # OpenSSL accepts ASCII only, but bundles may have comments in any language.
    text = pem.read().decode("ascii", errors="ignore")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ConfigError(f'{pem.location}: holds no PEM certificate ("-----BEGIN CERTIFICATE-----")') from None


def _load_client_certificate(context: ssl.SSLContext, client: ClientCertificate) -> None:
    certificate, key = client.certificate, client.key
    # Parsed separately first, because the errors of load_cert_chain do not say which of the two is invalid.
    _load_ca(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)
    text = key.read()
    if b"PRIVATE KEY-----" not in text:
        raise ConfigError(f'{key.location}: holds no PEM key ("-----BEGIN … PRIVATE KEY-----")')

    def refuse() -> Never:
        # Without a callback OpenSSL would prompt on the terminal.
        raise ConfigError(f"{key.location}: is encrypted; store it without a passphrase")

    try:
        with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
            context.load_cert_chain(certificate_file, key_file, password=refuse)
    except ssl.SSLError as error:
        if error.reason and "MISMATCH" in error.reason:
            raise ConfigError(f"{key.location}: does not belong to the certificate in {certificate.location}") from None
        raise ConfigError(f"{key.location}: is damaged: OpenSSL cannot read the key") from None


@contextmanager
def _as_file(pem: Pem) -> Iterator[str]:
    """A path to the PEM during the block: OpenSSL loads client certificates only from files."""
    if pem.file is not None:
        yield str(pem.file)
        return
    import tempfile  # slow to import, and only needed for inline client certificates

    # Created with mode 0600 and a random name, deleted at the end of the block.
    with tempfile.NamedTemporaryFile(prefix="gangline-") as file:
        file.write(pem.data)
        file.flush()
        yield file.name

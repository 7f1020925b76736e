"""TLS for a small server of ours: with a certificate in files, which others renew, or with one that it makes for itself."""

import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gangline.base.errors import InputError

log = logging.getLogger(__name__)

CERTIFICATE_NAME, KEY_NAME = "tls.crt", "tls.key"
"""As in a Secret of type kubernetes.io/tls."""
OWN_CERTIFICATE_AGE = timedelta(days=10)
"""After this time a certificate of our own is replaced; it is valid for longer."""
CHECK_INTERVAL = timedelta(seconds=10)
"""How often to look whether the files have changed, at most."""


def tls_from_folder(folder: Path, flag: str) -> ssl.SSLContext:
    """TLS with `tls.crt` and `tls.key` of a folder, read again when they change. Raises `InputError`."""
    certificate, key = folder / CERTIFICATE_NAME, folder / KEY_NAME
    context = _server_context()
    loaded: list[tuple[int, int]] = []

    def load() -> None:
        version = (certificate.stat().st_mtime_ns, key.stat().st_mtime_ns)
        if loaded != [version]:
            context.load_cert_chain(certificate, key)
            loaded[:] = [version]

    try:
        load()
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else error
        raise InputError(
            f"{flag} {folder}: cannot be used: {reason}; it needs {CERTIFICATE_NAME} and {KEY_NAME}, in PEM"
        ) from error
    _before_handshakes(context, load, CHECK_INTERVAL)
    return context


def tls_of_our_own(hosts: tuple[str, ...]) -> ssl.SSLContext:
    """TLS with a certificate that nobody can verify, made for these hosts and replaced from time to time."""
    # Imported here because cryptography takes long.
    from gangline.base.certificates.x509_pem import issue, issue_ca

    context = _server_context()

    def load() -> None:
        now = datetime.now(UTC)
        issued = issue(issue_ca(now), hosts[0], now, hosts=hosts)
        with _readable_file(f"{issued.certificate}{issued.key}") as file:
            context.load_cert_chain(file)

    load()
    _before_handshakes(context, load, OWN_CERTIFICATE_AGE)
    return context


def require_client_certificates(context: ssl.SSLContext, ca: Path, flag: str) -> None:
    """Refuse handshakes of clients without a certificate of this CA. Raises `InputError`."""
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else "it has no certificate in PEM"
        raise InputError(f"{flag} {ca}: cannot be used: {reason}; name the file with the CA of your cluster") from error
    context.verify_mode = ssl.CERT_REQUIRED


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _before_handshakes(context: ssl.SSLContext, load: Callable[[], None], interval: timedelta) -> None:
    """Call `load` before a handshake if the last call was so long ago. What it loads is for the next handshakes."""
    last = time.monotonic()

    def on_client_hello(connection: ssl.SSLObject, name: str | None, used: ssl.SSLContext) -> None:
        nonlocal last
        if time.monotonic() - last < interval.total_seconds():
            return
        last = time.monotonic()
        try:
            load()
        except (OSError, ssl.SSLError) as error:
            log.warning("a new certificate cannot be read, keeping the old one", extra={"error": str(error)})

    context.sni_callback = on_client_hello


@contextmanager
def _readable_file(text: str) -> Iterator[str]:
    """A file with this text that is on no disk where that is possible: the file system may be read-only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(text)
            file.flush()
            yield file.name

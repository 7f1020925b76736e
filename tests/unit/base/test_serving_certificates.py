"""TLS of small servers: certificates in files that others renew, and certificates of our own."""

import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gangline.base.certificates import serving
from gangline.base.certificates.issued import IssuedKey
from gangline.base.certificates.serving import tls_from_folder, tls_of_our_own
from gangline.base.certificates.x509_pem import issue, issue_ca
from gangline.base.errors import InputError


def make_files(folder: Path, ca: IssuedKey, name: str) -> None:
    made = issue(ca, name, datetime.now(UTC), hosts=("localhost",))
    (folder / "tls.crt").write_text(made.certificate)
    (folder / "tls.key").write_text(made.key)


def served_certificate(context: ssl.SSLContext) -> bytes:
    """The certificate that a client gets in a handshake."""
    ours, theirs = socket.socketpair()
    done: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: done.append(context.wrap_socket(ours, server_side=True)))
    thread.start()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with client.wrap_socket(theirs, server_hostname="localhost") as connected:
        certificate = connected.getpeercert(binary_form=True)
    thread.join()
    done[0].close()
    assert certificate is not None
    return certificate


def test_renewed_files_are_used_without_a_restart_and_broken_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "CHECK_INTERVAL", timedelta())
    ca = issue_ca(datetime.now(UTC))
    make_files(tmp_path, ca, "first")
    context = tls_from_folder(tmp_path, "--metrics-cert-path")
    first = served_certificate(context)
    make_files(tmp_path, ca, "second")
    os.utime(tmp_path / "tls.crt", (1, 1))
    served_certificate(context)  # which notices
    second = served_certificate(context)
    assert second != first
    (tmp_path / "tls.key").write_text("rubbish")
    served_certificate(context)
    assert served_certificate(context) == second
    assert "keeping the old one" in caplog.text


@pytest.mark.parametrize("content", [None, "", "rubbish"])
def test_files_that_cannot_be_used_are_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        for name in ("tls.crt", "tls.key"):
            (tmp_path / name).write_text(content)
    with pytest.raises(
        InputError, match=r"^--metrics-cert-path .*: cannot be used: .*; it needs tls.crt and tls.key, in PEM$"
    ):
        tls_from_folder(tmp_path, "--metrics-cert-path")


def test_a_certificate_of_our_own_is_replaced_in_time_and_is_on_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    monkeypatch.setattr(serving, "OWN_CERTIFICATE_AGE", timedelta())
    context = tls_of_our_own(("localhost",))
    first = served_certificate(context)
    assert served_certificate(context) != first

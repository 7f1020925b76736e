"""The certificate files of a plane."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from gangline.base.certs import ensure_certificates
from gangline.base.files import write_private
from gangline.base.x509_pem import CERTIFICATE_LIFETIME, RENEW_BEFORE

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_certificates_are_made_once_and_kept(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path, ("127.0.0.1",), NOW)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert ensure_certificates(tmp_path, ("127.0.0.1",), NOW + timedelta(days=1)) == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_their_owner_can_read_them(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, ("127.0.0.1",), NOW)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_another_host_gets_another_certificate_of_the_same_authority(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path, ("127.0.0.1",), NOW)
    ca, server = first.ca.read_bytes(), first.server.certificate.read_bytes()
    ensure_certificates(tmp_path, ("127.0.0.1", "laptop.local"), NOW)
    assert first.ca.read_bytes() == ca
    assert first.server.certificate.read_bytes() != server


def test_everything_is_renewed_before_it_expires(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path, ("127.0.0.1",), NOW)
    ca = first.ca.read_bytes()
    later = NOW + CERTIFICATE_LIFETIME - RENEW_BEFORE + timedelta(days=1)
    ensure_certificates(tmp_path, ("127.0.0.1",), later)
    assert first.ca.read_bytes() != ca
    certificate = x509.load_pem_x509_certificate(first.server.certificate.read_bytes())
    assert certificate.not_valid_after_utc > later + RENEW_BEFORE


def test_the_pairs_fit_and_the_administrator_is_a_master(tmp_path: Path) -> None:
    issued = ensure_certificates(tmp_path, ("127.0.0.1",), NOW)
    for pair in (issued.server, issued.admin):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair.certificate, pair.key)
    admin = x509.load_pem_x509_certificate(issued.admin.certificate.read_bytes())
    assert admin.subject.rfc4514_string() == "CN=admin,O=system:masters"


def test_a_private_file_replaces_one_that_all_could_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [file]

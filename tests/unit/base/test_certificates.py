"""The certificates of a server: what is issued when, the files, and the cache that servers share."""

import ssl
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from gangline.base.certificates.folder import RECORD_NAME, CertificateFolder, read_record, write_record
from gangline.base.certificates.issued import (
    CA_HANDOVER,
    CA_LIFETIME,
    CA_RENEWAL,
    LEAF_LIFETIME,
    LEAF_RENEWAL,
    CertificateSet,
)
from gangline.base.certificates.renewal import renewed_certificates
from gangline.base.certificates.x509_pem import SERVER_NAMES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ("127.0.0.1",)
DAY = timedelta(days=1)


def parsed(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_certificates_are_issued_once_and_kept(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path)
    first = folder.ensure(HOSTS, NOW)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert CertificateFolder(tmp_path).ensure(HOSTS, NOW + DAY) == first
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_only_their_owner_can_read_them(tmp_path: Path) -> None:
    CertificateFolder(tmp_path / "here").ensure(HOSTS, NOW)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "here").iterdir()} == {0o600}
    assert (tmp_path / "here").stat().st_mode & 0o777 == 0o700


def test_another_host_gets_another_certificate_of_the_same_authority() -> None:
    first = renewed_certificates(None, HOSTS, NOW)
    more = renewed_certificates(first, (*HOSTS, "laptop.local"), NOW)
    assert (more.authorities, more.admin) == (first.authorities, first.admin)
    assert more.server != first.server
    assert renewed_certificates(more, HOSTS, NOW) is more


def test_the_server_certificate_has_the_names_of_every_api_server() -> None:
    issued = renewed_certificates(None, ("192.0.2.7", "laptop.local"), NOW)
    names = parsed(issued.server.certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = {str(name.value) for name in names}
    assert found == {*SERVER_NAMES, "192.0.2.7", "laptop.local"}


def test_leaves_are_renewed_before_they_expire_and_the_authority_stays() -> None:
    first = renewed_certificates(None, HOSTS, NOW)
    soon = NOW + LEAF_LIFETIME - LEAF_RENEWAL
    assert renewed_certificates(first, HOSTS, soon - DAY) is first
    second = renewed_certificates(first, HOSTS, soon + DAY)
    assert second.authorities == first.authorities
    for old, new in ((first.server, second.server), (first.admin, second.admin)):
        assert new.valid_until - old.valid_until == soon + DAY - NOW
        assert new.key != old.key


def test_the_next_authority_is_published_before_it_signs_and_the_old_one_stays_until_it_expires() -> None:
    issued = renewed_certificates(None, HOSTS, NOW)
    (old,) = issued.authorities
    published = signed = None
    day = NOW
    while day < NOW + 2 * CA_LIFETIME:
        day += DAY
        issued = renewed_certificates(issued, HOSTS, day)
        server = parsed(issued.server.certificate)
        # Whatever signed the certificate is in the bundle, and outlives it.
        issuer = next(each for each in issued.authorities if parsed(each.certificate).subject == server.issuer)
        server.verify_directly_issued_by(parsed(issuer.certificate))
        assert issued.server.valid_until <= issuer.valid_until
        assert issued.server.is_valid(day)
        if published is None and len(issued.authorities) == 2:
            published = day
        if signed is None and issuer != old:
            signed = day
            assert old in issued.authorities
    assert published is not None
    assert signed is not None
    assert published == old.valid_until - CA_RENEWAL + DAY or published == old.valid_until - CA_RENEWAL
    assert signed - published >= CA_RENEWAL - CA_HANDOVER - DAY
    assert old not in issued.authorities


def test_after_years_without_a_start_everything_is_new() -> None:
    first = renewed_certificates(None, HOSTS, NOW)
    later = renewed_certificates(first, HOSTS, NOW + 5 * CA_LIFETIME)
    assert not set(first.authorities) & set(later.authorities)
    assert later.server.is_valid(NOW + 5 * CA_LIFETIME)


def test_certificates_from_the_future_are_not_used() -> None:
    first = renewed_certificates(None, HOSTS, NOW)
    earlier = renewed_certificates(first, HOSTS, NOW - 5 * DAY)
    assert earlier.server.is_valid(NOW - 5 * DAY)
    assert all(authority.is_valid(NOW - 5 * DAY) for authority in earlier.authorities)


def test_the_pairs_fit_and_the_administrator_is_a_master(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path)
    issued = folder.ensure(HOSTS, NOW)
    for pair in (folder.files.server, folder.files.admin):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*pair)
    assert parsed(issued.admin.certificate).subject.rfc4514_string() == "CN=admin,O=system:masters"


def test_files_that_were_removed_are_written_again(tmp_path: Path) -> None:
    folder = CertificateFolder(tmp_path)
    issued = folder.ensure(HOSTS, NOW)
    folder.files.server.key.unlink()
    assert folder.ensure(HOSTS, NOW) == issued
    assert folder.files.server.key.read_text() == issued.server.key


def test_a_folder_that_others_could_write_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    issued = CertificateFolder(tmp_path).ensure(HOSTS, NOW)
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert CertificateFolder(tmp_path).ensure(HOSTS, NOW) == issued


def test_a_folder_of_another_user_has_certificates_but_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    folder = CertificateFolder(tmp_path)
    issued = folder.ensure(HOSTS, NOW)
    assert folder.files.server.certificate.read_text() == issued.server.certificate
    assert not (tmp_path / RECORD_NAME).exists()
    assert folder.ensure(HOSTS, NOW) != issued


def test_no_key_is_in_a_repr() -> None:
    assert "KEY" not in repr(renewed_certificates(None, HOSTS, NOW))


# The cache


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "state" / "shared" / RECORD_NAME


def served(tmp_path: Path, name: str, cache: Path, now: datetime = NOW) -> CertificateSet:
    return CertificateFolder(tmp_path / name).ensure(HOSTS, now, cache)


def test_servers_share_the_certificates_of_the_cache(tmp_path: Path, cache: Path) -> None:
    first = served(tmp_path, "one", cache)
    assert served(tmp_path, "two", cache) == first
    assert (cache.stat().st_mode & 0o777, cache.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    renewed = served(tmp_path, "three", cache, NOW + LEAF_LIFETIME)
    assert renewed.server != first.server
    assert read_record(cache) == renewed


def test_a_server_that_finds_valid_certificates_does_not_import_cryptography(tmp_path: Path, cache: Path) -> None:
    write_record(cache, renewed_certificates(None, HOSTS, datetime.now(UTC)))
    program = (
        "import sys; from pathlib import Path; from datetime import UTC, datetime\n"
        "from gangline.base.certificates.folder import CertificateFolder\n"
        "from gangline.base.certificates.keeper import CertificateKeeper\n"
        "from gangline.base.clock import SystemClock\n"
        "CertificateKeeper(Path(sys.argv[1]), ('127.0.0.1',), SystemClock(), cache=Path(sys.argv[2])).server_context()\n"
        "print('cryptography' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "here"), str(cache)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data.replace(b"2026", b"2036"), lambda _: b"{}"]
)
def test_a_damaged_cache_is_replaced(tmp_path: Path, cache: Path, damage: Callable[[bytes], bytes]) -> None:
    first = served(tmp_path, "one", cache)
    cache.write_bytes(damage(cache.read_bytes()))
    second = served(tmp_path, "two", cache)
    assert not set(second.authorities) & set(first.authorities)
    assert read_record(cache) == second


def test_a_cache_that_others_may_read_is_not_used(tmp_path: Path, cache: Path) -> None:
    first = served(tmp_path, "one", cache)
    cache.chmod(0o644)
    second = served(tmp_path, "two", cache)
    assert second.authorities != first.authorities
    assert cache.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_others_may_write_is_neither_read_nor_written(tmp_path: Path, cache: Path) -> None:
    first = served(tmp_path, "one", cache)
    cache.parent.chmod(0o777)
    second = served(tmp_path, "two", cache)
    assert second.authorities != first.authorities
    cache.parent.chmod(0o700)
    assert read_record(cache) == first


def test_a_link_in_the_place_of_the_cache_is_not_followed(tmp_path: Path, cache: Path) -> None:
    first = served(tmp_path, "one", cache)
    other = cache.rename(cache.with_name("other"))
    cache.symlink_to(other)
    assert served(tmp_path, "two", cache) != first
    assert not cache.is_symlink()


def test_without_a_folder_for_the_cache_certificates_are_issued_for_the_server_alone(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    first = served(tmp_path, "one", blocked / "state" / RECORD_NAME)
    assert first.server.is_valid(NOW)
    assert served(tmp_path, "two", blocked / "state" / RECORD_NAME) != first


def test_servers_that_start_at_once_leave_one_complete_cache(tmp_path: Path, cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        issued = list(pool.map(lambda number: served(tmp_path, str(number), cache), range(24)))
    assert read_record(cache) in issued
    assert [path.name for path in cache.parent.iterdir()] == [RECORD_NAME]

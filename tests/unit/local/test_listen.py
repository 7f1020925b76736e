"""The address that the API server listens on."""

import pytest

from gangline.base.errors import InputError
from gangline.local.listen import ListenAddress, host_port, parse_listen_address


@pytest.mark.parametrize(
    ("address", "reachable", "is_open"),
    [
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.2", "127.0.0.2", False),
        ("::1", "::1", False),
        ("192.0.2.10", "192.0.2.10", True),
        ("0.0.0.0", "127.0.0.1", True),
        ("::", "::1", True),
    ],
)
def test_an_address_is_open_or_not_and_reachable_from_here(address: str, reachable: str, is_open: bool) -> None:
    listen = parse_listen_address(address)
    assert (listen.reachable_host, listen.is_open) == (reachable, is_open)


def test_a_certificate_names_the_address_and_of_all_addresses_every_one() -> None:
    assert ListenAddress("192.0.2.10").certificate_hosts() == ("192.0.2.10",)
    everywhere = ListenAddress("0.0.0.0").certificate_hosts()
    assert everywhere[0] == "127.0.0.1"
    assert "0.0.0.0" not in everywhere
    assert len(set(everywhere)) == len(everywhere)


@pytest.mark.parametrize("text", ["localhost", "example.org", "1.2.3", ""])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(InputError, match=f"--bind {text}: is not an IP address"):
        parse_listen_address(text)


def test_addresses_of_version_6_stand_in_brackets() -> None:
    assert host_port("127.0.0.1", 80) == "127.0.0.1:80"
    assert host_port("::1", 80) == "[::1]:80"

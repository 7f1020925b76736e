"""Addresses and host names of isolated pods."""

from pathlib import Path

from gangline.api.meta import Key
from gangline.node.network.bridge import GATEWAY
from gangline.node.network.pod_network import PodAddressPool, hosts_text, rewrite_in_place


def key(name: str) -> Key:
    return Key("default", name)


def test_a_name_keeps_its_address_and_no_two_have_the_same(tmp_path: Path) -> None:
    numbers = PodAddressPool(tmp_path / "n")
    addresses = {name: numbers.address_of(key(name)) for name in "abc"}
    assert len({*addresses.values(), GATEWAY}) == 4
    assert PodAddressPool(tmp_path / "n").address_of(key("b")) == addresses["b"]


def test_an_address_that_was_given_back_is_not_given_out_at_once(tmp_path: Path) -> None:
    numbers = PodAddressPool(tmp_path / "n")
    first = numbers.address_of(key("a"))
    numbers.release(key("a"))
    assert numbers.address_of(key("b")) != first
    assert numbers.address_of(key("a")) != first


def test_after_the_last_address_the_free_ones_come_again(tmp_path: Path) -> None:
    (tmp_path / "n").write_text(f'{{"default/last":{(10 << 24) + (244 << 16) + 65534}}}')
    numbers = PodAddressPool(tmp_path / "n")
    assert numbers.address_of(key("last")) == "10.244.255.254"
    assert numbers.address_of(key("next")) == "10.244.0.2"


def test_names_are_those_of_a_cluster() -> None:
    services = [(key("web"), ("10.244.0.2", "10.244.0.3")), (Key("other", "db"), ("10.244.0.9",))]
    lines = hosts_text("default", [("p", "10.244.0.2")], services).splitlines()
    assert lines[:2] == ["127.0.0.1 localhost", "::1 localhost"]
    assert lines[2].startswith(f"{GATEWAY} kubernetes.default.svc ")
    assert lines[3:] == [
        "10.244.0.2 web.default.svc.cluster.local web.default.svc web.default web",
        "10.244.0.3 web.default.svc.cluster.local web.default.svc web.default web",
        "10.244.0.9 db.other.svc.cluster.local db.other.svc db.other",
        "10.244.0.2 p",
    ]


def test_a_mounted_file_is_changed_in_place(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "hosts"
    rewrite_in_place(file, "long long text\n")
    before = file.stat()
    rewrite_in_place(file, "short\n")
    assert (file.read_text(), file.stat().st_ino) == ("short\n", before.st_ino)
    changed = file.stat().st_mtime_ns
    rewrite_in_place(file, "short\n")
    assert file.stat().st_mtime_ns == changed

"""The little of Linux' netlink that a small network needs: bridges, pairs of interfaces, addresses.

Everything is about the network namespace that the process is in. Raises OSError.
"""

import os
import socket
import struct

NEW_LINK, DELETE_LINK, NEW_ADDRESS = 16, 17, 20
REQUEST, ACKNOWLEDGE, CREATE, EXCLUSIVE = 1, 4, 0x400, 0x200
HARDWARE, NAME, MASTER, LINK_INFO, NAMESPACE = 1, 3, 10, 18, 28
INFO_KIND, INFO_DATA, PEER = 1, 2, 1
ADDRESS, LOCAL = 1, 2
UP = 1


def bridge(name: str) -> None:
    """Make a bridge, and switch it on."""
    _ask(NEW_LINK, _link() + _attribute(NAME, _text(name)) + _kind("bridge"), CREATE | EXCLUSIVE)
    up(name)


def pair(name: str, other: str, namespace: int, hardware: bytes) -> None:
    """Make two joined interfaces: one here, the other in a namespace (a descriptor)."""
    there = (
        _link()
        + _attribute(NAME, _text(other))
        + _attribute(HARDWARE, hardware)
        + _attribute(NAMESPACE, struct.pack("I", namespace))
    )
    _ask(
        NEW_LINK,
        _link() + _attribute(NAME, _text(name)) + _kind("veth", _attribute(PEER, there)),
        CREATE | EXCLUSIVE,
    )


def join(name: str, master: str) -> None:
    """Plug an interface into a bridge, and switch it on."""
    number = struct.pack("I", socket.if_nametoindex(master))
    _ask(NEW_LINK, _link(socket.if_nametoindex(name)) + _attribute(MASTER, number))
    up(name)


def up(name: str) -> None:
    """Switch an interface on."""
    _ask(NEW_LINK, _link(socket.if_nametoindex(name), UP, UP))


def remove(name: str) -> None:
    """Remove an interface, and the one that is joined to it."""
    _ask(DELETE_LINK, _link(socket.if_nametoindex(name)))


def address(name: str, host: str, bits: int) -> None:
    """Give an interface an address of version 4."""
    packed = socket.inet_aton(host)
    head = struct.pack("BBBBI", socket.AF_INET, bits, 0, 0, socket.if_nametoindex(name))
    _ask(NEW_ADDRESS, head + _attribute(LOCAL, packed) + _attribute(ADDRESS, packed), CREATE | EXCLUSIVE)


def _link(number: int = 0, flags: int = 0, changed: int = 0) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, number, flags, changed)


def _kind(kind: str, data: bytes = b"") -> bytes:
    inner = _attribute(INFO_KIND, _text(kind)) + (_attribute(INFO_DATA, data) if data else b"")
    return _attribute(LINK_INFO, inner)


def _attribute(kind: int, data: bytes) -> bytes:
    size = len(data) + 4
    return struct.pack("HH", size, kind) + data + b"\0" * (-size % 4)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _ask(kind: int, body: bytes, flags: int = 0) -> None:
    """One request, and what the kernel says to it."""
    head = struct.pack("IHHII", 16 + len(body), kind, flags | REQUEST | ACKNOWLEDGE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        kernel.send(head + body)
        answer = kernel.recv(65536)
    (code,) = struct.unpack_from("i", answer, 16)
    if code:
        raise OSError(-code, os.strerror(-code))

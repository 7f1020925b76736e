"""Linux netlink requests for bridges, veth pairs and addresses, in the network namespace of this process.

All functions raise OSError.
"""

import errno
import os
import socket
import struct
import sys

RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR = 16, 17, 20
NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL = 1, 4, 0x400, 0x200
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MASTER, IFLA_LINKINFO, IFLA_NET_NS_FD = 1, 3, 10, 18, 28
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2
IFF_UP = 1


def create_bridge(name: str) -> None:
    """Create a bridge, and set it up."""
    _request(
        RTM_NEWLINK,
        _link_message() + _attribute(IFLA_IFNAME, _c_string(name)) + _link_kind("bridge"),
        NLM_F_CREATE | NLM_F_EXCL,
    )
    set_up(name)


def create_veth_pair(name: str, other: str, namespace: int, hardware: bytes) -> None:
    """Create two joined interfaces: `name` here, `other` in a namespace (a descriptor)."""
    peer = (
        _link_message()
        + _attribute(IFLA_IFNAME, _c_string(other))
        + _attribute(IFLA_ADDRESS, hardware)
        + _attribute(IFLA_NET_NS_FD, struct.pack("I", namespace))
    )
    _request(
        RTM_NEWLINK,
        _link_message()
        + _attribute(IFLA_IFNAME, _c_string(name))
        + _link_kind("veth", _attribute(VETH_INFO_PEER, peer)),
        NLM_F_CREATE | NLM_F_EXCL,
    )


def attach_to_bridge(name: str, master: str) -> None:
    """Attach an interface to a bridge, and set it up."""
    number = struct.pack("I", socket.if_nametoindex(master))
    _request(RTM_NEWLINK, _link_message(socket.if_nametoindex(name)) + _attribute(IFLA_MASTER, number))
    set_up(name)


def set_up(name: str) -> None:
    """Set an interface up."""
    _request(RTM_NEWLINK, _link_message(socket.if_nametoindex(name), IFF_UP, IFF_UP))


def delete_link(name: str) -> None:
    """Delete an interface and its peer."""
    _request(RTM_DELLINK, _link_message(socket.if_nametoindex(name)))


def add_address(name: str, host: str, bits: int) -> None:
    """Add an IPv4 address to an interface."""
    packed = socket.inet_aton(host)
    head = struct.pack("BBBBI", socket.AF_INET, bits, 0, 0, socket.if_nametoindex(name))
    _request(
        RTM_NEWADDR, head + _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed), NLM_F_CREATE | NLM_F_EXCL
    )


def _link_message(number: int = 0, flags: int = 0, changed: int = 0) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, number, flags, changed)


def _link_kind(kind: str, data: bytes = b"") -> bytes:
    inner = _attribute(IFLA_INFO_KIND, _c_string(kind)) + (_attribute(IFLA_INFO_DATA, data) if data else b"")
    return _attribute(IFLA_LINKINFO, inner)


def _attribute(kind: int, data: bytes) -> bytes:
    size = len(data) + 4
    return struct.pack("HH", size, kind) + data + b"\0" * (-size % 4)


def _c_string(text: str) -> bytes:
    return text.encode() + b"\0"


def _request(kind: int, body: bytes, flags: int = 0) -> None:
    """Send one request. Raises OSError if the kernel refuses it."""
    head = struct.pack("IHHII", 16 + len(body), kind, flags | NLM_F_REQUEST | NLM_F_ACK, 1, 0)
    with _netlink_socket() as kernel:
        kernel.bind((0, 0))
        kernel.send(head + body)
        reply = kernel.recv(65536)
    (code,) = struct.unpack_from("i", reply, 16)
    if code:
        raise OSError(-code, os.strerror(-code))


def _netlink_socket() -> socket.socket:
    if sys.platform == "linux":
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

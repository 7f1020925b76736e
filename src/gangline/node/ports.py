"""Ports of this machine that are reserved for one owner.

They are below the range from which kernels serve outgoing connections and requests for any free port, so no other
process gets one of them by chance while its owner does not listen on it.
"""

import errno
import os
import secrets
import socket

from gangline.base.host_features import has_linux_features

LOOPBACK = "127.0.0.1"
POD_PORTS, PLANE_PORTS = range(20000, 28000), range(28000, 30000)
MAX_TRIES = 500
CONNECT_SECONDS = 1.0


def reserve_port(among: range, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A bound socket that does not listen, on a port free for TCP and UDP; any free port if the range is full."""
    for _ in range(MAX_TRIES):
        number = secrets.choice(among)
        try:
            reserved = bind_port(number, kind, alone=True)
        except OSError:
            continue
        try:
            bind_port(number, other_protocol(kind), alone=True).close()
        except OSError:
            reserved.close()
            continue
        # The owner may bind the port too: a copy of this socket may live on in a child process that is about to exec.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return reserved
    return bind_port(0, kind)


def bind_port(number: int, kind: socket.SocketKind = socket.SOCK_STREAM, *, alone: bool = False) -> socket.socket:
    """A bound socket that does not listen. Raises OSError when the port is taken.

    With `alone`, a port counts as taken also when remains of earlier connections or another socket that does not listen
    have it.
    """
    bound = socket.socket(socket.AF_INET, kind)
    try:
        if not alone:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((LOOPBACK, number))
        if number and not alone and kind == socket.SOCK_STREAM and not has_linux_features() and has_listener(number):
            # BSD and macOS allow this address beside a process that listens on all addresses.
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    except OSError:
        bound.close()
        raise
    return bound


def has_listener(number: int) -> bool:
    """Whether a process accepts connections on this port of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(CONNECT_SECONDS)
        return probe.connect_ex((LOOPBACK, number)) == 0


def other_protocol(kind: socket.SocketKind) -> socket.SocketKind:
    """UDP for TCP, and TCP for UDP."""
    return socket.SOCK_STREAM if kind == socket.SOCK_DGRAM else socket.SOCK_DGRAM

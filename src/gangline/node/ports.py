"""Ports of this machine that stay with whom they were given to.

They are below the range from which kernels serve outgoing connections and whoever asks for any port, so nobody gets
one of them by chance while its owner does not listen on it.
"""

import secrets
import socket

LOOPBACK = "127.0.0.1"
POD_PORTS, PLANE_PORTS = range(20000, 28000), range(28000, 30000)
MAX_TRIES = 500


def reserve_port(among: range, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    """A socket with a port that nobody has, in neither protocol. It does not listen. One of any range if these are taken."""
    for _ in range(MAX_TRIES):
        number = secrets.choice(among)
        try:
            found = bind_port(number, kind, alone=True)
        except OSError:
            continue
        try:
            bind_port(number, other_protocol(kind), alone=True).close()
        except OSError:
            found.close()
            continue
        # Whoever has it now lets its owner in: a copy of it may live on in a child that is about to be another program.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return found
    return bind_port(0, kind)


def bind_port(number: int, kind: socket.SocketKind = socket.SOCK_STREAM, *, alone: bool = False) -> socket.socket:
    """A socket that has a port and does not listen. Raises OSError when the port is taken.

    `alone`: also when what is left of earlier connections has it, or another socket that does not listen.
    """
    made = socket.socket(socket.AF_INET, kind)
    try:
        if not alone:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((LOOPBACK, number))
    except OSError:
        made.close()
        raise
    return made


def other_protocol(kind: socket.SocketKind) -> socket.SocketKind:
    """TCP's is UDP, and the other way round."""
    return socket.SOCK_STREAM if kind == socket.SOCK_DGRAM else socket.SOCK_DGRAM

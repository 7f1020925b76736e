"""The part of the shim that serves `attach`, for containers with an input or a terminal: see `shim.py`.

The shim gets its code with the `ShimSpec`, and only for such containers. It listens on a socket in the file system.
Frames in both directions have one byte for their kind, four for the length (big-endian), and data:

    to the client    1 output, 2 errors
    to the shim      0 input, 4 size of the terminal (columns and rows, two bytes each), 255 the input ends

Every client gets all output from now on. Nobody connected: output goes to the log only, and the program waits for input.
"""

# A bare interpreter: see `shim.py`.
# ruff: noqa: SIM105

import os
import select
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INPUT, RESIZE, CLOSE_INPUT = 0, 4, 255
HEADER_BYTES = 5
MAX_FRAME_BYTES = 2**20
MAX_PENDING_BYTES = 2**20
"""With more output that a client has not read, the program must wait; with more input, the client."""
CHUNK_BYTES = 65536
FLUSH_SECONDS = 2.0


def frame(kind: int, data: bytes) -> bytes:
    return bytes((kind,)) + len(data).to_bytes(4, "big") + data


def split_frames(data: bytes) -> "tuple[list[tuple[int, bytes]], bytes]":
    """The whole frames at the beginning of the data, and what follows them. ValueError: a frame is too long."""
    found = []
    while len(data) >= HEADER_BYTES:
        end = HEADER_BYTES + int.from_bytes(data[1:HEADER_BYTES], "big")
        if end > MAX_FRAME_BYTES:
            raise ValueError("a frame is too long")
        if len(data) < end:
            break
        found.append((data[0], data[HEADER_BYTES:end]))
        data = data[end:]
    return found, data


class AttachClient:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003
        self.connection, self.received, self.pending = connection, b"", b""
        self.has_input = False

    def frames(self) -> "list[tuple[int, bytes]] | None":
        """The frames that have arrived; None if the client has disconnected."""
        try:
            data = self.connection.recv(CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            return None
        try:
            found, self.received = split_frames(self.received + data)
        except ValueError:
            return None
        return found

    def flush(self) -> bool:
        """Send what is pending. False if the client has disconnected."""
        try:
            self.pending = self.pending[self.connection.send(self.pending) :]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class AttachServer:
    """All connections to one container."""

    def __init__(self, path: str, input_fd: int, *, tty: bool, once: bool) -> None:
        """`input_fd` is our end of the container's input, -1 if it has none; `once`: it ends with the first client."""
        self.tty, self.once, self.input_fd = tty, once, input_fd
        if input_fd >= 0:
            os.set_blocking(input_fd, False)
        self.input, self.input_ends = b"", False
        self.clients: list[AttachClient] = []
        self.listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        self.listener.bind(path)
        os.umask(before)
        self.listener.listen(16)
        self.listener.setblocking(False)  # noqa: FBT003

    @property
    def is_full(self) -> bool:
        """Whether a client must read before the program may write more."""
        return any(len(client.pending) > MAX_PENDING_BYTES for client in self.clients)

    def readers(self) -> "list[socket.socket]":
        return [self.listener] + [client.connection for client in self.clients if len(self.input) < MAX_PENDING_BYTES]

    def writers(self) -> "list[socket.socket | int]":
        waiting: list[socket.socket | int] = [client.connection for client in self.clients if client.pending]
        return waiting + ([self.input_fd] if self.input and self.input_fd >= 0 else [])

    def send(self, kind: int, data: bytes) -> None:
        """Send output to all clients."""
        if data:
            for client in self.clients:
                client.pending += frame(kind, data)
            self.flush([client.connection for client in self.clients])

    def handle(self, readable: "list[Any]", writable: "list[Any]") -> None:
        """Do what can be done now."""
        if self.listener in readable:
            try:
                self.clients.append(AttachClient(self.listener.accept()[0]))
            except OSError:
                pass
        for client in list(self.clients):
            if client.connection in readable:
                self.receive(client)
        self.flush(writable)
        self.write_input()

    def receive(self, client: AttachClient) -> None:
        frames = client.frames()
        if frames is None:
            self.drop(client)
            return
        for kind, data in frames:
            client.has_input = True
            if kind == INPUT:
                self.input += data
            elif kind == CLOSE_INPUT:
                self.end_input()
            elif kind == RESIZE and self.tty and len(data) == 4:
                self.resize(int.from_bytes(data[:2], "big"), int.from_bytes(data[2:], "big"))

    def resize(self, columns: int, rows: int) -> None:
        import fcntl
        import termios

        size = b"".join(number.to_bytes(2, sys.byteorder) for number in (rows, columns, 0, 0))
        try:
            fcntl.ioctl(self.input_fd, termios.TIOCSWINSZ, size)
        except OSError:
            pass

    def drop(self, client: AttachClient) -> None:
        client.connection.close()
        self.clients.remove(client)
        if self.once and client.has_input:
            self.end_input()

    def end_input(self) -> None:
        if self.tty:
            self.input += b"\x04"
        else:
            self.input_ends = True

    def write_input(self) -> None:
        if self.input_fd < 0:
            self.input = b""
            return
        try:
            while self.input:
                self.input = self.input[os.write(self.input_fd, self.input) :]
        except BlockingIOError:
            return
        except OSError:
            self.input, self.input_ends = b"", True  # the program has closed its input
        if self.input_ends:
            os.close(self.input_fd)
            self.input_fd = -1

    def flush(self, writable: "list[Any]") -> None:
        for client in list(self.clients):
            if client.connection in writable and client.pending and not client.flush():
                self.drop(client)

    def close(self) -> None:
        """Send the rest to clients that read it, and end all connections."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while waiting := [client.connection for client in self.clients if client.pending]:
            writable = select.select((), waiting, (), max(deadline - time.monotonic(), 0))[1]
            if not writable:
                break
            self.flush(writable)
        for client in self.clients:
            client.connection.close()
        self.listener.close()

"""Runs a command line in another pod: what `mpirun` starts in place of `ssh`.

::

    agent.py [OPTION...] [--container NAME] POD WORD...

Options before the pod's name are not for us and are skipped (Hydra gives `-x`). The words, joined by spaces, are a
command line for `/bin/sh` in the pod; standard input, output and error are forwarded, and its exit code is ours. The
command ends when the agent does. A pod that has yet to start is waited for.

`mpirun` starts one of these per host, so it is a script for a bare interpreter, and imports little.
`GANGLINE_KUBECONFIG` names a kubeconfig, written as JSON: server, CA, token, namespace.
"""

# pathlib and contextlib are slow to import, and a bare interpreter has no Clock.
# ruff: noqa: PTH123

import json
import os
import select
import socket
import sys
import time
from binascii import b2a_base64

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
OP_CONTINUATION, OP_TEXT, OP_BINARY, OP_CLOSE, OP_PING, OP_PONG = 0, 1, 2, 8, 9, 10
CHUNK_BYTES = 32 * 1024
MAX_UNSENT_BYTES = 2**20
"""While so much waits to be sent, no more input is read."""
START_TIMEOUT, NOT_FOUND_TIMEOUT, POLL_SECONDS = 600.0, 30.0, 0.1
"""Seconds to wait for a pod that has yet to start, for one that does not exist yet, and between two looks."""
LINE_HOLD_SECONDS = 0.1
"""For so many seconds the beginning of a line waits for its end."""


class AgentError(Exception):
    """What went wrong, in one line."""


class AgentKubeconfig:
    """Where to ask, and as whom."""

    def __init__(self, config: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        cluster = config["clusters"][0]["cluster"]
        self.scheme, _, self.authority = cluster["server"].partition("://")
        host, _, port = self.authority.rpartition(":")
        self.address = (host.strip("[]"), int(port))
        self.ca = cluster.get("certificate-authority")
        self.token = config["users"][0]["user"]["token"]
        self.namespace = config["contexts"][0]["context"].get("namespace", "default")

    def connect(self) -> socket.socket:
        try:
            plain = socket.create_connection(self.address)
        except OSError as error:
            raise AgentError(f"{self.authority}: {error.strerror or error}") from error
        if self.scheme != "https":
            return plain
        import ssl  # slow, and needless without TLS

        return ssl.create_default_context(cafile=self.ca).wrap_socket(plain, server_hostname=self.address[0])

    def request_head(self, path: str, *lines: str) -> bytes:
        common = (f"GET {path} HTTP/1.1", f"Host: {self.authority}", f"Authorization: Bearer {self.token}")
        return "\r\n".join((*common, "User-Agent: gangline-agent", *lines, "", "")).encode()


class ExecRequest:
    """The command line, taken apart."""

    def __init__(self, words: list[str]) -> None:
        self.container = ""
        while words and words[0].startswith("-"):
            option, words = words[0], words[1:]
            if option == "--container" and words:
                self.container, words = words[0], words[1:]
        if len(words) < 2:
            raise AgentError("usage: agent [--container NAME] POD COMMAND...")
        self.pod, self.script = words[0], " ".join(words[1:])

    def path(self, namespace: str) -> str:
        return f"/api/v1/namespaces/{namespace}/pods/{percent_encoded(self.pod)}"

    def query(self) -> str:
        pairs = [("command", "/bin/sh"), ("command", "-c"), ("command", self.script)]
        pairs += [(name, "true") for name in ("stdin", "stdout", "stderr")]
        pairs += [("container", self.container)]
        return "&".join(f"{name}={percent_encoded(value)}" for name, value in pairs)


def percent_encoded(text: str) -> str:
    """For an address; all bytes but letters and digits."""
    return "".join(chr(each) if chr(each).isalnum() and each < 128 else f"%{each:02X}" for each in os.fsencode(text))


# The pod


def http_get(place: AgentKubeconfig, path: str) -> tuple[int, bytes]:
    """The status and the body of a request."""
    data = b""
    with place.connect() as connection:
        connection.sendall(place.request_head(path, "Accept: application/json", "Connection: close"))
        while piece := connection.recv(CHUNK_BYTES):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def is_running(place: AgentKubeconfig, asked: ExecRequest) -> bool:
    """Whether the pod's container is at work. Chooses the container, if none was named. Raises `AgentError`."""
    status, body = http_get(place, asked.path(place.namespace))
    if status == 404:
        return False
    if status != 200:
        raise AgentError(f"pod {asked.pod}: the server answers {status}: {body.decode(errors='replace')}")
    pod = json.loads(body)
    asked.container = asked.container or default_container(pod)
    phase = pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp"):
        raise AgentError(f"pod {asked.pod} is over ({phase})")
    states = pod.get("status", {}).get("containerStatuses", [])
    return any(each["name"] == asked.container and "running" in each.get("state", {}) for each in states)


def default_container(pod: dict[str, dict[str, object]]) -> str:
    """The container that is meant when none is named, as kubectl has it."""
    notes, containers = pod["metadata"].get("annotations", {}), pod["spec"]["containers"]
    assert isinstance(notes, dict)
    assert isinstance(containers, list)
    return str(notes.get("kubectl.kubernetes.io/default-container") or containers[0]["name"])


def open_exec(place: AgentKubeconfig, asked: ExecRequest) -> "FrameConnection":
    """A command at work in the pod. Waits until the pod can be asked. Raises `AgentError`."""
    begun = time.monotonic()
    while True:
        problem = "does not exist, or its container does not run"
        if is_running(place, asked):
            wire, problem = try_handshake(place, asked)
            if wire is not None:
                return wire
        waited = time.monotonic() - begun
        if waited > (START_TIMEOUT if asked.container else NOT_FOUND_TIMEOUT):
            raise AgentError(f"pod {asked.pod} {problem}")
        time.sleep(POLL_SECONDS)


def try_handshake(place: AgentKubeconfig, asked: ExecRequest) -> tuple["FrameConnection | None", str]:
    """The connection, or why there is none (yet)."""
    connection = place.connect()
    connection.sendall(
        place.request_head(
            f"{asked.path(place.namespace)}/exec?{asked.query()}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {b2a_base64(os.urandom(16), newline=False).decode()}",
            "Sec-WebSocket-Protocol: v5.channel.k8s.io",
        )
    )
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(CHUNK_BYTES)
        if not piece:
            raise AgentError(f"pod {asked.pod}: the server closed the connection")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if status == 101:
        return FrameConnection(connection, rest), ""
    connection.close()
    if status != 500:
        raise AgentError(f"pod {asked.pod}: the server answers {status}: {rest.decode(errors='replace')}")
    return None, f"cannot be entered: {rest.decode(errors='replace')}"


# The conversation


class FrameConnection:
    """Frames, in both directions, without ever waiting."""

    def __init__(self, connection: socket.socket, received: bytes) -> None:
        connection.setblocking(False)  # noqa: FBT003
        self.connection, self.incoming = connection, bytearray(received)
        self.outgoing = bytearray()
        self.fragment = b""

    def queue(self, channel: int, data: bytes) -> None:
        self.queue_frame(OP_BINARY, bytes((channel,)) + data)

    def queue_frame(self, code: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            length = bytes((0x80 | size,))
        elif size < 2**16:
            length = bytes((0x80 | 126,)) + size.to_bytes(2, "big")
        else:
            length = bytes((0x80 | 127,)) + size.to_bytes(8, "big")
        # The mask is there for proxies that mistake frames for requests; here there is none. It must be a mask.
        self.outgoing += bytes((0x80 | code,)) + length + b"\0\0\0\0" + data

    def flush(self) -> None:
        """Send what can be sent now."""
        while self.outgoing:
            try:
                done = self.connection.send(self.outgoing)
            except OSError as error:
                if not would_block(error):
                    raise
                return
            del self.outgoing[:done]

    def receive(self) -> bool:
        """Take what has come. False at the end."""
        while True:
            try:
                data = self.connection.recv(CHUNK_BYTES)
            except OSError as error:
                if not would_block(error):
                    raise
                return True
            if not data:
                return False
            self.incoming += data

    def messages(self) -> list[bytes]:
        """The messages that are complete: a byte of channel, then data."""
        found = []
        while (cut := self.next_frame()) is not None:
            first, data = cut
            code = first & 15
            if code == OP_PING:
                self.queue_frame(OP_PONG, data)
            elif code in (OP_BINARY, OP_TEXT, OP_CONTINUATION):
                self.fragment += data
                if first & 0x80:
                    found.append(self.fragment)
                    self.fragment = b""
        return found

    def next_frame(self) -> tuple[int, bytes] | None:
        """One frame off what was received, if it is all there."""
        buffer = self.incoming
        if len(buffer) < 2:
            return None
        size, at = buffer[1] & 127, 2
        if size > 125:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
        if len(buffer) < at + size:
            return None
        first, data = buffer[0], bytes(buffer[at : at + size])
        del buffer[: at + size]
        return first, data


def would_block(error: OSError) -> bool:
    """Whether an error says only that nothing can be done now. TLS has its own two."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in (
        "SSLWantReadError",
        "SSLWantWriteError",
    )


class LineWriter:
    """One of our outputs. Agents of several pods share it, so a line is written whole if it can be."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.partial, self.flush_at = descriptor, b"", 0.0

    def feed(self, data: bytes) -> None:
        """Write whole lines; hold what begins another."""
        lines, newline, rest = (self.partial + data).rpartition(b"\n")
        if newline or not self.partial:
            self.flush_at = time.monotonic() + LINE_HOLD_SECONDS
        self.partial = rest
        self.write(lines + newline)
        if len(rest) > CHUNK_BYTES:
            self.flush()

    def flush_delay(self) -> "float | None":
        """Seconds until what is held must go, whole or not."""
        return max(0.0, self.flush_at - time.monotonic()) if self.partial else None

    def flush(self) -> None:
        held, self.partial = self.partial, b""
        self.write(held)

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.descriptor, data) :]


def run_session(wire: FrameConnection) -> int:
    """Forward until the command has ended. Gives its exit code. Raises `AgentError` if the connection breaks first."""
    outlets = {channel: LineWriter(channel) for channel in (STDOUT, STDERR)}
    try:
        return forward_streams(wire, outlets)
    finally:
        for outlet in outlets.values():
            outlet.flush()


def forward_streams(wire: FrameConnection, outlets: "dict[int, LineWriter]", source: int = 0) -> int:
    """The same, from and to whatever it is given."""
    reads = True
    while True:
        wire.flush()
        watched = [wire.connection] + ([source] if reads and len(wire.outgoing) < MAX_UNSENT_BYTES else [])
        waits = min((left for each in outlets.values() if (left := each.flush_delay()) is not None), default=None)
        ready = select.select(watched, [wire.connection] if wire.outgoing else [], [], waits)[0]
        if source in ready:
            data = os.read(source, CHUNK_BYTES)
            reads = bool(data)
            wire.queue(*((STDIN, data) if data else (CLOSE, bytes((STDIN,)))))
        # Also when only sending was possible: TLS may hold data that a socket does not show.
        open_ = wire.receive()
        for message in wire.messages():
            if message[:1] == bytes((ERROR,)):
                return exit_code(message[1:])
            if message[0] in outlets:
                outlets[message[0]].feed(message[1:])
        for outlet in outlets.values():
            if outlet.flush_delay() == 0:
                outlet.flush()
        if not open_:
            raise AgentError("the connection to the pod broke")


def exit_code(status: bytes) -> int:
    """The exit code that a Status tells."""
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0
    causes = told.get("details", {}).get("causes", [])
    code = next((each["message"] for each in causes if each.get("reason") == "ExitCode"), None)
    if code is None:
        raise AgentError(str(told.get("message", "the command failed")))
    return int(code)


def main(words: list[str]) -> int:
    try:
        asked = ExecRequest(words)
        try:
            with open(os.environ["GANGLINE_KUBECONFIG"], encoding="utf-8") as file:
                place = AgentKubeconfig(json.load(file))
        except (KeyError, OSError) as error:
            raise AgentError(f"GANGLINE_KUBECONFIG does not lead to a plane: {error}") from error
        wire = open_exec(place, asked)
        with wire.connection:
            return run_session(wire)
    except (AgentError, OSError) as error:
        sys.stderr.write(f"agent: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs a command line in another pod: `mpirun` starts it in kubeconfig of `ssh`.

::

    mpi_agent.py [OPTION...] [--container NAME] POD WORD...

Other options before the pod's name, which are meant for ssh, are skipped (Hydra passes `-x`). The words, joined by
spaces, are a command line for `/bin/sh` in the pod; standard input, output and error are forwarded, and the agent exits
with its exit code. The command ends when the agent does. The agent waits for a pod that has not started yet.

`mpirun` starts one agent per host, so it is a script for a bare interpreter, and imports little.
`GANGLINE_KUBECONFIG` names a kubeconfig in JSON: server, CA, token or token file, namespace.
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
OP_CONTINUATION, OP_TEXT, OP_BINARY, OP_PING, OP_PONG = 0, 1, 2, 9, 10
CHUNK_BYTES = 32 * 1024
MAX_UNSENT_BYTES = 2**20
"""While this much is unsent, no more input is read."""
START_TIMEOUT, NOT_FOUND_TIMEOUT, POLL_SECONDS = 600.0, 30.0, 0.1
"""Seconds to wait for a pod that has not started, for a pod that does not exist, and between two polls."""
LINE_HOLD_SECONDS = 0.1
"""How long an incomplete line waits for its end."""


class AgentError(Exception):
    """The agent cannot run the command. The message is one line."""


class AgentKubeconfig:
    """Server, CA, token and namespace of the kubeconfig."""

    def __init__(self, config: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        cluster = config["clusters"][0]["cluster"]
        self.scheme, _, self.authority = cluster["server"].partition("://")
        host, _, port = self.authority.rpartition(":")
        self.address = (host.strip("[]"), int(port))
        self.ca = cluster.get("certificate-authority")
        self.token = read_token(config["users"][0]["user"])
        self.namespace = config["contexts"][0]["context"].get("namespace", "default")

    def connect(self) -> socket.socket:
        try:
            plain = socket.create_connection(self.address)
        except OSError as error:
            raise AgentError(f"{self.authority}: {error.strerror or error}") from error
        if self.scheme != "https":
            return plain
        import ssl  # slow to import, and not needed without TLS

        return ssl.create_default_context(cafile=self.ca).wrap_socket(plain, server_hostname=self.address[0])

    def request_head(self, path: str, *lines: str) -> bytes:
        common = (f"GET {path} HTTP/1.1", f"Host: {self.authority}", f"Authorization: Bearer {self.token}")
        return "\r\n".join((*common, "User-Agent: gangline-agent", *lines, "", "")).encode()


def read_token(user: dict[str, str]) -> str:
    """The token of the kubeconfig's user. Raises `AgentError` if there is none."""
    if "tokenFile" not in user:
        if "token" not in user:
            raise AgentError("the pod has no token (automountServiceAccountToken is false)")
        return user["token"]
    with open(user["tokenFile"], encoding="utf-8") as file:
        return file.read().strip()


class ExecRequest:
    """The parsed command line."""

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
    """The text for a URL: all bytes but ASCII letters and digits are escaped."""
    return "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"%{byte:02X}" for byte in os.fsencode(text))


# The pod


def http_get(kubeconfig: AgentKubeconfig, path: str) -> tuple[int, bytes]:
    """Status and body of the response to a GET request."""
    data = b""
    with kubeconfig.connect() as connection:
        connection.sendall(kubeconfig.request_head(path, "Accept: application/json", "Connection: close"))
        while chunk := connection.recv(CHUNK_BYTES):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def is_running(kubeconfig: AgentKubeconfig, request: ExecRequest) -> bool:
    """Whether the pod's container runs. Sets the request's container if it names none. Raises `AgentError`."""
    code, body = http_get(kubeconfig, request.path(kubeconfig.namespace))
    if code == 404:
        return False
    if code != 200:
        raise AgentError(f"pod {request.pod}: the server answers {code}: {body.decode(errors='replace')}")
    pod = json.loads(body)
    request.container = request.container or default_container(pod)
    phase = pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp"):
        raise AgentError(f"pod {request.pod} is over ({phase})")
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return any(status["name"] == request.container and "running" in status.get("state", {}) for status in statuses)


def default_container(pod: dict[str, dict[str, object]]) -> str:
    """The container for a request that names none, as kubectl selects it."""
    annotations, containers = pod["metadata"].get("annotations", {}), pod["spec"]["containers"]
    assert isinstance(annotations, dict)
    assert isinstance(containers, list)
    return str(annotations.get("kubectl.kubernetes.io/default-container") or containers[0]["name"])


def open_exec(kubeconfig: AgentKubeconfig, request: ExecRequest) -> "FrameConnection":
    """The connection to a command that runs in the pod. Waits for the pod to start. Raises `AgentError`."""
    started_at = time.monotonic()
    while True:
        problem = "does not exist, or its container does not run"
        if is_running(kubeconfig, request):
            connection, problem = try_handshake(kubeconfig, request)
            if connection is not None:
                return connection
        waited = time.monotonic() - started_at
        if waited > (START_TIMEOUT if request.container else NOT_FOUND_TIMEOUT):
            raise AgentError(f"pod {request.pod} {problem}")
        time.sleep(POLL_SECONDS)


def try_handshake(kubeconfig: AgentKubeconfig, request: ExecRequest) -> tuple["FrameConnection | None", str]:
    """The connection, or why there is none yet. Raises `AgentError` if a retry would not help."""
    connection = kubeconfig.connect()
    connection.sendall(
        kubeconfig.request_head(
            f"{request.path(kubeconfig.namespace)}/exec?{request.query()}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {b2a_base64(os.urandom(16), newline=False).decode()}",
            "Sec-WebSocket-Protocol: v5.channel.k8s.io",
        )
    )
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(CHUNK_BYTES)
        if not chunk:
            raise AgentError(f"pod {request.pod}: the server closed the connection")
        data += chunk
    head, _, rest = data.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if status == 101:
        return FrameConnection(connection, rest), ""
    connection.close()
    if status != 500:
        raise AgentError(f"pod {request.pod}: the server answers {status}: {rest.decode(errors='replace')}")
    return None, f"cannot be entered: {rest.decode(errors='replace')}"


# The stream


class FrameConnection:
    """WebSocket frames in both directions, without blocking."""

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
        # The protocol requires a mask, against proxies that mistake frames for requests. There is none here: zeros do.
        self.outgoing += bytes((0x80 | code,)) + length + b"\0\0\0\0" + data

    def flush(self) -> None:
        """Send what the socket accepts now."""
        while self.outgoing:
            try:
                sent = self.connection.send(self.outgoing)
            except OSError as error:
                if not would_block(error):
                    raise
                return
            del self.outgoing[:sent]

    def receive(self) -> bool:
        """Read the available data. False at the end of the connection."""
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
        """The complete messages: a channel byte, then data."""
        complete = []
        while (frame := self.next_frame()) is not None:
            first, data = frame
            code = first & 15
            if code == OP_PING:
                self.queue_frame(OP_PONG, data)
            elif code in (OP_BINARY, OP_TEXT, OP_CONTINUATION):
                self.fragment += data
                if first & 0x80:
                    complete.append(self.fragment)
                    self.fragment = b""
        return complete

    def next_frame(self) -> tuple[int, bytes] | None:
        """The next frame of the received data: first byte and payload; None while it is incomplete."""
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
    """Whether an error only means that the operation would block. TLS has two errors of its own for that."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


class LineWriter:
    """An output of the agent. Agents of several pods share it, so lines are written complete where possible."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.partial, self.flush_at = descriptor, b"", 0.0

    def feed(self, data: bytes) -> None:
        """Write complete lines; hold an incomplete one."""
        lines, newline, rest = (self.partial + data).rpartition(b"\n")
        if newline or not self.partial:
            self.flush_at = time.monotonic() + LINE_HOLD_SECONDS
        self.partial = rest
        self.write(lines + newline)
        if len(rest) > CHUNK_BYTES:
            self.flush()

    def flush_delay(self) -> "float | None":
        """Seconds until the incomplete line must be written; None if there is none."""
        return max(0.0, self.flush_at - time.monotonic()) if self.partial else None

    def flush(self) -> None:
        partial, self.partial = self.partial, b""
        self.write(partial)

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.descriptor, data) :]


def run_session(stream: FrameConnection) -> int:
    """Forward until the command ends. Returns its exit code. Raises `AgentError` if the connection breaks first."""
    outlets = {channel: LineWriter(channel) for channel in (STDOUT, STDERR)}
    try:
        return forward_streams(stream, outlets)
    finally:
        for outlet in outlets.values():
            outlet.flush()


def forward_streams(stream: FrameConnection, outlets: "dict[int, LineWriter]", source: int = 0) -> int:
    """Forward `source` to the command and its outputs to `outlets`. Returns and raises as `run_session`."""
    source_open = True
    while True:
        stream.flush()
        watched = [stream.connection] + ([source] if source_open and len(stream.outgoing) < MAX_UNSENT_BYTES else [])
        delays = (outlet.flush_delay() for outlet in outlets.values())
        timeout = min((delay for delay in delays if delay is not None), default=None)
        ready = select.select(watched, [stream.connection] if stream.outgoing else [], [], timeout)[0]
        if source in ready:
            data = os.read(source, CHUNK_BYTES)
            source_open = bool(data)
            stream.queue(*((STDIN, data) if data else (CLOSE, bytes((STDIN,)))))
        # Also when only sending was possible: TLS may hold data that `select` does not report.
        connected = stream.receive()
        for message in stream.messages():
            if message[:1] == bytes((ERROR,)):
                return exit_code(message[1:])
            if message[0] in outlets:
                outlets[message[0]].feed(message[1:])
        for outlet in outlets.values():
            if outlet.flush_delay() == 0:
                outlet.flush()
        if not connected:
            raise AgentError("the connection to the pod broke")


def exit_code(status: bytes) -> int:
    """The exit code in a Status object. Raises `AgentError` for a failure without one."""
    result = json.loads(status)
    if result.get("status") == "Success":
        return 0
    causes = result.get("details", {}).get("causes", [])
    code = next((cause["message"] for cause in causes if cause.get("reason") == "ExitCode"), None)
    if code is None:
        raise AgentError(str(result.get("message", "the command failed")))
    return int(code)


def main(words: list[str]) -> int:
    try:
        request = ExecRequest(words)
        try:
            with open(os.environ["GANGLINE_KUBECONFIG"], encoding="utf-8") as file:
                kubeconfig = AgentKubeconfig(json.load(file))
        except (KeyError, OSError) as error:
            raise AgentError(f"GANGLINE_KUBECONFIG does not lead to a plane: {error}") from error
        stream = open_exec(kubeconfig, request)
        with stream.connection:
            return run_session(stream)
    except (AgentError, OSError) as error:
        sys.stderr.write(f"agent: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

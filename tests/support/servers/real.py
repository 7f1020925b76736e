"""A real etcd and kube-apiserver on loopback, for contract tests and benches.

Plain blocking code on purpose: it is the yardstick our asynchronous client is held against, so it uses
none of gangline. `hack/kubernetes.sh` builds the binaries.
"""

import base64
import itertools
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

KUBERNETES_VERSION = "1.34.4"  # as in hack/kubernetes.sh
REQUIRED_BINARIES = ("kube-apiserver", "etcd")
HOST = "127.0.0.1"
START_TIMEOUT = 90.0  # seconds; three or four are usual, busy cores may need many more

# User name to groups; a user's token is its name and "-token".
USERS: Mapping[str, Sequence[str]] = MappingProxyType({"admin": ("system:masters",), "nobody": ()})

# The controllers that would evict pods from nodes without a kubelet are off: tests make such nodes.
CONTROLLERS = "*,-node-lifecycle-controller,-taint-eviction-controller"

# Runs a command that the kernel kills when we die, however we die. A preexec_fn would do the same, but is not
# safe once there are threads, and Python 3.12 warns about it.
_TIED_TO_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ApiServer(Protocol):
    """An API server as its administrator sees it: a real one, or ours."""

    @property
    def kubeconfig(self) -> Path: ...

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> "RealAnswer":
        """One request, whatever its status."""


class StandaloneServer(ApiServer, Protocol):
    """An API server in processes of its own, with its address and its administrator's token."""

    @property
    def url(self) -> str: ...

    @property
    def token(self) -> str: ...

    @property
    def ca(self) -> Path: ...


class RealServerError(Exception):
    """The server did not come up. Carries the end of the log that should say why."""


class RealAnswer(NamedTuple):
    """Status code and decoded body; the body stays text where it is not JSON."""

    status: int
    body: Any


def cache_dir() -> Path:
    """Where hack/kubernetes.sh puts what it builds."""
    home = os.environ.get("GANGLINE_CACHE")
    if not home:
        base = os.environ.get("XDG_CACHE_HOME")
        home = str((Path(base) if base else Path.home() / ".cache") / "gangline")
    return Path(home).absolute() / "kubernetes" / os.environ.get("KUBERNETES_VERSION", KUBERNETES_VERSION)


def find_assets() -> Path | None:
    """The folder with kube-apiserver and etcd: KUBEBUILDER_ASSETS, else our cache, else None."""
    chosen = os.environ.get("KUBEBUILDER_ASSETS")
    places = [Path(chosen).absolute()] if chosen else []
    for place in [*places, cache_dir()]:
        if all((place / name).is_file() and os.access(place / name, os.X_OK) for name in REQUIRED_BINARIES):
            return place
    return None


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, none given twice.

    They are below the range from which the kernel serves outgoing connections. So none is taken by chance
    while the API server is down, and a client that retries cannot connect to itself. And they are above what
    `gangline.node.ports` gives out; every worker of pytest has some of its own.
    """
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    return found


def _port_cycle() -> Iterator[int]:
    among = _PORT_SHARES[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % len(_PORT_SHARES)]
    began = random.randrange(len(among))
    return itertools.cycle((*among[began:], *among[:began]))


_PORT_SHARES = [range(first, first + 500) for first in range(30000, 32500, 500)]
_PORTS = _port_cycle()


def _is_stopped(task: Path) -> bool:
    """Whether a thread, a folder in /proc, is paused."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except FileNotFoundError:
        return True


class LoggedProcess:
    """One program in a process group of its own, its output in a log file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start it; `env` comes on top of our own environment."""
        self.name = Path(command[0]).name
        self._log = log
        tie = [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid())]
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [*(tie if sys.platform == "linux" else []), *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child.poll() is None

    @property
    def exit_code(self) -> int:
        """The exit code of a program that has ended; negative, the signal that ended it."""
        assert self._child.returncode is not None
        return self._child.returncode

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self._child.pid, number)

    def kill(self) -> None:
        """End it at once, stopped or not. Does nothing when it has ended before."""
        if self.is_running:
            self.signal(signal.SIGKILL)
            self._child.wait()

    def wait_until_ended(self) -> None:
        """Return when it has ended. Raises subprocess.TimeoutExpired when it does not."""
        self._child.wait(START_TIMEOUT)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Poll until ready. Raises RealServerError with the log's tail when the program ends or is too slow."""
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            if not self.is_running:
                raise RealServerError(f"{self.name} ended with {self._child.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise RealServerError(f"{self.name} is not ready after {START_TIMEOUT:.0f} s:\n{self.log_tail()}")
            time.sleep(0.02)

    def log_tail(self, lines: int = 20) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


class RealServer:
    """etcd, kube-apiserver and, where asked for and built, kube-controller-manager.

    A context manager; `start` and `stop` are for fixtures. `stop` may be called at any time, also twice.
    Call `start` from a thread that outlives the server: its processes are killed when that thread ends.

    Service account admission is off, so pods can be made with no controller manager around.
    """

    def __init__(
        self,
        assets: Path | None = None,
        *,
        directory: Path | None = None,
        flags: Sequence[str] = (),
        users: Mapping[str, Sequence[str]] = USERS,
        controller_manager: bool = False,
        durable: bool = False,
    ) -> None:
        """Take the binaries from `assets`, by default from `find_assets()`; raises RealServerError without any.

        A `directory` given by the caller keeps its logs after `stop`; by default a temporary one is removed.
        `durable` lets etcd sync to the disk, as it does in production; tests are quicker without.
        """
        found = assets or find_assets()
        if found is None:
            raise RealServerError("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
        self._assets = found
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="gangline-real-"))
        self._flags, self._users, self._durable = tuple(flags), dict(users), durable
        self.has_controller_manager = controller_manager and (found / "kube-controller-manager").exists()
        self._port, self._etcd_port, self._peer_port, self._manager_port = free_ports(4)
        self._processes: dict[str, LoggedProcess] = {}
        self.startup_seconds = 0.0  # from the start of etcd until the API server is ready
        self.url = f"https://{HOST}:{self._port}"
        self.token = "admin-token"
        self.ca = self.directory / "ca.crt"
        self.ca_key = self.directory / "ca.key"
        self.kubeconfig = self.directory / "kubeconfig"
        self.client_certificate = self.directory / "client.crt"  # a second way in, also as system:masters
        self.client_key = self.directory / "client.key"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when the server is ready and its namespaces are there. Raises RealServerError; nothing is left then."""
        try:
            self._write_files()
            began = time.monotonic()
            self._run("etcd", self._etcd_command()).wait_until(self._etcd_ready)
            self._start_apiserver()
            self.startup_seconds = time.monotonic() - began
            if self.has_controller_manager:
                self.start_controller_manager()
        except BaseException:
            self.stop()
            raise

    def start_controller_manager(self) -> None:
        """Return when it is ready. It collects the garbage of kinds that are served now; of later ones in half a minute."""
        self._run("kube-controller-manager", self._manager_command()).wait_until(self._manager_ready)

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run, by program."""
        return {name: process.pid for name, process in self._processes.items()}

    def stop(self) -> None:
        """Kill everything and remove the data."""
        for process in reversed(self._processes.values()):
            process.kill()
        self._processes.clear()
        shutil.rmtree(self.directory if self._own_directory else self.directory / "etcd", ignore_errors=True)

    def kill_apiserver(self) -> None:
        """Kill the API server by SIGKILL, as a crash would: connections break."""
        self._processes["kube-apiserver"].kill()

    def restart_apiserver(self) -> None:
        """Kill it where it runs and return when it answers again, on the same port with the same data."""
        self.kill_apiserver()
        self._start_apiserver()

    def suspend(self) -> None:
        """Pause the API server: connections stay open and nothing answers. Undone by `resume`."""
        server = self._processes["kube-apiserver"]
        server.signal(signal.SIGSTOP)
        # On a busy machine a thread may still answer a request meanwhile.
        server.wait_until(lambda: all(_is_stopped(task) for task in Path(f"/proc/{server.pid}/task").iterdir()))

    def resume(self) -> None:
        self._processes["kube-apiserver"].signal(signal.SIGCONT)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """`suspend`, and `resume` whatever happens meanwhile."""
        self.suspend()
        try:
            yield
        finally:
            self.resume()

    def revive(self) -> None:
        """Undo what a failed test left behind: resume or start the API server. Quick when it is well."""
        apiserver = self._processes["kube-apiserver"]
        if apiserver.is_running:
            self.resume()
            apiserver.wait_until(self._apiserver_ready)
        else:
            self._start_apiserver()

    def compact(self) -> int:
        """Drop etcd's history up to now and return the revision. Lists and watches from before it are gone for etcd.

        The API server may still serve such a watch from its own cache of recent events: `expire_watches` drops that too.
        """
        revision = int(self._etcd("/v3/kv/range", {"key": base64.b64encode(b"/").decode()})["header"]["revision"])
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        return revision

    def expire_watches(self) -> int:
        """Compact and restart the API server. A watch from any older resourceVersion then ends with 410 Gone."""
        self.kill_apiserver()
        revision = self.compact()
        self._start_apiserver()
        return revision

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> RealAnswer:
        """One request, whatever its status. Raises OSError (TimeoutError, ConnectionRefusedError) when there is no answer."""
        return read_answer(
            lambda: self.open(method, path, body, token=token, content_type=content_type, timeout=timeout)
        )

    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> HTTPResponse:
        """The response as a stream, for watches; the caller closes it. Raises HTTPError for a status of 400 or more."""
        return open_request(self, method, path, body, token=token, content_type=content_type, timeout=timeout)

    def _start_apiserver(self) -> None:
        self._run("kube-apiserver", self._apiserver_command()).wait_until(self._apiserver_ready)

    def _run(self, name: str, arguments: Sequence[str]) -> LoggedProcess:
        # Memory is cheaper here than the time to collect garbage: a sixth of it all, unless it was asked for otherwise.
        collect = {} if self._durable else {"GOGC": os.environ.get("GOGC", "400")}
        process = LoggedProcess([str(self._assets / name), *arguments], self.directory / f"{name}.log", collect)
        self._processes[name] = process
        return process

    def _etcd_command(self) -> list[str]:
        client, peer = f"http://{HOST}:{self._etcd_port}", f"http://{HOST}:{self._peer_port}"
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            *([] if self._durable else ["--unsafe-no-fsync"]),  # the data does not outlive us
            "--heartbeat-interval=20",  # it is alone: it may elect itself without waiting a second
            "--election-timeout=100",
        ]

    def _apiserver_command(self) -> list[str]:
        place = self.directory
        return [
            f"--etcd-servers=http://{HOST}:{self._etcd_port}",
            f"--secure-port={self._port}",
            f"--bind-address={HOST}",
            # Else it looks for a default route, which a machine without a network lacks.
            f"--advertise-address={HOST}",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={place / 'server.crt'}",
            f"--tls-private-key-file={place / 'server.key'}",
            f"--client-ca-file={self.ca}",
            f"--token-auth-file={place / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={place / 'sa.key'}",
            f"--service-account-signing-key-file={place / 'sa.key'}",
            "--disable-admission-plugins=ServiceAccount",
            *self._flags,
        ]

    def _manager_command(self) -> list[str]:
        place = self.directory
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--bind-address={HOST}",
            f"--secure-port={self._manager_port}",
            f"--tls-cert-file={place / 'server.crt'}",
            f"--tls-private-key-file={place / 'server.key'}",
            f"--service-account-private-key-file={place / 'sa.key'}",
            f"--root-ca-file={self.ca}",
            f"--controllers={CONTROLLERS}",
        ]

    def _etcd_ready(self) -> bool:
        return _responds(f"http://{HOST}:{self._etcd_port}/readyz")

    def _apiserver_ready(self) -> bool:
        try:
            # Ready does not mean that the namespaces are there, and the first test may need one.
            return all(self.call("GET", path).status == 200 for path in ("/readyz", "/api/v1/namespaces/default"))
        except (OSError, HTTPException):
            return False

    def _manager_ready(self) -> bool:
        context = ssl.create_default_context(cafile=self.ca)
        return _responds(f"https://{HOST}:{self._manager_port}/healthz", context)

    def _etcd(self, path: str, body: object) -> Any:
        url = f"http://{HOST}:{self._etcd_port}{path}"
        with _open(urllib.request.Request(url, data=json.dumps(body).encode()), 30.0) as response:
            return json.load(response)

    def _write_files(self) -> None:
        place = self.directory
        place.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.ca)
        authority.private_key_pem.write_to_path(self.ca_key)
        server = authority.issue_cert(HOST, "localhost", "kubernetes.default.svc")
        server.private_key_pem.write_to_path(place / "server.key")
        for index, blob in enumerate(server.cert_chain_pems):
            blob.write_to_path(place / "server.crt", append=index > 0)
        # A name to be valid for, though nobody asks a client for it: Go refuses an empty list of names.
        client = authority.issue_cert("certified", common_name="certified", organization_name="system:masters")
        client.private_key_pem.write_to_path(self.client_key)
        client.cert_chain_pems[0].write_to_path(self.client_certificate)
        (place / "sa.key").write_bytes(_service_account_key())
        (place / "tokens.csv").write_text(self._token_file())
        self.kubeconfig.write_text(json.dumps(self._kubeconfig(), indent=2))

    def _token_file(self) -> str:
        """Token, user, uid and groups; a user without groups must not have the column, else it is in group ""."""
        lines = []
        for user, groups in self._users.items():
            column = f',"{",".join(groups)}"' if groups else ""
            lines.append(f"{user}-token,{user},{user}-uid{column}\n")
        return "".join(lines)

    def _kubeconfig(self) -> dict[str, Any]:
        """One context per user, named after it, and "certified" for the certificate. JSON text is also YAML."""
        users: dict[str, dict[str, str]] = {user: {"token": f"{user}-token"} for user in self._users}
        users["certified"] = {
            "client-certificate": str(self.client_certificate),
            "client-key": str(self.client_key),
        }
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [{"name": name, "context": {"cluster": "real", "user": name}} for name in users],
            "current-context": "admin",
        }


def open_request(
    server: StandaloneServer,
    method: str,
    path: str,
    body: object = None,
    *,
    token: str | None = None,
    content_type: str = "application/json",
    timeout: float = 30.0,
) -> HTTPResponse:
    """The response as a stream, by default to the administrator. Raises HTTPError for a status of 400 or more."""
    request = urllib.request.Request(
        server.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token or server.token}", "Content-Type": content_type},
    )
    return _open(request, timeout, ssl.create_default_context(cafile=server.ca))


def read_answer(send: Callable[[], HTTPResponse]) -> RealAnswer:
    """The whole of a response, whatever its status."""
    try:
        with send() as response:
            return RealAnswer(response.status, _decode_body(response.read()))
    except urllib.error.HTTPError as error:
        with error:
            return RealAnswer(error.code, _decode_body(error.read()))


def _open(request: urllib.request.Request, timeout: float, context: ssl.SSLContext | None = None) -> HTTPResponse:
    # Past any proxy the environment names: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        response: HTTPResponse = opener.open(request, timeout=timeout)
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:  # wraps what happened, when it happened early
        if isinstance(error.reason, OSError):
            raise error.reason from None
        raise
    return response


def _responds(url: str, context: ssl.SSLContext | None = None) -> bool:
    try:
        with _open(urllib.request.Request(url), 5.0, context) as response:
            return response.status == 200
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def _decode_body(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


def _service_account_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )

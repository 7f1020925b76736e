"""A control plane started by `gangline up --detach`, and unmodified clients of it."""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.requirements import skip_or_fail
from support.servers.real import RealAnswer, cache_dir, find_assets, open_request, read_answer

CLIENTS_FOLDER = Path(__file__).parents[2] / "clients"
CompletedCommand = subprocess.CompletedProcess[str]


def run_gangline(*arguments: str | Path, timeout: float = 90.0) -> CompletedCommand:
    """Run a gangline command to its end."""
    command = [sys.executable, "-m", "gangline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def find_kubectl() -> Path:
    """The real kubectl. Skips the test where there is none."""
    assets = find_assets()
    if assets is None or not os.access(assets / "kubectl", os.X_OK):
        skip_or_fail("real kubectl not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    return assets / "kubectl"


def find_clients_python() -> Path:
    """The Python that has other people's clients. Skips the test where there is none."""
    return _venv_python(_built_artifact("clients", "requirements.txt"))


def find_kubeflow_python() -> Path:
    """The Python that has Kubeflow's SDK. Skips the test where there is none."""
    return _venv_python(_built_artifact("kubeflow", "kubeflow.txt"))


def find_tfjob_python() -> Path:
    """The Python that has the SDKs of TFJob and PyTorchJob of 2020. Skips the test where there is none."""
    return _venv_python(_built_artifact("tfjob", "tfjob.txt"))


def pythonpath_with_gangline() -> str:
    """PYTHONPATH with which the Python of another client finds gangline too, and what that needs."""
    import gangline

    return os.pathsep.join((str(Path(gangline.__file__).parents[1]), sysconfig.get_path("platlib")))


def _venv_python(found: Path) -> Path:
    if not (found / "complete").is_file():
        skip_or_fail("other clients not found: run hack/clients.sh")
    return found / "bin" / "python"


def find_go_client(name: str) -> Path:
    """The Go program in a folder of tests/clients. Skips the test where it was not built."""
    found = _built_artifact(name, *(f"{name}/{file}" for file in ("go.mod", "go.sum", "main.go")))
    if not os.access(found, os.X_OK):
        skip_or_fail("other clients not found: run hack/clients.sh")
    return found


def _built_artifact(name: str, *files: str) -> Path:
    # As hack/clients.sh has it.
    text = b"".join((CLIENTS_FOLDER / file).read_bytes() for file in files)
    return cache_dir().parents[1] / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"


class DetachedPlane:
    """`gangline up` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"

    def up(self, *flags: str | Path) -> None:
        done = run_gangline("up", "--detach", "--dir", self.folder, *flags)
        assert done.returncode == 0, done.stderr

    def down(self) -> None:
        done = run_gangline("down", "--dir", self.folder)
        assert done.returncode == 0, done.stderr

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{(self.folder / 'port').read_text().strip()}"

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    @property
    def ca(self) -> Path:
        return self.folder / "certificates" / "ca.crt"

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> RealAnswer:
        """One request of the administrator, whatever its status."""
        return read_answer(lambda: open_request(self, method, path, body, content_type=content_type, timeout=timeout))

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    @property
    def environment(self) -> Mapping[str, str]:
        """What a client needs to find it; nothing of the user's own configuration is read or written."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder / "client")}


class Kubectl:
    """kubectl in one namespace of a plane."""

    def __init__(self, plane: DetachedPlane, namespace: str = "default") -> None:
        self._plane, self._namespace = plane, namespace
        self._binary = find_kubectl()

    def __call__(self, *arguments: str, stdin: object = None, code: int = 0, timeout: float = 60.0) -> str:
        """Runs one command and gives what it prints. `stdin` may be text or an object."""
        done = self.run(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == code, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def run_failing(self, *arguments: str, stdin: object = None) -> str:
        """Runs one command that must fail and gives what it complains about."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode != 0, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stderr

    def run(self, *arguments: str, stdin: object = None, timeout: float = 60.0) -> CompletedCommand:
        text = stdin if isinstance(stdin, str | None) else json.dumps(stdin)
        return subprocess.run(
            self.command(*arguments),
            input=text,
            capture_output=True,
            text=True,
            env=self._plane.environment,
            timeout=timeout,
        )

    def command(self, *arguments: str) -> list[str]:
        return [str(self._binary), "--namespace", self._namespace, *arguments]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Starts one that goes on; the caller ends it."""
        return subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, text=True, env=self._plane.environment
        )

    def get(self, *arguments: str) -> Any:
        """Objects, decoded."""
        return json.loads(self("get", *arguments, "--output", "json"))

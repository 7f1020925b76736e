"""The cluster as a test inside of it sees it: kubectl, our own command, the power and the cables of its nodes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from support.nodes.control_plane import wait_for_node
from support.nodes.layout import Layout
from support.nodes.node import node_address


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    output: str
    errors: str


class NodeCluster:
    """A running cluster. Everything here is to be called in its namespaces (hack/cluster.sh exec)."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def kubectl(self, *words: str, body: object = None, check: bool = True) -> str:
        """Run kubectl as the administrator, with `body` as its input; returns what it prints."""
        done = subprocess.run(
            ["kubectl", *words],
            input=None if body is None else json.dumps(body),
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def apply(self, *bodies: Mapping[str, Any], namespace: str = "default") -> None:
        """Create or change objects."""
        body = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        self.kubectl("apply", "--namespace", namespace, "--filename", "-", body=body)

    def objects(self, kind: str, namespace: str = "", *, selector: str = "") -> list[Any]:
        """All objects of a kind, of one namespace or of all."""
        where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        found: list[Any] = json.loads(self.kubectl("get", kind, *where, "--selector", selector, "--output=json"))[
            "items"
        ]
        return found

    def wait(self, name: str, condition: str, namespace: str = "default", *, seconds: int = 120) -> None:
        """Return when an object, KIND/NAME, has the condition. Fails with what the object and its pods are then."""
        words = ["wait", name, f"--for=condition={condition}", f"--timeout={seconds}s", "--namespace", namespace]
        done = subprocess.run(["kubectl", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            state = self.kubectl("describe", name, "--namespace", namespace, check=False)
            pods = self.kubectl("get", "pods", "--output=wide", "--all-namespaces", check=False)
            raise AssertionError(f"{name} is not {condition}: {done.stderr}\n{state[-3000:]}\n{pods}")

    def gangline(
        self, *words: str, folder: Path | None = None, env: Mapping[str, str] | None = None, seconds: int = 180
    ) -> Finished:
        """Run our own command as a user does, against this cluster."""
        done = subprocess.run(
            [sys.executable, "-m", "gangline", *words],
            cwd=folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def power_off(self, node: str) -> None:
        """End everything that runs on a node, at once."""
        os.kill(int((self.layout.pids / node).read_text()), signal.SIGKILL)

    def power_on(self, node: str) -> None:
        """Start a node that was powered off. Returns when it is ready."""
        # In a process of its own, so that the node's processes are not children of the test.
        words = [sys.executable, "-m", "support.nodes", "power-on", str(self.layout.folder), node]
        subprocess.run(words, env=self.layout.service_env(), check=True)

    @contextmanager
    def unplugged(self, node: str) -> Iterator[None]:
        """A node without its cable: its containers run on, and nobody hears of it."""
        link = node_address(node).link
        subprocess.run(["ip", "link", "set", link, "down"], check=True)
        try:
            yield
        finally:
            subprocess.run(["ip", "link", "set", link, "up"], check=True)
            wait_for_node(self.layout, node)

    def audit(self, since: datetime, verbs: Sequence[str], resource: str) -> list[Any]:
        """The requests for a resource since a moment, of these verbs, in the order in which they ended."""
        lines = (json.loads(line) for line in self.layout.audit_log.read_text().splitlines())
        return [
            line
            for line in lines
            if line["verb"] in verbs
            and line.get("objectRef", {}).get("resource") == resource
            and datetime.fromisoformat(line["requestReceivedTimestamp"]) >= since
        ]

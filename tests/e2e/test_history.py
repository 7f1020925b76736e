"""The recorded past of a real plane: commands and the real kubectl show jobs that are gone; no secret is in it."""

import asyncio
import base64
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON, Key
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.history.reader import HistoryReader
from gangline.history.segments import SUFFIX, read_lines
from gangline.history.selection import recorded_body, recorded_prefixes
from gangline.local.cluster import LocalSettings
from gangline.local.history import StoreRecording
from gangline.operator.assembly import embedded_plane
from support.cluster.clients import CompletedCommand, DetachedPlane, Kubectl, find_kubectl
from support.waiting import wait_until_blocking

PASSWORD, CHARM, SETTING = "correct-horse-battery", "open-sesame-42", "only-in-a-configmap"
PROGRAM = """
import os, sys, time, pathlib
assert os.environ["PASSWORD"] and os.environ["CHARM"]
print("up", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
print("no such data", flush=True)
sys.exit(3)
"""


def secret() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login"},
        "stringData": {"password": PASSWORD, "CHARM": CHARM},
    }


def config_map() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"MODE": SETTING}}


def failing_job(go: Path) -> dict[str, Any]:
    reference = {"secretKeyRef": {"name": "login", "key": "password"}}
    container = {
        "name": "pytorch",
        "image": "none",
        "command": [sys.executable, "-c", PROGRAM, str(go)],
        "env": [{"name": "PASSWORD", "valueFrom": reference}],
        "envFrom": [{"secretRef": {"name": "login"}}, {"configMapRef": {"name": "settings"}}],
    }
    replicas = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert"},
        "spec": {"pytorchReplicaSpecs": {"Master": replicas, "Worker": replicas}},
    }


class RecordedPlane:
    """A plane on which a job ran, failed and was deleted, and the moments of that."""

    def __init__(self, folder: Path) -> None:
        self.plane = DetachedPlane(folder / "state")
        self.kubectl = Kubectl(self.plane)
        self.folder = folder
        self.token = ""
        self.moments: dict[str, datetime] = {}

    def play(self) -> None:
        go, kubectl = self.folder / "go", self.kubectl
        for body in (secret(), config_map(), failing_job(go)):
            kubectl("apply", "-f", "-", stdin=body)
        self.token = kubectl("create", "token", "default").strip()
        wait_until_blocking(lambda: self._state() == "Running", "the job does not run")
        wait_until_blocking(lambda: "up" in kubectl("logs", "bert-master-0"), "it prints nothing")
        self._mark("running")
        go.touch()
        wait_until_blocking(lambda: self._state() == "Failed", "the job does not fail")
        wait_until_blocking(self._is_explained, "nothing explains the failure")
        self._mark("failed")
        kubectl("delete", "pytorchjob", "bert", "--wait=true")
        kubectl("delete", "secret", "login")
        wait_until_blocking(lambda: not json.loads(kubectl("get", "pods", "-o", "json"))["items"], "pods stay")
        self._mark("deleted")

    def _state(self) -> str:
        conditions = self.kubectl.get("pytorchjob", "bert").get("status", {}).get("conditions", [])
        return next((one["type"] for one in reversed(conditions) if one["status"] == "True"), "")

    def _is_explained(self) -> bool:
        return bool(self.reader().verdicts("default", "pytorchjobs", "bert"))

    def _mark(self, name: str) -> None:
        """Note a moment in a second without changes."""
        time.sleep(1.1)
        self.moments[name] = datetime.now(UTC)
        time.sleep(1.1)

    def reader(self) -> HistoryReader:
        return HistoryReader(self.plane.folder / "history")

    def at(self, moment: str, *words: str) -> CompletedCommand:
        text = self.moments[moment].isoformat()
        return self.gangline("at", text, *words)

    def gangline(self, *words: str) -> CompletedCommand:
        path = f"{find_kubectl().parent}{os.pathsep}{os.environ['PATH']}"
        env = {**self.plane.environment, "GANGLINE_HOME": str(self.plane.folder), "PATH": path}
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedPlane]:
    plane = RecordedPlane(tmp_path_factory.mktemp("history"))
    plane.plane.up()
    try:
        plane.play()
        yield plane
    finally:
        plane.plane.down()


pytestmark = [pytest.mark.real, pytest.mark.xdist_group("history")]  # one plane for all of them


def test_commands_show_a_job_that_is_gone(recorded: RecordedPlane) -> None:
    running = recorded.at("running", "get", "jobs", "--no-headers")
    assert re.split(r" {2,}", running.stdout.strip())[:4] == ["PyTorchJob", "bert", "Running", "2/2"], running
    failed = recorded.at("failed", "get", "jobs", "--no-headers")
    assert re.split(r" {2,}", failed.stdout.strip())[:3] == ["PyTorchJob", "bert", "Failed"]
    deleted = recorded.at("deleted", "get", "jobs")
    assert (deleted.stdout, deleted.stderr) == ("", "No resources found in default namespace.\n")
    assert "State:         Failed" in recorded.at("failed", "describe", "bert").stdout


def test_logs_are_those_of_the_moment(recorded: RecordedPlane) -> None:
    assert "no such data" not in recorded.at("running", "logs", "bert").stdout
    assert recorded.at("running", "logs", "bert").stdout.count("up") == 2
    assert "no such data" in recorded.at("failed", "logs", "bert").stdout


def test_why_explains_the_past(recorded: RecordedPlane) -> None:
    assert "exit code 3" in recorded.at("failed", "why", "bert").stdout
    assert "Nothing is wrong" in recorded.at("running", "why", "bert").stdout
    (verdict, *_) = recorded.reader().verdicts("default", "pytorchjobs", "bert")
    assert "3" in verdict.report["cause"]


def test_the_list_of_recorded_jobs_has_it(recorded: RecordedPlane) -> None:
    done = recorded.gangline("get", "jobs", "--history", "--no-headers")
    kind, name, state, *_, deleted = re.split(r" {2,}", done.stdout.strip())
    assert (kind, name, state) == ("PyTorchJob", "bert", "Failed")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", deleted)


def test_kubectl_reads_the_past_and_cannot_change_it(recorded: RecordedPlane) -> None:
    pods = recorded.at("running", "kubectl", "get", "pods", "-o", "json")
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in json.loads(pods.stdout)["items"]}
    assert phases == {"bert-master-0": "Running", "bert-worker-0": "Running"}
    assert recorded.at("running", "kubectl", "logs", "bert-master-0").stdout == "up\n"
    for words in (("delete", "pod", "bert-master-0"), ("scale", "pytorchjob/bert", "--replicas=3")):
        refused = recorded.at("running", "kubectl", *words)
        assert refused.returncode == 1
        assert "the past cannot be changed" in refused.stderr, refused.stderr
    assert recorded.at("failed", "kubectl", "get", "pytorchjobs.kubeflow.org", "bert").returncode == 0


def test_a_served_moment_is_there_for_any_client_until_interrupted(recorded: RecordedPlane) -> None:
    command = [sys.executable, "-m", "gangline", "at", "--serve", recorded.moments["failed"].isoformat()]
    env = {**recorded.plane.environment, "GANGLINE_HOME": str(recorded.plane.folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        kubeconfig = server.stdout.readline().split()[2]
        binary = str(find_kubectl())
        words = [binary, "--kubeconfig", kubeconfig, "get", "events", "-o", "jsonpath={.items[*].reason}"]
        assert "Started" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert not Path(kubeconfig).exists()


def test_no_secret_is_in_the_history(recorded: RecordedPlane) -> None:
    lines = all_lines(recorded.plane.folder / "history")
    text = b"\n".join(lines).decode()
    assert '"name":"login"' in text  # by name only
    encoded = [base64.b64encode(value.encode()).decode() for value in (PASSWORD, CHARM)]
    assert recorded.token
    for value in (PASSWORD, CHARM, SETTING, *encoded, recorded.token, recorded.token.split(".")[2]):
        assert value not in text
    assert "last-applied-configuration" not in text
    assert "managedFields" not in text
    # The test would not notice if the server had never had them.
    assert "last-applied-configuration" in json.dumps(recorded.kubectl.get("configmap", "settings"))


def test_the_history_is_for_its_owner_alone(recorded: RecordedPlane) -> None:
    folder = recorded.plane.folder / "history"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder.glob(f"*{SUFFIX}"))


def all_lines(folder: Path) -> list[bytes]:
    return [line for file in sorted(folder.glob(f"*{SUFFIX}")) for line in read_lines(file.read_bytes())]


# Moments of a plane in this process


LIFE = "import time; print('up', flush=True); time.sleep(0.7); raise SystemExit({})"


def short_job(name: str, code: int, replicas: int) -> JSON:
    container = {"name": "pytorch", "image": "none", "command": [sys.executable, "-c", LIFE.format(code)]}
    worker = {"replicas": replicas, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }


def live_state(store: Store) -> dict[str, JSON]:
    prefixes = recorded_prefixes()
    records = (record for record in store.range("").records if record.path.startswith(prefixes))
    return {record.path: recorded_body(record.path, msgspec.json.decode(record.data)) for record in records}


async def test_moments_of_a_real_plane_are_replayed_as_they_were(tmp_path: Path) -> None:
    clock, chance = SystemClock(), random.Random(7)
    snapshots: dict[float, dict[str, JSON]] = {}
    recording = StoreRecording(tmp_path / "history", tmp_path / "logs", clock)
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "logs")
    async with embedded_plane(settings, clock) as plane:
        recording.start(plane.store)
        jobs = plane.client.scheme.kind("kubeflow.org/v1", "PyTorchJob")
        async with background_tasks(recording.run()):
            for number in range(4):
                await plane.client.create(jobs, short_job(f"job-{number}", number % 2, 1 + number))
                if number > 1:
                    await plane.client.delete(jobs, Key("default", f"job-{number - 2}"))
                for _ in range(40):
                    revision, state, moment = plane.store.revision, live_state(plane.store), clock.now().timestamp()
                    await asyncio.sleep(chance.uniform(0.005, 0.02))
                    if plane.store.revision == revision:  # nothing changed in the same millisecond
                        snapshots[moment] = state
    recording.finish()
    reader = HistoryReader(tmp_path / "history")
    assert len(snapshots) > 50
    assert len({frozenset(state) for state in snapshots.values()}) > 4
    for moment, state in snapshots.items():
        assert reader.objects_at(moment) == state

"""A cluster that migrates from one operator to another, by the commands in the docs.

Plain blocking code, as tests/support/servers/real.py is and for its reason. There is no kubelet: tests say what becomes of pods.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

from gangline.api.kubeflow.training import JobKind
from support.cases.kubeflow_play import OWNED_PATHS, pod_status
from support.cluster.operators import KUBEFLOW, OperatorLaunch, is_ready
from support.servers.real import HOST, LoggedProcess, RealServer, free_ports
from support.waiting import wait_until_blocking

ROOT = Path(__file__).parents[3]
TEAM_NAMESPACE = "team"
JOBS_PATH, PODS_PATH = "/apis/kubeflow.org/v1", f"/api/v1/namespaces/{TEAM_NAMESPACE}/pods"
OUR_USER, DEPLOYMENTS_PATH = "system:serviceaccount:gangline:gangline-operator", "/apis/apps/v1/namespaces"
JOB_NAME_LABEL = "training.kubeflow.org/job-name"
MERGE_PATCH = "application/merge-patch+json"
WAIT_SECONDS = 60.0


class MigratedJob(NamedTuple):
    """A job as a user writes it."""

    kind: JobKind
    name: str
    replicas: Mapping[str, int]
    restart_policy: str = "Never"
    run_policy: Mapping[str, Any] = {}
    spec: Mapping[str, Any] = {}

    @property
    def body(self) -> Any:
        template = {"spec": {"containers": [{"name": self.kind.container, "image": "train:1"}]}}
        replicas = {
            replica: {"replicas": count, "restartPolicy": self.restart_policy, "template": template}
            for replica, count in self.replicas.items()
        }
        return {
            "apiVersion": "kubeflow.org/v1",
            "kind": self.kind.kind,
            "metadata": {"name": self.name},
            "spec": {self.kind.replicas: replicas, "runPolicy": dict(self.run_policy), **self.spec},
        }

    @property
    def size(self) -> int:
        return sum(self.replicas.values())

    @property
    def collection_path(self) -> str:
        return f"{JOBS_PATH}/namespaces/{TEAM_NAMESPACE}/{self.kind.plural}"

    @property
    def path(self) -> str:
        return f"{self.collection_path}/{self.name}"


class OperatorRunner:
    """Runs either operator beside the cluster; their Deployments there have no pods."""

    def __init__(self, server: RealServer, folder: Path) -> None:
        self._server, self._folder = server, folder

    @contextmanager
    def run_kubeflow(self) -> Iterator[None]:
        """The Kubeflow operator, until it is told to end, as a pod is when its Deployment is scaled down."""
        launch = OperatorLaunch(self._server, self._server.kubeconfig, self._folder, free_ports(1)[0], ())
        with self._until_terminated(KUBEFLOW.start(launch), launch.probe_port):
            yield

    @contextmanager
    def run_gangline(self) -> Iterator[None]:
        """Our operator, with the arguments of its Deployment and the permissions of its manifest."""
        probe = free_ports(1)[0]
        process = self._start_gangline(self.deployed_arguments(), probe)
        with self._until_terminated(process, probe):
            yield
        assert process.exit_code == 0, process.log_tail()

    def refusal_line(self) -> str:
        """The one line our operator prints when it refuses to start."""
        process = self._start_gangline(self.deployed_arguments(), free_ports(1)[0])
        try:
            wait_until_blocking(lambda: not process.is_running, "it does not end")
        finally:
            process.kill()
        assert process.exit_code == 1, process.log_tail()
        (line,) = [line for line in process.log_tail(1000).splitlines() if not line.startswith("{")]
        return line

    def deployed_arguments(self) -> Sequence[str]:
        """The arguments of our Deployment, or of its manifest while there is none."""
        found = self._server.call("GET", f"{DEPLOYMENTS_PATH}/gangline/deployments/gangline-operator")
        if found.status == 404:
            return ("--leader-elect", "--log-format=json")
        return list(found.body["spec"]["template"]["spec"]["containers"][0]["args"])

    def _start_gangline(self, arguments: Sequence[str], probe: int) -> LoggedProcess:
        command = [sys.executable, "-m", "gangline", "operator", f"--kubeconfig={self._server.kubeconfig}"]
        # As an installed one, which knows its image.
        command += [
            f"--context={OUR_USER}",
            "--leader-election-namespace=gangline",
            "--agent-image=gangline:1",
            *arguments,
        ]
        command += ["--metrics-bind-address=0", f"--health-probe-bind-address={HOST}:{probe}"]
        return LoggedProcess(command, self._folder / f"gangline-{probe}.log")

    @contextmanager
    def _until_terminated(self, process: LoggedProcess, probe: int) -> Iterator[None]:
        try:
            process.wait_until(lambda: is_ready(probe))
            yield
            process.signal(signal.SIGTERM)
            wait_until_blocking(lambda: not process.is_running, "it does not end")
        finally:
            process.kill()


class PodRecorder:
    """Records which pods came and went, by a watch in a thread."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self._events: list[tuple[str, str]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within the block every pod that is created, told to go, or deleted is recorded."""
        version = self._server.call("GET", PODS_PATH).body["metadata"]["resourceVersion"]
        path = f"{PODS_PATH}?watch=true&resourceVersion={version}"
        with self._server.open("GET", path, timeout=10 * WAIT_SECONDS) as response:
            watcher = threading.Thread(target=self._follow, args=(response,))
            watcher.start()
            try:
                yield
            finally:
                self._create_marker("end")
                watcher.join()

    def take_events(self) -> list[str]:
        """What was recorded since this was called last: `ADDED team-worker-0`, say."""
        marker = f"marker-{time.monotonic_ns()}"
        self._create_marker(marker)
        wait_until_blocking(lambda: ("ADDED", marker) in self._events, "the watch is late")
        found = [f"{what} {name}" for what, name in self._events if not name.startswith("marker-")]
        self._events.clear()
        return found

    def _create_marker(self, name: str) -> None:
        spec = {"containers": [{"name": "none", "image": "none"}]}
        _create(self._server, PODS_PATH, {"metadata": {"name": name}, "spec": spec})

    def _follow(self, response: HTTPResponse) -> None:
        for line in response:
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            if metadata["name"] == "end":
                return
            if event["type"] != "MODIFIED" or "deletionTimestamp" in metadata:
                self._events.append((event["type"], metadata["name"]))


class MigrationCluster:
    """A server, and what people do on it and see of it. `operators` runs them, `recorder` knows which pods came and went."""

    def __init__(self, server: RealServer, tools: Path, folder: Path) -> None:
        """`tools` is where kubectl is."""
        self.server, self.folder, self._tools = server, folder, tools
        self.operators, self.recorder = OperatorRunner(server, folder), PodRecorder(server)

    # People

    def run_shell(self, command: str) -> str:
        """The output of a shell command in the root of the checkout. The command must succeed."""
        path = os.pathsep.join([str(self._tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        environ = {**os.environ, "KUBECONFIG": str(self.server.kubeconfig), "PATH": path}
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command}"],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def create(self, path: str, body: Any) -> None:
        _create(self.server, path, body)

    def submit(self, *jobs: MigratedJob) -> None:
        """Create jobs, and wait for the pods of those that are not suspended."""
        for job in jobs:
            self.create(job.collection_path, job.body)
        for job in jobs:
            if not job.run_policy.get("suspend"):
                wait_until_blocking(partial(self._has_all_pods, job), f"{job.name} has no pods")

    def _has_all_pods(self, job: MigratedJob) -> bool:
        return len(self.pods(job)) == job.size

    # What there is

    def is_deleted(self, job: MigratedJob) -> bool:
        return self.server.call("GET", job.path).status == 404

    def status(self, job: MigratedJob) -> Any:
        return self.server.call("GET", job.path).body.get("status") or {}

    def conditions(self, job: MigratedJob) -> dict[str, str]:
        return {found["type"]: found["status"] for found in self.status(job).get("conditions") or []}

    def condition_message(self, job: MigratedJob, condition: str) -> str:
        found = {each["type"]: each["message"] for each in self.status(job).get("conditions") or []}
        return str(found.get(condition, ""))

    def pods(self, job: MigratedJob) -> dict[str, Any]:
        """The job's pods by the rest of their names, `worker-0`."""
        found = self.server.call("GET", f"{PODS_PATH}?labelSelector={JOB_NAME_LABEL}%3D{job.name}").body["items"]
        return {pod["metadata"]["name"].removeprefix(f"{job.name}-"): pod for pod in found}

    def owned_uids(self) -> dict[str, str]:
        """The uids of all objects owned by jobs, by `resource/name`."""
        return {
            f"{resource}/{item['metadata']['name']}": item["metadata"]["uid"]
            for resource, root in OWNED_PATHS.items()
            for item in self.server.call("GET", f"{root}/namespaces/{TEAM_NAMESPACE}/{resource}").body["items"]
            if item["metadata"].get("ownerReferences")
        }

    def launcher_access(self, job: MigratedJob) -> list[Any]:
        """How the launcher of a job reaches its workers: its script, and its rights."""
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        files = self.server.call("GET", f"/api/v1/namespaces/{TEAM_NAMESPACE}/configmaps/{job.name}-config")
        role = self.server.call("GET", f"{rbac}/namespaces/{TEAM_NAMESPACE}/roles/{job.name}-launcher")
        return [files.body["data"]["kubexec.sh"], role.body["rules"]]

    def is_adopted(self, job: MigratedJob) -> bool:
        """Whether our operator has written the job's status."""
        return bool(self.status(job).get("phase"))


def set_pods(cluster: MigrationCluster, job: MigratedJob, what: Any, *which: str) -> None:
    """Set the status of all pods of a job, or of some; `what` is as in tests/support/cases/kubeflow_play.py."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, pod in cluster.pods(job).items():
        if name in which or not which:
            body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": pod_status(pod, what, now)}
            path = f"{PODS_PATH}/{pod['metadata']['name']}/status"
            answer = cluster.server.call("PATCH", path, body, content_type=MERGE_PATCH)
            assert answer.status in (200, 404, 409), answer.body


def set_pods_until(cluster: MigrationCluster, job: MigratedJob, what: Any, condition: str, *which: str) -> None:
    """Set the status of pods, and wait until the job has the condition."""
    set_pods(cluster, job, what, *which)
    wait_until_blocking(
        lambda: cluster.conditions(job).get(condition) == "True", f"{job.name} did not become {condition}"
    )


def _create(server: RealServer, path: str, body: Any) -> None:
    answer = server.call("POST", path, body)
    assert answer.status == 201, answer.body

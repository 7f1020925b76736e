"""`gangline operator` as a process beside an API server without a kubelet: the tests say what becomes of pods."""

import json
import signal
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangline.api.kubeflow.training import JobKind
from support.servers.real import HOST, ApiServer, LoggedProcess, free_ports
from support.waiting import wait_until_blocking

APIS = "/apis/kubeflow.org/v1"
TEAMS = {
    "TFJob": {"Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "MPIJob": {"Launcher": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
}


class OperatorProcess:
    """One process."""

    def __init__(self, server: ApiServer, folder: Path, *flags: str, context: str = "admin") -> None:
        self.server = server
        self.probes, self.metrics = free_ports(2)
        self.log = folder / f"operator-{uuid.uuid4().hex[:6]}.log"
        command = [sys.executable, "-m", "gangline", "operator", "--kubeconfig", str(server.kubeconfig)]
        command += ["--context", context, "--log-format=json"]
        command += [f"--health-probe-bind-address={HOST}:{self.probes}"]
        command += [f"--metrics-bind-address={HOST}:{self.metrics}", *flags]
        self.process = LoggedProcess(command, self.log)

    def ready(self) -> bool:
        return get_page(self.probes, "/readyz")[0] == 200

    def counted(self, name: str, /, **labels: str) -> float:
        """The sum of a metric over all series with these labels."""
        text = get_page(self.metrics, "/metrics")[1]
        series = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(line.rpartition(" ")[2]) for line in series if all(want in line for want in wanted))

    def counts(self, name: str, value: float, /, **labels: str) -> None:
        """Wait for a metric: what is written is seen by others before it is counted."""
        wait_until_blocking(lambda: self.counted(name, **labels) == value, f"{name} did not become {value}")

    def lines(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def ended(self, number: signal.Signals) -> int:
        """Send a signal and give the exit code."""
        self.process.signal(number)
        return self.code()

    def code(self) -> int:
        wait_until_blocking(lambda: not self.process.is_running, "it does not end")
        return self.process.exit_code


@contextmanager
def running_operator(server: ApiServer, folder: Path, *flags: str, context: str = "admin") -> Iterator[OperatorProcess]:
    """One that is ready."""
    operator = OperatorProcess(server, folder, *flags, context=context)
    try:
        operator.process.wait_until(operator.ready)
        yield operator
    finally:
        operator.process.kill()


def get_page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def create_object(server: ApiServer, path: str, body: object) -> Any:
    answer = server.call("POST", path, body)
    assert answer.status == 201, answer.body
    return answer.body


def apply_object(server: ApiServer, document: Any, how: str = "") -> None:
    plurals = {"ServiceAccount": "serviceaccounts", "Namespace": "namespaces"}
    group = document["apiVersion"]
    plural = plurals.get(document["kind"], f"{document['kind'].lower()}s")
    within = document["metadata"].get("namespace")
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    path = f"{root}/namespaces/{within}/{plural}" if within else f"{root}/{plural}"
    path += f"/{document['metadata']['name']}?fieldManager=tests&force=true&fieldValidation=Strict{how}"
    answer = server.call("PATCH", path, document, content_type="application/apply-patch+yaml")
    assert answer.status in (200, 201), answer.body


# Jobs and their pods


def submit_job(
    server: ApiServer,
    namespace: str,
    kind: JobKind,
    name: str,
    *,
    restart: str = "Never",
    spec: Mapping[str, Any] | None = None,
    **policy: Any,
) -> None:
    template = {"spec": {"containers": [{"name": kind.container, "image": "none"}]}}
    replicas = {
        replica: {"replicas": count, "restartPolicy": restart, "template": template}
        for replica, count in TEAMS[kind.kind].items()
    }
    whole = {kind.replicas: replicas, "runPolicy": policy, **(spec or {})}
    body = {"apiVersion": "kubeflow.org/v1", "kind": kind.kind, "metadata": {"name": name}, "spec": whole}
    create_object(server, f"{APIS}/namespaces/{namespace}/{kind.plural}", body)


def job_conditions(server: ApiServer, namespace: str, kind: JobKind, name: str) -> dict[str, str]:
    job = server.call("GET", f"{APIS}/namespaces/{namespace}/{kind.plural}/{name}").body
    found = (job.get("status") or {}).get("conditions") or []
    return {one["type"]: one["status"] for one in found}


def job_pods(server: ApiServer, namespace: str, name: str) -> list[Any]:
    selector = f"labelSelector=training.kubeflow.org%2Fjob-name%3D{name}"
    return list(server.call("GET", f"/api/v1/namespaces/{namespace}/pods?{selector}").body["items"])


def pod_uids(server: ApiServer, namespace: str, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in job_pods(server, namespace, name)}


def set_phase(server: ApiServer, pod: Any, phase: str, exit_code: int | None = None) -> None:
    """Say what a kubelet would."""
    code = exit_code if exit_code is not None else int(phase == "Failed")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}}
    container = {
        "name": pod["spec"]["containers"][0]["name"],
        "image": "none",
        "imageID": "",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": {"running": {"startedAt": now}} if phase == "Running" else ended,
    }
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    body = {
        "metadata": {"uid": metadata["uid"]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }
    answer = server.call("PATCH", path, body, content_type="application/merge-patch+json")
    assert answer.status in (200, 404, 409), answer.body


def bring_job_to(server: ApiServer, namespace: str, kind: JobKind, name: str, condition: str) -> None:
    """Let all pods of a job run, or succeed, until the job has the condition."""
    phase = "Failed" if condition == "Failed" else "Running" if condition == "Running" else "Succeeded"

    def there() -> bool:
        for pod in job_pods(server, namespace, name):
            if pod["status"].get("phase") != phase:
                set_phase(server, pod, phase)
        return job_conditions(server, namespace, kind, name).get(condition) == "True"

    wait_until_blocking(there, f"{kind.kind} {name} did not become {condition}")

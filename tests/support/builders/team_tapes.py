"""Tapes of a made-up team: versions of a job and its pods as a recorder would have seen them."""

from datetime import UTC, datetime
from typing import Any

from gangline.api.meta import JSON
from gangline.timeline.model import TimedVersion

START = 1_800_000_000.0
"""When tapes begin, in Unix seconds."""
JOB_PATH = "/kubeflow.org/pytorchjobs/default/bert"


def stamp(seconds: float) -> str:
    """A time as an object has it: in whole seconds."""
    return datetime.fromtimestamp(int(START + seconds), UTC).isoformat().replace("+00:00", "Z")


class TeamTape:
    """Versions of the PyTorchJob `bert`. Times are seconds since its creation."""

    def __init__(self, workers: int = 2) -> None:
        self.versions: list[TimedVersion] = []
        self._pods: dict[str, JSON] = {}
        self._job: JSON = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "metadata": {"name": "bert", "namespace": "default", "uid": "job-1", "creationTimestamp": stamp(0)},
            "spec": {"runPolicy": {}, "pytorchReplicaSpecs": {"Worker": {"replicas": workers}}},
            "status": {"conditions": []},
        }

    def write_job(self, at: float, **status: Any) -> None:
        self._job = {**self._job, "status": {**self._job["status"], **status}}
        self.versions.append(TimedVersion(START + at, JOB_PATH, self._job))

    def set_condition(self, at: float, kind: str, value: str = "True") -> None:
        others = [one for one in self._job["status"]["conditions"] if one["type"] != kind]
        self.write_job(
            at, conditions=[*others, {"type": kind, "status": value, "lastTransitionTime": stamp(at), "message": ""}]
        )

    def scale(self, at: float, workers: int) -> None:
        self._job = {
            **self._job,
            "spec": {**self._job["spec"], "pytorchReplicaSpecs": {"Worker": {"replicas": workers}}},
        }
        self.write_job(at)

    def delete_job(self, at: float) -> None:
        self.versions.append(TimedVersion(START + at, JOB_PATH, None))

    def create(self, at: float, worker: int, uid: str, node: str = "") -> None:
        self._pods[f"worker-{worker}"] = {
            "metadata": {
                "name": f"bert-worker-{worker}",
                "namespace": "default",
                "uid": uid,
                "creationTimestamp": stamp(at),
                "labels": {
                    "training.kubeflow.org/replica-type": "worker",
                    "training.kubeflow.org/replica-index": str(worker),
                },
                "ownerReferences": [{"kind": "PyTorchJob", "name": "bert", "uid": "job-1", "controller": True}],
            },
            "spec": {"containers": [{"name": "pytorch"}]},
            "status": {"phase": "Pending"},
        }
        self._write_pod(at, worker)
        if node:
            self.bind(at, worker, node)

    def bind(self, at: float, worker: int, node: str) -> None:
        pod = self._pods[f"worker-{worker}"]
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(at)}
        self._update(worker, spec={**pod["spec"], "nodeName": node}, status={**pod["status"], "conditions": [bound]})
        self._write_pod(at, worker)

    def run(self, at: float, worker: int, restarts: int = 0, *, ready: bool = True) -> None:
        before = self._container(worker)
        last = before.get("lastState", {}) if "waiting" in before.get("state", {}) else before.get("state", {})
        status = {"name": "pytorch", "restartCount": restarts, "ready": ready, "lastState": last}
        self._set_container(at, worker, "Running", {**status, "state": {"running": {"startedAt": stamp(at)}}})

    def set_ready(self, at: float, worker: int, *, ready: bool) -> None:
        self._set_container(at, worker, "Running", {**self._container(worker), "ready": ready})

    def end(self, at: float, worker: int, code: int, reason: str = "", phase: str = "") -> None:
        before = self._container(worker)
        ended = {
            "exitCode": code,
            "reason": reason or ("Completed" if code == 0 else "Error"),
            "startedAt": before["state"]["running"]["startedAt"],
            "finishedAt": stamp(at),
        }
        phase = phase or ("Succeeded" if code == 0 else "Failed")
        self._set_container(at, worker, phase, {**before, "ready": False, "state": {"terminated": ended}})

    def back_off(self, at: float, worker: int) -> None:
        before = self._container(worker)
        waiting = {**before, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": before["state"]}
        self._set_container(at, worker, "Running", waiting)

    def fail_pod(self, at: float, worker: int, reason: str) -> None:
        """Fail the pod for a reason of its own, as an eviction does."""
        pod = self._pods[f"worker-{worker}"]
        self._update(worker, status={**pod["status"], "phase": "Failed", "reason": reason})
        self._write_pod(at, worker)

    def request_deletion(self, at: float, worker: int, grace: int = 30) -> None:
        pod = self._pods[f"worker-{worker}"]
        marks = {"deletionTimestamp": stamp(at + grace), "deletionGracePeriodSeconds": grace}
        self._update(worker, metadata={**pod["metadata"], **marks})
        self._write_pod(at, worker)

    def remove(self, at: float, worker: int) -> None:
        self.versions.append(TimedVersion(START + at, f"//pods/default/bert-worker-{worker}", None))

    def report(self, at: float, worker: int, line: str) -> None:
        pod = self._pods[f"worker-{worker}"]
        annotations = {"training.gangline.dev/progress": line}
        self._update(worker, metadata={**pod["metadata"], "annotations": annotations})
        self._write_pod(at, worker)

    def add_event(self, at: float, component: str, reason: str, message: str) -> None:
        name = f"event-{len(self.versions)}"
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "eventTime": stamp(at),
            "reportingComponent": component,
            "reason": reason,
            "message": message,
            "involvedObject": {"kind": "PyTorchJob", "name": "bert"},
        }
        self.versions.append(TimedVersion(START + at, f"//events/default/{name}", body))

    def set_node(self, at: float, name: str, ready: str) -> None:
        conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": stamp(at)}]
        body = {"metadata": {"name": name, "uid": f"node-{name}"}, "status": {"conditions": conditions}}
        self.versions.append(TimedVersion(START + at, f"//nodes//{name}", body))

    def _container(self, worker: int) -> JSON:
        statuses: list[JSON] = self._pods[f"worker-{worker}"]["status"].get("containerStatuses", [{}])
        return statuses[0]

    def _set_container(self, at: float, worker: int, phase: str, status: JSON) -> None:
        pod = self._pods[f"worker-{worker}"]
        self._update(worker, status={**pod["status"], "phase": phase, "containerStatuses": [status]})
        self._write_pod(at, worker)

    def _update(self, worker: int, **parts: JSON) -> None:
        self._pods[f"worker-{worker}"] = {**self._pods[f"worker-{worker}"], **parts}

    def _write_pod(self, at: float, worker: int) -> None:
        path = f"//pods/default/bert-worker-{worker}"
        self.versions.append(TimedVersion(START + at, path, self._pods[f"worker-{worker}"]))

"""The records a run leaves behind: a job, its pod, an event, and a node's folder with a log."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gangline.api.meta import JSON, Key
from gangline.apiserver.store.paths import ObjectPath, object_path
from gangline.node.checkpoint import ExitRecord, RunRecord, StateFolder

CREATED_AT = "2026-01-01T00:00:00Z"
RECORDED_AT = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)


def job_path(name: str = "small") -> ObjectPath:
    return ObjectPath("kubeflow.org", "tfjobs", "default", name)


def object_meta(name: str, uid: str, **more: Any) -> JSON:
    return {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": CREATED_AT, **more}


def recorded_job(name: str = "small", *conditions: str, uid: str = "job", **metadata: Any) -> JSON:
    held = [{"type": each, "status": "True", "reason": each, "message": ""} for each in conditions]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": object_meta(name, uid, **metadata),
        "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1}}},
        "status": {"conditions": held, "replicaStatuses": {"Worker": {"active": 1}}},
    }


def recorded_pod(name: str = "small-worker-0", *, uid: str = "pod", owner: str = "job", run: str = "run") -> JSON:
    """A running pod of the job."""
    identity = f"process://{run}"
    running = {"name": "tensorflow", "containerID": identity, "state": {"running": {"startedAt": CREATED_AT}}}
    owners = [{"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "small", "uid": owner}]
    labels = {"training.kubeflow.org/job-name": "small", "training.kubeflow.org/replica-type": "worker"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": object_meta(name, uid, ownerReferences=owners, labels=labels),
        "spec": {"nodeName": "local", "containers": [{"name": "tensorflow", "image": "none"}]},
        "status": {"phase": "Running", "containerStatuses": [running]},
    }


def recorded_event(name: str, about: str) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": object_meta(name, f"event-{name}"),
        "involvedObject": {"kind": "TFJob", "name": "small", "namespace": "default", "uid": about},
        "reason": "Told",
    }


def stored_objects(*bodies: JSON) -> dict[str, JSON]:
    """The objects by their path in the store."""
    plurals = {"TFJob": ("kubeflow.org", "tfjobs"), "Pod": ("", "pods"), "Event": ("", "events")}
    plurals |= {"Secret": ("", "secrets"), "Lease": ("coordination.k8s.io", "leases")}
    return {
        object_path(*plurals[body["kind"]], body["metadata"]["namespace"], body["metadata"]["name"]): body
        for body in bodies
    }


def write_container_log(
    state: Path, text: str, *, name: str = "small-worker-0", uid: str = "pod", attempt: int = 0
) -> None:
    """Write a container's run into a node's folder: its log, and an exit by SIGTERM."""
    files = StateFolder(state).pod(Key("default", name), uid).run_files("tensorflow", attempt)
    files.begin(RunRecord("run" if attempt == 0 else f"run-{attempt}", attempt))
    lines = (f"2026-01-01T00:00:00.000000000Z stdout F {line}\n" for line in text.splitlines())
    files.log_file.write_text("".join(lines))
    files._write("exit", ExitRecord(RECORDED_AT.timestamp() - 1, -15))

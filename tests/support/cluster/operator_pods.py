"""A kubelet for the pods of operators on a real API server: the program of each pod runs beside the server, as a process.

Plain blocking code, as tests/support/servers/real.py is and for its reason. Needs kube-controller-manager, which makes
pods of Deployments.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from support.cluster.operators import KUBEFLOW, OperatorLaunch, is_ready
from support.servers.real import HOST, LoggedProcess, RealServer, free_ports

NODE = "node-0"
MERGE_PATCH = "application/merge-patch+json"
POLL_SECONDS = 0.05
SELECTORS = ("app.kubernetes.io/part-of=gangline", "control-plane=kubeflow-training-operator")


class PodProcess(NamedTuple):
    """The process of a pod and the port of its probes; neither for a pod of which only its status matters."""

    process: LoggedProcess | None
    probe_port: int = 0

    @property
    def is_ready(self) -> bool:
        return self.process is None or is_ready(self.probe_port)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_running


StartPod = Callable[[Any], PodProcess]


def start_nothing(pod: Any) -> PodProcess:
    """The pod is ready at once, and nothing runs."""
    return PodProcess(None)


class OperatorStarter:
    """Starts the operator that a pod asks for: ours, as its service account, or the Kubeflow operator."""

    def __init__(self, server: RealServer, folder: Path) -> None:
        self._server, self._folder = server, folder

    def __call__(self, pod: Any) -> PodProcess:
        probe = free_ports(1)[0]
        if pod["metadata"]["labels"].get("control-plane") == "kubeflow-training-operator":
            launch = OperatorLaunch(self._server, self._server.kubeconfig, self._folder, probe, ())
            return PodProcess(KUBEFLOW.start(launch), probe)
        (container,) = pod["spec"]["containers"]
        namespace = pod["metadata"]["namespace"]
        command = [sys.executable, "-m", *container["command"], *container["args"]]
        command += [f"--kubeconfig={self._server.kubeconfig}", f"--leader-election-namespace={namespace}"]
        command.append(f"--context=system:serviceaccount:{namespace}:{pod['spec']['serviceAccountName']}")
        command += ["--metrics-bind-address=0", f"--health-probe-bind-address={HOST}:{probe}"]
        log = self._folder / f"{pod['metadata']['name']}.log"
        return PodProcess(LoggedProcess(command, log, {"POD_NAME": pod["metadata"]["name"]}), probe)


class OperatorKubelet:
    """Runs the pods of operators as processes.

    An image that has `broken` in its name cannot be pulled, one that has `slow` never becomes ready.
    """

    def __init__(self, server: RealServer, start: StartPod = start_nothing) -> None:
        self._server, self._start = server, start
        self._pods: dict[str, PodProcess] = {}
        self._ending: set[str] = set()
        self._stop = threading.Event()
        self.errors: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the block ends; then all processes are killed."""
        self._server.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        loop = threading.Thread(target=self._loop)
        loop.start()
        try:
            yield
        finally:
            self._stop.set()
            loop.join()
            for pod in self._pods.values():
                if pod.process is not None:
                    pod.process.kill()
        assert self.errors == []

    def _loop(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            try:
                self._sync()
            except OSError as error:
                self.errors.append(str(error))

    def _sync(self) -> None:
        for selector in SELECTORS:
            found = self._server.call("GET", f"/api/v1/pods?labelSelector={selector.replace('=', '%3D')}")
            for pod in found.body["items"]:
                self._sync_pod(pod)

    def _sync_pod(self, pod: Any) -> None:
        metadata = pod["metadata"]
        uid, path = metadata["uid"], f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            self._end(uid, path)
            return
        if uid not in self._pods:
            body = {"metadata": {"name": metadata["name"]}, "target": {"kind": "Node", "name": NODE}}
            self._server.call("POST", f"{path}/binding", body)
            broken = "broken" in pod["spec"]["containers"][0]["image"]
            self._pods[uid] = PodProcess(None) if broken else self._start(pod)
            if broken:
                self._refuse_image(pod, path)
        started, image = self._pods[uid], pod["spec"]["containers"][0]["image"]
        never_ready = "broken" in image or "slow" in image
        if not never_ready and not _is_ready(pod) and started.is_ready:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": now}]
            self._set_status(path, {"phase": "Running", "conditions": conditions, "startTime": now})

    def _refuse_image(self, pod: Any, path: str) -> None:
        image = pod["spec"]["containers"][0]["image"]
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
        container = {"name": pod["spec"]["containers"][0]["name"], "image": image, "imageID": "", "ready": False}
        statuses = [{**container, "restartCount": 0, "state": {"waiting": waiting}}]
        metadata = pod["metadata"]
        event = {
            "metadata": {"generateName": "pull-"},
            "involvedObject": {"kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"]},
            "type": "Warning",
            "reason": "Failed",
            "message": f'Failed to pull image "{image}": not found',
        }
        self._server.call("POST", f"/api/v1/namespaces/{metadata['namespace']}/events", event)
        self._set_status(path, {"phase": "Pending", "containerStatuses": statuses})

    def _set_status(self, path: str, status: Any) -> None:
        self._server.call("PATCH", f"{path}/status", {"status": status}, content_type=MERGE_PATCH)

    def _end(self, uid: str, path: str) -> None:
        started = self._pods.get(uid, PodProcess(None))
        if started.process is not None and started.is_running:
            if uid not in self._ending:
                self._ending.add(uid)
                started.process.signal(signal.SIGTERM)
            return
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        self._server.call("DELETE", path, body)


def _is_ready(pod: Any) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def own_environment(server: RealServer) -> dict[str, str]:
    """The environment of a command line that works on this server."""
    return {**os.environ, "KUBECONFIG": str(server.kubeconfig), "GANGLINE_HOME": str(server.directory / "home")}

"""A PyTorchJob in a `World`, with a kubelet that dates all it does: each step happens when a test says so."""

import copy
import json
from datetime import timedelta
from typing import Any

from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, GoodputLedger
from gangline.api.meta import JSON
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.site import Site
from gangline.testing.builders import make_template
from gangline.testing.world.world import World
from gangline.timeline.model import TimedVersion

SUCCEEDED, FAILED = "Succeeded", "Failed"


class TimedTeam:
    """Replicas by name, such as `master-0`. Time passes in `wait` alone."""

    def __init__(
        self,
        workers: int = 1,
        *,
        restart: str = "OnFailure",
        policy: JSON | None = None,
        scope: str = "",
        site: Site = Site(),  # noqa: B008 - frozen
    ) -> None:
        def spec(count: int) -> JSON:
            return {
                "replicas": count,
                "restartPolicy": restart,
                "template": make_template("true", container="pytorch"),
            }

        replicas = {"Master": spec(1), **({"Worker": spec(workers)} if workers else {})}
        run_policy = {"cleanPodPolicy": "None", **(policy or {}), **({"restartScope": scope} if scope else {})}
        self.world = World(
            PyTorch(),
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "bert", "namespace": "default"},
                "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": run_policy},
            },
            site,
        )
        self.versions: list[TimedVersion] = []
        self._recorded: dict[str, JSON] = {}

    @property
    def now(self) -> float:
        return self.world.clock.now().timestamp()

    @property
    def ledger(self) -> GoodputLedger:
        """The ledger in the status."""
        ledger: GoodputLedger | None = self.world.job.status.goodput
        assert ledger is not None
        return ledger

    @property
    def names(self) -> list[str]:
        """The replicas that have a pod."""
        return [pod["metadata"]["name"].removeprefix("bert-") for pod in self.world.pods()]

    def pod(self, name: str) -> JSON:
        found = self.world.server.find("pods", f"bert-{name}")
        assert found is not None, f"{name} has no pod"
        return found

    async def settle(self) -> None:
        """Let the operator see what happened, and record it."""
        self.record()
        await self.world.settle()
        self.record()

    async def wait(self, seconds: int) -> None:
        await self.world.pass_time(timedelta(seconds=seconds))
        self.record()

    async def bind(self, *names: str) -> None:
        """Place pods on a node."""
        for name in names or self.names:
            condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._stamp()}
            self._patch(name, {"spec": {"nodeName": "node-a"}, "status": {"conditions": [condition]}})
        await self.settle()

    async def start(self, *names: str) -> None:
        """Start the processes of pods: the first ones, or those after `crash`."""
        for name in names or self.names:
            before = self._container(name)
            count = int(before.get("restartCount", -1)) + 1
            last = {"lastState": before["state"]} if "terminated" in before.get("state", {}) else {}
            self._write(name, "Running", {"running": {"startedAt": self._stamp()}}, count, last)
        await self.settle()

    async def crash(self, name: str, code: int = 1) -> None:
        """End a process. Its pod stays, and restarts it in place by `start`."""
        self._end(name, code, "Running")
        await self.settle()

    async def end(self, *names: str, phase: str = SUCCEEDED) -> None:
        """End processes and their pods."""
        for name in names or self.names:
            self._end(name, 0 if phase == SUCCEEDED else 1, phase)
        await self.settle()

    async def evict(self, name: str) -> None:
        """Fail a pod whose containers say nothing."""
        status = {"phase": FAILED, "reason": "Evicted", "containerStatuses": None}
        self._patch(name, {"status": status})
        await self.settle()

    async def remove(self, *names: str) -> None:
        """Let pods be gone whose deletion was requested, with their processes."""
        for name in names or self.names:
            if "deletionTimestamp" in self.pod(name)["metadata"]:
                self.world.server.remove("pods", f"bert-{name}")
        await self.settle()

    async def report(self, name: str, **numbers: Any) -> None:
        """Report progress, as the node does it."""
        line = json.dumps({"progress": numbers})
        self._patch(name, {"metadata": {"annotations": {PROGRESS_ANNOTATION: line}}})
        await self.settle()

    async def change(self, run_policy: JSON) -> None:
        """Change the run policy of the job."""
        self.world.server.patch(self.world.plural, "bert", {"spec": {"runPolicy": run_policy}})
        await self.settle()

    async def scale(self, workers: int) -> None:
        self.world.server.patch(
            self.world.plural, "bert", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": workers}}}}
        )
        await self.settle()

    def record(self) -> None:
        """Record the versions of all objects that have changed."""
        body = self.world.body
        assert body is not None
        objects = {"pytorchjobs/default/bert": body} | {
            f"pods/default/{pod['metadata']['name']}": pod for pod in self.world.pods()
        }
        for path in [path for path in self._recorded if path not in objects]:
            del self._recorded[path]
            self.versions.append(TimedVersion(self.now, path, None))
        for path, found in objects.items():
            if self._recorded.get(path) != found:
                self._recorded[path] = found
                self.versions.append(TimedVersion(self.now, path, copy.deepcopy(found)))

    def _stamp(self) -> str:
        return self.world.server.timestamp()

    def _container(self, name: str) -> JSON:
        statuses = self.pod(name)["status"].get("containerStatuses") or [{}]
        container: JSON = statuses[0]
        return container

    def _end(self, name: str, code: int, phase: str) -> None:
        before = self._container(name)
        started = before.get("state", {}).get("running", {}).get("startedAt")
        ended = {"exitCode": code, "startedAt": started, "finishedAt": self._stamp()}
        last = {"lastState": before["lastState"]} if "lastState" in before else {}
        self._write(name, phase, {"terminated": ended}, int(before.get("restartCount", 0)), last)

    def _write(self, name: str, phase: str, state: JSON, count: int, more: JSON | None = None) -> None:
        container = {"name": "pytorch", "restartCount": count, "state": state, **(more or {})}
        self._patch(name, {"status": {"phase": phase, "containerStatuses": [container]}})

    def _patch(self, name: str, patch: JSON) -> None:
        self.world.server.patch("pods", f"bert-{name}", patch)

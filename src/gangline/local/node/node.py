"""Pods bound to this machine become processes; what becomes of them is written to their status."""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key, Object, Wire
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import supervise
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.local.node.plan import Step, step
from gangline.local.node.process import PodProcess, ProcessSpec
from gangline.runtime.informer import Delta, Informer

NAME = "local"


class EnvVar(Wire, frozen=True):
    name: str
    value: str = ""


class RunContainer(Wire, frozen=True):
    """What it takes to run a container, beyond what controllers cache."""

    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    working_dir: str = ""


class RunSpec(Wire, frozen=True):
    containers: tuple[RunContainer, ...] = ()


class RunPod(Object, frozen=True):
    spec: RunSpec = RunSpec()


RUN_PODS = Resource("", "v1", "Pod", "pods", RunPod)
"""Pods once more, with all it takes to run them."""


class Node:
    """This machine as the plane's one node. Inert until `run()`; leaving it ends every process it started."""

    def __init__(
        self, client: Client, pods: Informer[Pod], *, folder: Path, logs: Path, clock: Clock
    ) -> None:
        self._client, self._pods, self._clock = client, pods, clock
        self._folder, self._logs = folder, logs
        # By uid: a pod of the same name is another pod.
        self._processes: dict[str, PodProcess] = {}

    async def run(self) -> None:
        """Look at every pod whenever it changes."""
        changed: asyncio.Queue[Key] = asyncio.Queue()

        def tell(delta: Delta[Pod]) -> None:
            changed.put_nowait(delta.newest.metadata.key)

        try:
            with self._pods.subscribed(tell):
                async with asyncio.TaskGroup() as group:
                    while True:
                        key = await changed.get()
                        pod = self._pods.cache.get(key)
                        if pod is not None and pod.spec.node_name == NAME:
                            self._look(pod, group)
        finally:
            for process in self._processes.values():
                await asyncio.shield(process.stop(timedelta(seconds=0.5)))

    def _look(self, pod: Pod, group: asyncio.TaskGroup) -> None:
        process = self._processes.get(pod.metadata.uid)
        match step(pod, started=process is not None, alive=process is not None and process.alive):
            case Step.START:
                self._processes[pod.metadata.uid] = PodProcess(
                    ProcessSpec((), {}, self._folder, self._logs), self._clock
                )
                group.create_task(supervise(self._start(pod), f"pod {pod.metadata.key}"))
            case Step.STOP:
                assert process is not None
                group.create_task(supervise(self._stop(pod, process), f"pod {pod.metadata.key}"))
            case Step.RELEASE:
                group.create_task(supervise(self._release(pod), f"pod {pod.metadata.key}"))
            case Step.NOTHING:
                pass

    async def _start(self, pod: Pod) -> None:
        whole = await self._client.get(RUN_PODS, pod.metadata.key)
        container = whole.spec.containers[0]
        spec = ProcessSpec(
            command=(*container.command, *container.args),
            env=environment(container, pod, os.environ),
            folder=self._folder / container.working_dir,
            log=self._logs / pod.metadata.namespace / f"{pod.metadata.name}.log",
        )
        process = self._processes[pod.metadata.uid] = PodProcess(spec, self._clock)
        try:
            await process.start()
        except OSError as error:
            await self._report(pod, terminated(container.name, 127, f"{spec.command[:1]}: {error.strerror}"))
            return
        started = {"state": {"running": {"startedAt": self._stamp()}}, "name": container.name, "ready": True}
        await self._report(pod, {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [started]})
        code = await process.exit_code()
        await self._report(pod, terminated(container.name, code, "", self._stamp()))

    async def _stop(self, pod: Pod, process: PodProcess) -> None:
        await process.stop(timedelta(seconds=pod.spec.termination_grace_period_seconds))
        await self._release(pod)

    async def _release(self, pod: Pod) -> None:
        with suppress(NotFound):
            await self._client.delete(Pod, pod.metadata.key, uid=pod.metadata.uid, grace=timedelta())

    async def _report(self, pod: Pod, status: JSON) -> None:
        with suppress(NotFound):
            await self._client.patch(Pod, pod.metadata.key, {"status": status}, subresource="status")

    def _stamp(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def environment(container: RunContainer, pod: Pod, machine: Mapping[str, str]) -> dict[str, str]:
    """The machine's variables, then the container's; `python` is the one that runs gangline."""
    here = str(Path(sys.executable).parent)
    path = machine.get("PATH", os.defpath)
    given = {variable.name: variable.value for variable in container.env}
    return {**machine, "PATH": f"{here}{os.pathsep}{path}", "HOSTNAME": pod.metadata.name, **given}


def terminated(container: str, code: int, message: str, finished: str = "") -> JSON:
    """The status of a pod whose one container has ended."""
    state: JSON = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
    if message:
        state["message"] = message
    if finished:
        state["finishedAt"] = finished
    ended = {"name": container, "ready": False, "state": {"terminated": state}}
    return {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [ended]}

"""Containers as processes where that works, and from their images where a container engine can run them."""

import asyncio
import logging
import shutil
import subprocess
from collections.abc import Iterable, Mapping

from gangline.kube.config.access import PlaneAccess
from gangline.node.runtime.mpi import AGENT_VARIABLES
from gangline.node.runtime.podman import ContainerEngineRuntime
from gangline.node.runtime.process_runtime import ProcessRuntime
from gangline.node.runtime.runtime import (
    ContainerConfig,
    ContainerRuntime,
    ContainerTarget,
    ImageMissing,
    ProcessSpec,
    StartFailed,
)
from gangline.node.settings import ENGINES, LOCAL_IMAGE, NodeSettings

log = logging.getLogger(__name__)

ENGINE_TIMEOUT = 20.0


def find_engine() -> tuple[str, str]:
    """The first container engine of this machine that answers, or why there is none, in one line. Blocking."""
    reasons = []
    for kind in ENGINES:
        program = shutil.which(kind)
        if program is None:
            continue
        problem = engine_problem(program)
        if not problem:
            return kind, ""
        reasons.append(f"{kind}: {problem}")
    return "", "; ".join(reasons) or "neither is installed"


def engine_problem(program: str) -> str:
    """Why a container engine of this machine does not answer, in one line; empty if it does. Blocking."""
    try:
        done = subprocess.run([program, "version"], capture_output=True, text=True, timeout=ENGINE_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


class AutoRuntime:
    """Runs a container as a process, unless it needs a file that only its image has.

    What runs as a process on a machine without an engine runs as a process on every machine. An engine makes more
    files run, and changes nothing about the others. No engine is asked anything before it is needed.
    """

    def __init__(self, processes: ProcessRuntime, settings: NodeSettings, access: PlaneAccess | None = None) -> None:
        self._processes, self._settings, self._access = processes, settings, access
        self._engines: dict[str, ContainerEngineRuntime] = {}
        # The engine to use, once it is known; why there is none.
        self._usable: ContainerEngineRuntime | None = None
        self._reason = ""

    async def prepare(self, config: ContainerConfig) -> ContainerConfig:
        need = self._processes.image_need(config)
        if need is None or config.spec.image == LOCAL_IMAGE:
            return config
        if any(name in config.env for name in AGENT_VARIABLES):
            raise StartFailed(need.message("mpirun cannot start its daemons in their containers"))
        engine = await self._find_engine()
        if engine is None:
            raise StartFailed(need.message(self._reason))
        try:
            prepared = await engine.prepare(config)
        except ImageMissing as error:
            raise StartFailed(need.message(str(error))) from error
        log.info("container runs from its image", extra={"image": need.image, "engine": prepared.record.engine})
        return prepared

    async def _find_engine(self) -> ContainerEngineRuntime | None:
        """The first engine that answers. One that does not is not asked again by this node."""
        if self._usable is None and not self._reason:
            kind, self._reason = await asyncio.to_thread(find_engine)
            self._usable = self._engine(kind) if kind else None
        return self._usable

    def _engine(self, kind: str) -> ContainerEngineRuntime | None:
        if kind not in self._engines:
            program = shutil.which(kind)
            if program is None:
                return None
            self._engines[kind] = ContainerEngineRuntime(program, kind, self._settings, self._access)
        return self._engines[kind]

    def process_spec(self, config: ContainerConfig) -> ProcessSpec:
        return self._runtime_of(config).process_spec(config)

    def target(self, config: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        return self._runtime_of(config).target(config, spec, ports, pid)

    async def remove_lost(self, run_ids: Iterable[str]) -> None:
        ids = tuple(run_ids)
        for kind in ENGINES:
            engine = self._engine(kind)
            if engine is not None:
                await engine.remove_lost(ids)

    def _runtime_of(self, config: ContainerConfig) -> ContainerRuntime:
        """The runtime that the record of the run names, also of a run of an earlier node."""
        kind = config.record.engine
        if not kind:
            return self._processes
        engine = self._engine(kind)
        if engine is None:
            raise StartFailed(f"{kind} is not installed any more")
        return engine

"""The stacks of pods whose containers are processes of this machine."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from gangline.api.core import Pod
from gangline.node.checkpoint import PodFolder, RunFiles, StateFolder
from gangline.node.runtime.process import MARK_VARIABLE
from gangline.stacks.model import RankStack
from gangline.stacks.pods import containers, replica_name
from gangline.stacks.sampling import SampleTarget, sample_processes


class LocalStackSampler:
    """A `StackSampler` for the pods of one node, whose records are in `state`."""

    def __init__(self, state: Path, *, native: bool = False) -> None:
        self._state, self._native = state, native

    async def sample(self, pods: Sequence[Pod]) -> tuple[RankStack, ...]:
        """The stacks of the pods that run here, in their order; of other pods nothing.

        Ranks are those that the processes themselves know from their environment.
        """
        targets = local_targets(self._state, pods)
        return await sample_processes(targets, native=self._native) if targets else ()


def local_targets(state: Path, pods: Iterable[Pod]) -> list[SampleTarget]:
    """The processes to sample: of each pod that runs on this machine its training container's."""
    folders = {folder.uid: folder for folder in StateFolder(state).pods()}
    targets = []
    for pod in pods:
        folder = folders.get(pod.metadata.uid)
        run = training_run(folder, pod) if folder is not None else None
        start, record = (run.start_record(), run.run_record()) if run is not None else (None, None)
        if start is not None:
            mark = f"{MARK_VARIABLE}={record.id}" if record is not None else ""
            targets.append(SampleTarget(replica_name(pod), None, pod.metadata.name, start.pid, mark))
    return targets


def training_run(folder: PodFolder, pod: Pod) -> RunFiles | None:
    """The run of the container that trains; if it is not alive, of the first container that is."""
    for container in containers(pod):
        for files in reversed(folder.runs(container.name)):
            if files.lock.is_held():
                return files
    return None

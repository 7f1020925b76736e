"""The lines of a job's members, from the files that a node of this machine writes."""

from collections.abc import Collection, Iterator
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.cli.follow.follower import PodLine
from gangline.node.logs import NamespaceLogTail


class FileLogSource:
    """Lines of one job's pods, where there are pods of other jobs, too."""

    def __init__(self, state: Path, job: Key, others: Collection[str] = ()) -> None:
        self._tail, self._job = NamespaceLogTail(state), job
        # Jobs whose names begin with this one's: `a-b-worker-0` is not of `a` where there is an `a-b`.
        self._longer_prefixes = tuple(f"{name}-" for name in others if name.startswith(f"{job.name}-"))

    def update_pod(self, pod: Pod) -> None:
        """Its name says whose it is."""

    async def run(self) -> None:
        """Files are read when they are asked for."""

    async def drain(self) -> None:
        """What a process wrote is in its file when it has ended."""

    def new_lines(self) -> Iterator[PodLine]:
        for line in self._tail.lines(self._job.namespace):
            if self._is_member(line.pod):
                yield PodLine(line.pod, line.text)

    def close(self) -> None:
        self._tail.close()

    def _is_member(self, pod: str) -> bool:
        return pod.startswith(f"{self._job.name}-") and not pod.startswith(self._longer_prefixes or "/")

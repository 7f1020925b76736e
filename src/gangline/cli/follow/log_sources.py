"""The lines of a job's members, from the files that a node of this machine writes."""

from collections.abc import Collection, Iterator
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.cli.follow.follower import Said
from gangline.node.logs import Tail


class FileLines:
    """Lines of one job's pods, where there are pods of other jobs, too."""

    def __init__(self, state: Path, job: Key, others: Collection[str] = ()) -> None:
        self._tail, self._job = Tail(state), job
        # Jobs whose names begin with this one's: `a-b-worker-0` is not of `a` where there is an `a-b`.
        self._longer = tuple(f"{name}-" for name in others if name.startswith(f"{job.name}-"))

    def seen(self, pod: Pod) -> None:
        """Its name says whose it is."""

    async def read(self) -> None:
        """Files are read when they are asked for."""

    async def rest(self) -> None:
        """What a process wrote is in its file when it has ended."""

    def lines(self) -> Iterator[Said]:
        for line in self._tail.lines(self._job.namespace):
            if self._is_ours(line.pod):
                yield Said(line.pod, line.text)

    def close(self) -> None:
        self._tail.close()

    def _is_ours(self, pod: str) -> bool:
        return pod.startswith(f"{self._job.name}-") and not pod.startswith(self._longer or "/")

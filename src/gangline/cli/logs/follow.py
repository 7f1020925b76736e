"""`logs -f`: replicas that are there and those yet to come, until the job has ended."""

import asyncio
from contextlib import aclosing
from datetime import datetime, timedelta

from gangline.api.meta import JSON, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.cli.exit_codes import verdict
from gangline.cli.logs.command import Options, Writer, lines_of
from gangline.cli.output.job_rows import finished
from gangline.cli.output.log_lines import Merger
from gangline.cli.resources.lookup import PODS, FoundJob, find_job
from gangline.cli.resources.replicas import belongs, member, pods_of
from gangline.cli.resources.watch import changes
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound, ServerError, StreamBroken, Unreachable

FLUSH = timedelta(milliseconds=50)
RETRY = timedelta(milliseconds=500)
LAST = timedelta(seconds=2)
"""How long logs may go on once the job has ended: a kept replica need not end."""


async def follow(client: Client, namespace: str, word: str, options: Options) -> int:
    """Print until the job has ended. Gives the exit code. Raises `NotFound`."""
    job = await find_job(client, namespace, word)
    following = _Following(client, job, options, SystemClock())
    last = await following.run()
    return verdict(last) if options.exit_code else 0


class _Following:
    def __init__(self, client: Client, job: FoundJob, options: Options, clock: Clock) -> None:
        self._client, self._job, self._options, self._clock = client, job, options, clock
        self._merger, self._write = Merger(), Writer(options)
        # The newest of each pod, by uid; and who is being read.
        self._pods: dict[str, JSON] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> JSON | None:
        """The job as it was last; None if it was deleted before it ended."""
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._flush()), group.create_task(self._find(group))]
            last = await self._ended()
            # Those that the watch had not brought yet when the job ended.
            for pod in (await self._client.list(PODS, pods_of(self._job))).items:
                self._take(pod, group)
            await self._drain()
            for task in (*others, *self._readers.values()):
                task.cancel()
        for line in self._merger.rest():
            self._write(line)
        return last

    async def _ended(self) -> JSON | None:
        key = self._job.key
        where = Selector(key.namespace, fields=f"metadata.name={key.name}")
        async with aclosing(changes(self._client, self._job.resource, where)) as seen:
            there = False
            async for each in seen:
                if each.body is None:
                    if not there:
                        return None
                    continue
                there = True
                if each.deleted:
                    return each.body if finished(each.body) else None
                if finished(each.body):
                    return each.body
        return None

    async def _find(self, group: asyncio.TaskGroup) -> None:
        async with aclosing(changes(self._client, PODS, pods_of(self._job))) as seen:
            async for each in seen:
                if each.body is not None:
                    self._take(each.body, group, deleted=each.deleted)

    def _take(self, pod: JSON, group: asyncio.TaskGroup, *, deleted: bool = False) -> None:
        """Know a pod as it is now, and read it if it is one of those wanted."""
        if not belongs(self._job, pod):
            return
        uid, chosen = pod["metadata"]["uid"], self._options.replicas
        self._pods[uid] = {**pod, "gone": True} if deleted else pod
        wanted = not chosen or any(one.has(pod) for one in chosen)
        if wanted and uid not in self._readers and not deleted:
            self._readers[uid] = group.create_task(self._read(uid))

    async def _read(self, uid: str) -> None:
        """One replica to its end: again after a restart inside the pod, or when the connection broke."""
        name, last = member(self._job, self._pods[uid]), ""
        while True:
            ended = _ended(self._pods[uid])
            try:
                last = await self._lines(uid, name, last)
            except NotFound:
                return
            except (BadRequest, StreamBroken, Unreachable, ServerError):
                if ended:
                    return
            if ended:
                return
            await self._clock.sleep(RETRY)

    async def _lines(self, uid: str, name: str, last: str) -> str:
        # Lines may share a moment: only those of an earlier reading are left out.
        read, start = last, datetime.fromisoformat(f"{last[:26]}+00:00") if last else None
        options = self._options._replace(tail=None) if last else self._options
        async with aclosing(lines_of(self._client, self._pods[uid], name, options, start=start)) as lines:
            async for line in lines:
                if read and line.moment and line.moment <= read:
                    continue
                last = line.moment or last
                self._merger.add(line, self._clock.now())
        return last

    async def _drain(self) -> None:
        """Let what is being read come to its end, for a while."""
        running = [task for task in self._readers.values() if not task.done()]
        if running:
            await asyncio.wait(running, timeout=LAST.total_seconds())

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(FLUSH)
            for line in self._merger.due(self._clock.now()):
                self._write(line)


def _ended(pod: JSON) -> bool:
    """Whether nothing more will be said: then one more reading is enough."""
    gone = pod.get("gone") or pod["metadata"].get("deletionTimestamp")
    return bool(gone) or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

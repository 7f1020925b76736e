"""`logs -f`: replicas that are there and those yet to come, until the job has ended."""

import asyncio
from contextlib import aclosing
from datetime import datetime, timedelta

from gangline.api.meta import JSON, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.cli.exit_codes import job_exit_code
from gangline.cli.logs.command import LogPrinter, LogsFlags, read_pod_lines
from gangline.cli.output.job_rows import is_finished
from gangline.cli.output.log_lines import LineMerger
from gangline.cli.resources.lookup import PODS, ServerJob, find_job
from gangline.cli.resources.replicas import owns_pod, pod_selector, replica_name
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound, ServerError, StreamBroken, Unreachable

FLUSH_INTERVAL = timedelta(milliseconds=50)
RETRY_DELAY = timedelta(milliseconds=500)
DRAIN_TIMEOUT = timedelta(seconds=2)
"""How long logs may go on once the job has ended: a kept replica need not end."""


async def follow_logs(client: Client, namespace: str, word: str, options: LogsFlags) -> int:
    """Print until the job has ended. Gives the exit code. Raises `NotFound`."""
    job = await find_job(client, namespace, word)
    following = _LogFollower(client, job, options, SystemClock())
    last = await following.run()
    return job_exit_code(last) if options.exit_code else 0


class _LogFollower:
    def __init__(self, client: Client, job: ServerJob, options: LogsFlags, clock: Clock) -> None:
        self._client, self._job, self._options, self._clock = client, job, options, clock
        self._merger, self._write = LineMerger(), LogPrinter(options)
        # The newest of each pod, by uid; and who is being read.
        self._pods: dict[str, JSON] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> JSON | None:
        """The job as it was last; None if it was deleted before it ended."""
        async with asyncio.TaskGroup() as group:
            others = [group.create_task(self._flush()), group.create_task(self._watch_pods(group))]
            last = await self._wait_finished()
            # Those that the watch had not brought yet when the job ended.
            for pod in (await self._client.list(PODS, pod_selector(self._job))).items:
                self._update_pod(pod, group)
            await self._drain()
            for task in (*others, *self._readers.values()):
                task.cancel()
        for line in self._merger.drain():
            self._write(line)
        return last

    async def _wait_finished(self) -> JSON | None:
        key = self._job.key
        where = Selector(key.namespace, fields=f"metadata.name={key.name}")
        async with aclosing(watch_objects(self._client, self._job.resource, where)) as seen:
            there = False
            async for each in seen:
                if each.body is None:
                    if not there:
                        return None
                    continue
                there = True
                if each.deleted:
                    return each.body if is_finished(each.body) else None
                if is_finished(each.body):
                    return each.body
        return None

    async def _watch_pods(self, group: asyncio.TaskGroup) -> None:
        async with aclosing(watch_objects(self._client, PODS, pod_selector(self._job))) as seen:
            async for each in seen:
                if each.body is not None:
                    self._update_pod(each.body, group, deleted=each.deleted)

    def _update_pod(self, pod: JSON, group: asyncio.TaskGroup, *, deleted: bool = False) -> None:
        """Know a pod as it is now, and read it if it is one of those wanted."""
        if not owns_pod(self._job, pod):
            return
        uid, chosen = pod["metadata"]["uid"], self._options.replicas
        self._pods[uid] = {**pod, "gone": True} if deleted else pod
        wanted = not chosen or any(one.matches(pod) for one in chosen)
        if wanted and uid not in self._readers and not deleted:
            self._readers[uid] = group.create_task(self._read_pod(uid))

    async def _read_pod(self, uid: str) -> None:
        """One replica to its end: again after a restart inside the pod, or when the connection broke."""
        name, last = replica_name(self._job, self._pods[uid]), ""
        while True:
            ended = _has_ended(self._pods[uid])
            try:
                last = await self._read_lines(uid, name, last)
            except NotFound:
                return
            except (BadRequest, StreamBroken, Unreachable, ServerError):
                if ended:
                    return
            if ended:
                return
            await self._clock.sleep(RETRY_DELAY)

    async def _read_lines(self, uid: str, name: str, last: str) -> str:
        # Lines may share a moment: only those of an earlier reading are left out.
        read, start = last, datetime.fromisoformat(f"{last[:26]}+00:00") if last else None
        options = self._options._replace(tail=None) if last else self._options
        async with aclosing(read_pod_lines(self._client, self._pods[uid], name, options, start=start)) as lines:
            async for line in lines:
                if read and line.timestamp and line.timestamp <= read:
                    continue
                last = line.timestamp or last
                self._merger.add(line, self._clock.now())
        return last

    async def _drain(self) -> None:
        """Let what is being read come to its end, for a while."""
        running = [task for task in self._readers.values() if not task.done()]
        if running:
            await asyncio.wait(running, timeout=DRAIN_TIMEOUT.total_seconds())

    async def _flush(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_INTERVAL)
            for line in self._merger.due_lines(self._clock.now()):
                self._write(line)


def _has_ended(pod: JSON) -> bool:
    """Whether nothing more will be said: then one more reading is enough."""
    gone = pod.get("gone") or pod["metadata"].get("deletionTimestamp")
    return bool(gone) or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")

"""The logs of a team, read with the viewer's rights; after deletion, the ends of logs that the history keeps."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.tasks import for_each
from gangline.dashboard.live.log_follower import ContainerRun, LogFollower, LogPositions, readable_runs
from gangline.dashboard.live.past import Past
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.rows.log_page import EVERYTHING, AttemptLine, LogPage, LogQuery, log_page, merged_attempts
from gangline.dashboard.web.guard import Refused
from gangline.dashboard.web.jobs import query_number
from gangline.history.endings import split_lines
from gangline.kube.errors import BadRequest, KubeError, NotFound, Status
from gangline.kube.pods import PodSubresources
from gangline.summary.log_lines import normalized_time, parse_line
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import container_name, list_replicas, replica_name

MAX_LOG_BYTES = 2 * 1024 * 1024
"""The most that is read of one container's log for a page; the download has all of it."""
MAX_TEAM_BYTES = 64 * 1024 * 1024
AT_ONCE = 8
MAX_LIMIT = 5000


def log_query(request: web.Request) -> LogQuery:
    """The query of a request. Raises `Refused`."""
    query = request.query
    ends = [_time(request, "to"), _time(request, "at")]
    return LogQuery(
        replicas=tuple(filter(None, query.get("replica", "").split(","))),
        start=_time(request, "from"),
        end=min(filter(None, ends), default=""),
        search=query.get("search", ""),
        fold=query.get("fold", "true") != "false",
        limit=min(query_number(request, "limit", 500), MAX_LIMIT) or 1,
        cursor=str(query_number(request, "cursor", 0)),
        tail=query_number(request, "tail", 0) or None,
    )


def _time(request: web.Request, name: str) -> str:
    text = request.query.get(name, "")
    if not text:
        return ""
    try:
        # A plus in a query is a space.
        normalized = normalized_time(text.replace(" ", "+"))
        datetime.fromisoformat(f"{normalized[:26]}+00:00")
    except (ValueError, OverflowError):
        raise Refused(400, f"{name}: {text[:40]!r} is no time; write 2026-01-02T15:04:05Z") from None
    return normalized


async def read_page(
    viewer: Viewer, past: Past | None, kind: Resource[JSON], key: Key, query: LogQuery, uid: str = ""
) -> LogPage:
    """A page of the merged logs of a job's pods; of a job that is gone, the recorded ends of its logs."""
    positions = LogPositions()
    try:
        lines, not_read = await read_lines(viewer, kind, key, query, uid, positions)
    except NotFound:
        if past is None:
            raise
        lines, not_read = await recorded_lines(past, kind, key, uid)
        return log_page(lines, query, not_read)
    page = log_page(lines, query, not_read)
    if page.more or query.end:
        return page
    return msgspec.structs.replace(page, follow=viewer.log_positions.save(positions))


async def log_follower(viewer: Viewer, kind: Resource[JSON], key: Key, query: LogQuery, identity: str) -> LogFollower:
    """Follows the logs of a job from the end of a page on. Raises `Refused` for a page that is forgotten."""
    positions = viewer.log_positions.take(identity)
    if positions is None:
        raise Refused(410, "the page of logs is too old to be continued; load it again")
    job = ServerJob(kind, await viewer.client.get(kind, key))
    return LogFollower(viewer.client, viewer.rights, viewer.watches, viewer.clock, job, query, positions)


async def recorded_lines(
    past: Past, kind: Resource[JSON], key: Key, uid: str = ""
) -> tuple[list[AttemptLine], list[str]]:
    """The recorded ends of the logs of a job."""
    sources: list[list[AttemptLine]] = []
    for end in await past.log_ends(kind, key, uid):
        replica = end.pod.removeprefix(f"{key.name}-")
        stamp = normalized_time(datetime.fromtimestamp(end.at, UTC).isoformat())
        parsed = [parse_line(replica, line.removesuffix("\n").encode()) for line in split_lines(end.text)]
        timed = [line if line.timestamp else line._replace(timestamp=stamp) for line in parsed]
        sources.append([AttemptLine(line, end.attempt) for line in timed])
    note = "only the ends of logs are kept after a job is deleted"
    return list(merged_attempts(sources)), [note] if sources else ["no logs were recorded"]


async def read_lines(
    viewer: Viewer,
    kind: Resource[JSON],
    key: Key,
    query: LogQuery = EVERYTHING,
    uid: str = "",
    positions: LogPositions | None = None,
) -> tuple[list[AttemptLine], list[str]]:
    """The lines of all replicas that a query may match, merged by time, and what could not be read. Raises `NotFound`.

    Up to where each log was read is noted in `positions`.
    """
    job = ServerJob(kind, await viewer.client.get(kind, key))
    if uid and job.body["metadata"].get("uid") != uid:
        raise NotFound(Status(code=404, message=f"{job.display_name}: there is another job of that name now"))
    pods = await list_replicas(viewer.client, job)
    sources: list[list[AttemptLine]] = []
    not_read: list[str] = []
    budget = min(max(MAX_TEAM_BYTES // max(len(pods), 1), 64 * 1024), MAX_LOG_BYTES)

    async def read(pod: JSON) -> None:
        replica = replica_name(job, pod)
        if not query.has_replica(replica):
            return
        for run in readable_runs(pod):
            lines, problem = await _read_log(viewer, run, replica, budget, query)
            sources.append(lines)
            if problem:
                not_read.append(problem)
            if positions is not None:
                positions.set(run.id, None if problem else max((item.line.timestamp for item in lines), default=""))

    await for_each(pods, read, at_once=AT_ONCE)
    return list(merged_attempts(sources)), sorted(not_read)


async def _read_log(
    viewer: Viewer, run: ContainerRun, replica: str, most: int, query: LogQuery
) -> tuple[list[AttemptLine], str]:
    metadata = run.pod["metadata"]
    stream = PodSubresources(viewer.client).logs(
        Key(metadata["namespace"], metadata["name"]),
        container=container_name(run.pod),
        previous=run.previous,
        timestamps=True,
        tail=query.tail,
        since=_since(query),
        limit_bytes=most,
    )
    lines: list[AttemptLine] = []
    size = 0
    try:
        async with aclosing(stream):
            async for raw in stream:
                size += len(raw) + 1
                lines.append(AttemptLine(parse_line(replica, raw), run.id.attempt))
    except (BadRequest, NotFound):
        return lines, ""  # It has not started, or its log is gone.
    except KubeError as error:
        return lines, f"{replica}: {' '.join(str(error).split())}"
    if size >= most - 1024:
        return lines, f"{replica}: only the first {most // 1024} KiB of its log are shown; download it for all"
    return lines, ""


def _since(query: LogQuery) -> datetime | None:
    return datetime.fromisoformat(f"{query.start[:26]}+00:00") if query.start else None


async def download(
    viewer: Viewer, past: Past | None, kind: Resource[JSON], key: Key, query: LogQuery = EVERYTHING, uid: str = ""
) -> AsyncIterator[bytes]:
    """The logs of a job that a query asks for, pod after pod, each line with its replica and time; unfolded."""
    try:
        job = ServerJob(kind, await viewer.client.get(kind, key))
        if uid and job.body["metadata"].get("uid") != uid:
            raise NotFound(Status(code=404, message=f"{job.display_name}: there is another job of that name now"))
    except NotFound:
        if past is None:
            raise
        for item in (await recorded_lines(past, kind, key, uid))[0]:
            if not query.matches(item.line):
                continue
            yield f"{item.line.replica}#{item.attempt}| {item.line.timestamp} {item.line.text}\n".encode()
        return
    for pod in await list_replicas(viewer.client, job):
        replica, metadata = replica_name(job, pod), pod["metadata"]
        for run in readable_runs(pod) if query.has_replica(replica) else ():
            attempt = run.id.attempt
            stream = PodSubresources(viewer.client).logs(
                Key(metadata["namespace"], metadata["name"]),
                container=container_name(pod),
                previous=run.previous,
                timestamps=True,
                since=_since(query),
            )
            try:
                async with aclosing(stream):
                    async for raw in stream:
                        if not query.filters_lines or query.matches(parse_line(replica, raw)):
                            yield f"{replica}#{attempt}| ".encode() + raw + b"\n"
            except (BadRequest, NotFound):
                continue
            except KubeError as error:
                yield f"{replica}#{attempt}| not read: {' '.join(str(error).split())}\n".encode()

"""The endpoints that a viewer with a session uses. Each reads and writes with the viewer's own credentials."""

import asyncio
from datetime import UTC, datetime

import msgspec
from aiohttp import web

from gangline import __version__
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.dashboard.live.feed import Feed
from gangline.dashboard.live.rights import Refusal
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.rows.job_row import JobRow, ViewStruct
from gangline.dashboard.rows.why import WhyView, uneventful_view, why_view
from gangline.dashboard.settings import DashboardSettings, LoginMethod
from gangline.dashboard.web import actions, jobs, logs
from gangline.dashboard.web.curves import read_curves
from gangline.dashboard.web.guard import Refused, json_response
from gangline.dashboard.web.streams import send_log_lines, send_stream
from gangline.kube.errors import NotFound
from gangline.summary.objects import JOB_KINDS
from gangline.why.diagnosis.report import Diagnosis

MAX_FILE_BYTES = 2 * 1024 * 1024


class SessionView(ViewStruct, frozen=True):
    """What a page must know before it shows anything."""

    version: str
    user: str
    # Whether it runs on the viewer's own machine, with the viewer's own credentials.
    local: bool
    # None: the viewer may not list them.
    namespaces: tuple[str, ...] | None
    can_see_all_namespaces: bool
    # The namespace to show first; empty: all.
    namespace: str
    history: bool
    # Which of submit and fit this dashboard can do.
    tools: list[str]
    refused: list[Refusal]


class FileBody(msgspec.Struct, frozen=True, rename="camel"):
    """A submitted file."""

    yaml: str
    namespace: str = ""
    dry_run: bool = False


class ViewerEndpoints:
    """Handlers of requests, with the viewer who sends them."""

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._stream_count = 0

    async def session(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Who looks, and what there is to see."""
        rights, tools = viewer.rights, self._settings.tools
        scope = await rights.read_scope(JOB_KINDS[0])
        view = SessionView(
            version=__version__,
            user=await rights.user(),
            local=self._settings.login is LoginMethod.LINK,
            namespaces=await rights.namespaces(),
            can_see_all_namespaces=scope.everywhere,
            namespace=self._settings.namespace,
            history=viewer.past is not None,
            tools=[name for name in ("submit", "fit") if getattr(tools, name) is not None],
            refused=list(scope.refusals),
        )
        return json_response(view)

    async def stream(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        """A view, live."""
        match request.query.get("view", "board"):
            case "board":
                async with viewer.board(jobs.query_namespace(request)) as board:
                    return await self._send(request, board)
            case "job":
                async with viewer.job(*jobs.parse_job_id(request.query.get("id", ""))) as page:
                    return await self._send(request, page)
            case "cluster":
                async with viewer.cluster() as cluster:
                    return await self._send(request, cluster)
            case other:
                raise Refused(400, f"view: {other[:40]!r} is none; write board, job or cluster")

    async def _send(self, request: web.Request, feed: Feed) -> web.StreamResponse:
        limits = self._settings.limits
        if self._stream_count >= limits.streams or feed.subscriber_count >= limits.streams_per_view:
            raise Refused(503, "too many pages are open; close some")
        self._stream_count += 1
        try:
            return await send_stream(request, feed, limits)
        finally:
            self._stream_count -= 1

    # Jobs

    async def jobs(self, request: web.Request, viewer: Viewer) -> web.Response:
        """A page of rows: of jobs that exist, with `history` also of those that are gone, with `at` as they were then."""
        wanted, namespace, moment = jobs.job_filter(request), jobs.query_namespace(request), _moment(request)
        if moment is not None:
            if viewer.past is None:
                raise Refused(404, "there is no history here")
            return json_response(wanted.page(await viewer.past.rows_at(moment, namespace)))
        async with viewer.board(namespace) as feed:
            await feed.wait_until_ready()
            rows = {row.uid: row for row in feed.rows()}
        if viewer.past is not None and request.query.get("history") == "true":
            rows = await self._with_past(viewer, namespace, rows)
        return json_response(wanted.page(rows.values()))

    async def _with_past(self, viewer: Viewer, namespace: str, rows: dict[str, JobRow]) -> dict[str, JobRow]:
        assert viewer.past is not None
        recorded = {row.uid: msgspec.structs.replace(row, deleted=True) for row in await viewer.past.rows(namespace)}
        return {**recorded, **rows}

    async def job(self, request: web.Request, viewer: Viewer) -> web.Response:
        """All about a job; from the history if it is gone, if `uid` names an earlier one, or at the moment `at`."""
        kind, key = jobs.job_address(request)
        uid, moment = request.query.get("uid", ""), _moment(request)
        if moment is None:
            try:
                async with viewer.job(kind, key) as feed:
                    await feed.wait_until_ready()
                    feed.publish_now()
                    detail = feed.content()
                if not uid or detail.row.uid == uid:
                    return json_response(detail)
            except NotFound:
                if viewer.past is None:
                    raise
        if viewer.past is None:
            raise Refused(404, f"{kind.name} {key}: there is no such job, and no history here")
        at = moment or viewer.clock.now()
        return json_response(await viewer.past.detail(kind, key, uid, at, past=moment is not None))

    async def why(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Why a job waits, fails or hangs; of a job that is gone, what was recorded."""
        kind, key = jobs.job_address(request)
        uid, moment = request.query.get("uid", ""), _moment(request)
        try:
            if moment is None and not uid:
                return json_response(await self._diagnosis(viewer, kind, key))
        except NotFound:
            if viewer.past is None:
                raise
        if viewer.past is None:
            raise Refused(404, "there is no history here")
        return json_response(await self._recorded_diagnosis(viewer, kind, key, uid, moment))

    async def _diagnosis(self, viewer: Viewer, kind: Resource[JSON], key: Key) -> WhyView:
        # Imported here: the rules load slowly, and not every visit needs them.
        from gangline.why.collect import JobNotFound, collect
        from gangline.why.diagnosis.diagnose import diagnose

        await viewer.client.get(kind, key)
        try:
            case = await collect(viewer.client, f"{kind.kind.lower()}/{key.name}", key.namespace, viewer.clock)
        except JobNotFound as error:
            raise Refused(404, str(error)) from None
        return why_view(await asyncio.to_thread(diagnose, case))

    async def _recorded_diagnosis(
        self, viewer: Viewer, kind: Resource[JSON], key: Key, uid: str, moment: datetime | None
    ) -> WhyView:
        assert viewer.past is not None
        verdicts = await viewer.past.verdicts(kind, key, uid)
        verdicts = [each for each in verdicts if moment is None or each.at <= moment.timestamp()]
        if not verdicts:
            versions, _ = await viewer.past.versions(kind, key, uid)
            if not versions:
                raise Refused(404, f"{kind.name} {key}: nothing was recorded about it")
            return uneventful_view(f"{kind.kind} {key}")
        try:
            return why_view(msgspec.convert(verdicts[-1].report, Diagnosis))
        except msgspec.ValidationError:
            message = f"{kind.name} {key}: what was recorded about why is of another version of gangline"
            raise Refused(404, message) from None

    async def logs(self, request: web.Request, viewer: Viewer) -> web.Response:
        """A page of the team's logs."""
        kind, key = jobs.job_address(request)
        uid = request.query.get("uid", "")
        return json_response(await logs.read_page(viewer, viewer.past, kind, key, logs.log_query(request), uid))

    async def log_stream(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        """The lines that come after a page of logs, as they are written."""
        kind, key = jobs.job_address(request)
        limits = self._settings.limits
        if self._stream_count >= limits.streams or viewer.log_streams >= limits.log_streams_per_viewer:
            raise Refused(503, "too many pages follow logs; close some")
        self._stream_count += 1
        viewer.log_streams += 1
        try:
            follow = request.query.get("follow", "")
            follower = await logs.log_follower(viewer, kind, key, logs.log_query(request), follow)
            return await send_log_lines(request, follower, viewer.clock, limits)
        finally:
            viewer.log_streams -= 1
            self._stream_count -= 1

    async def download(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        """The logs of a job, as a file: all, or those of replicas or of a span of time."""
        kind, key = jobs.job_address(request)
        query = logs.log_query(request)
        lines = logs.download(viewer, viewer.past, kind, key, query, request.query.get("uid", ""))
        first = await anext(lines, b"")  # an error is an answer as long as nothing is sent
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/plain; charset=utf-8",
                "Content-Disposition": f'attachment; filename="{_file_name(key.name)}.log"',
            }
        )
        await response.prepare(request)
        await response.write(first)
        async for line in lines:
            await response.write(line)
        return response

    async def curves(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Reported numbers over steps or time, and the CPU and memory that were used."""
        return json_response(await read_curves(request, viewer, *jobs.job_address(request), _moment(request)))

    async def act(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Suspend, resume, restart, scale or delete a job."""
        # A viewer who leaves does not stop half of it.
        return await asyncio.shield(actions.act(request, viewer, *jobs.job_address(request)))

    # The cluster

    async def cluster(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Nodes, and what is on them; with `at`, as they were then."""
        moment = _moment(request)
        if moment is not None:
            if viewer.past is None:
                raise Refused(404, "there is no history here")
            return json_response(await viewer.past.cluster_at(moment))
        async with viewer.cluster() as feed:
            await feed.wait_until_ready()
            feed.publish_now()
            return json_response(feed.content())

    async def fit(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Whether the jobs of a file would fit now."""
        fit = self._settings.tools.fit
        if fit is None:
            raise Refused(404, "this dashboard cannot tell whether a job fits")
        body = await _file(request)
        return json_response(await fit(viewer.client, body.yaml, body.namespace or viewer.connection.namespace))

    async def submit(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Check the objects of a file, and create or update them unless `dryRun`."""
        submit = self._settings.tools.submit
        if submit is None:
            raise Refused(404, "nothing can be submitted to this dashboard")
        body = await _file(request)
        namespace = body.namespace or viewer.connection.namespace
        return json_response(await asyncio.shield(submit(viewer.client, body.yaml, namespace, body.dry_run)))

    async def sweeps(self, request: web.Request, viewer: Viewer) -> web.Response:
        """All sweeps, or the one in the path, with their trials."""
        name, namespace = request.match_info.get("name", ""), jobs.query_namespace(request)
        recorded = await viewer.past.trials(namespace) if viewer.past is not None else ()
        async with viewer.board(namespace) as feed:
            await feed.wait_until_ready()
            sweeps = [sweep for sweep in feed.sweeps(recorded) if name in ("", sweep.name)]
        if name and not sweeps:
            raise Refused(404, f"{name[:80]}: there is no such sweep")
        return json_response(sweeps[0] if name else {"sweeps": sweeps})


async def _file(request: web.Request) -> FileBody:
    content = await request.read()
    if len(content) > MAX_FILE_BYTES:
        raise Refused(413, f"the file is larger than {MAX_FILE_BYTES // 1024} KiB")
    body: FileBody = actions.read_body(content, FileBody)
    return body


def _moment(request: web.Request) -> datetime | None:
    """The time of `?at=`. Raises `Refused`."""
    text = request.query.get("at", "").replace(" ", "+")  # a plus in a query is a space
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(400, f"at: {text[:40]!r} is no time; write 2026-01-02T15:04:05Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _file_name(text: str) -> str:
    return "".join(letter for letter in text if letter.isalnum() or letter in "-.")[:100]

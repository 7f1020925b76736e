"""The endpoints of jobs: pages of rows, and all about one job."""

import re
from collections.abc import Iterable

from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.dashboard.rows.job_row import JobRow, ViewStruct
from gangline.dashboard.web.guard import Refused
from gangline.summary.objects import JOB_KINDS

MAX_PAGE = 500
MAX_DIGITS = 15
"""Of a number in a query: longer ones do not fit where they are used."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
KINDS_BY_PLURAL = {kind.plural: kind for kind in JOB_KINDS}


class JobPage(ViewStruct, frozen=True):
    """Some of the jobs that match."""

    total: int
    rows: list[JobRow]


class JobFilter(ViewStruct, frozen=True):
    """Which jobs, and which of their page."""

    state: str = ""
    kind: str = ""
    text: str = ""
    offset: int = 0
    limit: int = 100

    def page(self, rows: Iterable[JobRow]) -> JobPage:
        """The page of those rows that match, newest first."""
        matching = sorted(filter(self._matches, rows), key=lambda row: row.created_at or "", reverse=True)
        return JobPage(total=len(matching), rows=matching[self.offset : self.offset + self.limit])

    def _matches(self, row: JobRow) -> bool:
        if self.state and row.state.lower() != self.state.lower():
            return False
        if self.kind and self.kind.lower() not in (row.kind.lower(), row.plural):
            return False
        return self.text.lower() in f"{row.id} {row.reason} {row.queue}".lower()


def job_filter(request: web.Request) -> JobFilter:
    """The filter of a request. Raises `Refused`."""
    query = request.query
    return JobFilter(
        state=query.get("state", ""),
        kind=query.get("kind", ""),
        text=query.get("text", ""),
        offset=query_number(request, "offset", 0),
        limit=min(query_number(request, "limit", 100), MAX_PAGE),
    )


def query_number(request: web.Request, name: str, default: int) -> int:
    """A number in the query. Raises `Refused`."""
    text = request.query.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise Refused(400, f"{name}: {text[:40]!r} is no number")
    return int(text)


def job_address(request: web.Request) -> tuple[Resource[JSON], Key]:
    """The job in the path of a request. Raises `Refused` for a kind that is no training job."""
    parts = request.match_info
    return _address(parts["namespace"], parts["plural"], parts["name"])


def parse_job_id(text: str) -> tuple[Resource[JSON], Key]:
    """The job of an id, `NAMESPACE/PLURAL/NAME`. Raises `Refused`."""
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise Refused(400, f"id: {text[:80]!r} is none; write NAMESPACE/PLURAL/NAME")
    return _address(*parts)


def _address(namespace: str, plural: str, name: str) -> tuple[Resource[JSON], Key]:
    kind = KINDS_BY_PLURAL.get(plural)
    if kind is None:
        raise Refused(404, f"{plural[:80]}: no kind of training job; there are {', '.join(KINDS_BY_PLURAL)}")
    for text in (namespace, name):
        _require_name(text)
    return kind, Key(namespace, name)


def query_namespace(request: web.Request) -> str:
    """The namespace in the query; empty: all. Raises `Refused`."""
    namespace = request.query.get("namespace", "")
    if namespace:
        _require_name(namespace)
    return namespace


def _require_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise Refused(404, f"{text[:80]!r}: nothing has such a name")

"""The servers of a history: a folder may have the objects of several, which may have jobs of one name."""

from collections.abc import Iterable
from datetime import UTC, datetime

from gangline.apiserver.store.paths import split_path
from gangline.base.errors import InputError
from gangline.cli.history.moments import moment_text
from gangline.history.reader import HistoryReader
from gangline.history.records import RecordedSpan
from gangline.history.selection import is_listed_job

SHORT_ID = 8


def choose_server(reader: HistoryReader, beginning: str) -> str:
    """The server whose name is that, or begins with it. Raises `InputError`."""
    sources = dict.fromkeys(span.source for span in reader.spans())
    matching = [source for source in sources if source.startswith(beginning)]
    if beginning in matching or len(matching) == 1:
        return beginning if beginning in matching else matching[0]
    names = ", ".join(_short_names(sources).values())
    problem = "is the beginning of several servers" if matching else "is no server of this history"
    raise InputError(f"--server {beginning}: {problem}; write one of {names}" if names else "there is no history")


def require_one_server_per_job(reader: HistoryReader, at: float) -> None:
    """Raise `InputError` if two servers had a job of the same kind and name at a moment: one of them must be chosen."""
    spans = [span for span in reader.spans() if span.start <= at <= span.end]
    if len({span.source for span in spans}) < 2:
        return
    owners: dict[str, dict[str, str]] = {}
    for source, objects in reader.servers_at(at).items():
        for path, body in objects.items():
            if is_listed_job(path, body):
                owners.setdefault(path, {})[source] = str(body["metadata"].get("uid", ""))
    clash = next((path for path, uids in owners.items() if len(set(uids.values())) > 1), None)
    if clash is None:
        return
    where, names = split_path(clash), _short_names(span.source for span in reader.spans())
    moment = datetime.fromtimestamp(at, UTC)
    newest = {span.source: span for span in spans if span.source in owners[clash]}
    chosen = sorted(newest.values(), key=lambda span: (span.start, span.source))
    choices = " or ".join(f"--server {names[span.source]} ({_since(span, moment)})" for span in chosen)
    raise InputError(
        f"{moment_text(moment, moment)}: {len(owners[clash])} servers had {where.plural} {where.namespace}/{where.name};"
        f" add {choices}"
    )


def _short_names(sources: Iterable[str]) -> dict[str, str]:
    """The addresses of clusters in full; of ids the shortest beginnings, of at least eight characters, that tell them apart."""
    every = list(dict.fromkeys(sources))
    length = SHORT_ID
    ids = [source for source in every if "://" not in source]
    while len({source[:length] for source in ids}) < len(ids):
        length += 1
    return {source: source if "://" in source else source[:length] for source in every}


def _since(span: RecordedSpan, now: datetime) -> str:
    return f"recorded from {moment_text(datetime.fromtimestamp(span.start, UTC), now)}"

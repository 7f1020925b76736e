"""A read-only API server of a recorded moment: every client that reads sees the objects as they were then."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import split_path
from gangline.base.clock import SystemClock
from gangline.history.endings import lines_until
from gangline.history.reader import HistoryReader
from gangline.kube.podstreams import ContainerRef, LogOptions, NoLogs
from gangline.local.archive.runs import archive_folders
from gangline.local.archive.server import ArchivedStreams, crd_path, serve_objects
from gangline.local.plane import AuthorizationMode, ControlPlane, PlaneSettings
from gangline.node.logs import NodeLogReader

BUILTIN_GROUPS = ("", "batch")
"""Groups of recorded objects that a server has without a definition."""


class PastClock(SystemClock):
    """A clock that stands still: ages are those of a moment."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


@asynccontextmanager
async def past_plane(
    reader: HistoryReader,
    moment: datetime,
    definitions: Iterable[JSON],
    home: Path,
    settings: PlaneSettings = PlaneSettings(),  # noqa: B008 - frozen
) -> AsyncIterator[ControlPlane]:
    """A server of the objects of a moment, until the block ends. Nobody can write to it.

    `definitions` are CRDs of the kinds that we know. `home` is the folder of the plane: where it still has the complete
    log of a container, that is served; else the end of the log, which is in the history.
    """
    recorded = reader.objects_at(moment.timestamp())
    objects = {path: body for path, body in recorded.items() if _is_servable(path)}
    known = {crd_path(crd["metadata"]["name"]): crd for crd in definitions}
    missing = [crd for crd in guessed_definitions(objects) if crd_path(crd["metadata"]["name"]) not in known]
    clock = PastClock(moment)
    files = [NodeLogReader(folder, clock) for folder in (home / "pods", *archive_folders(home / "runs"))]
    streams = PastStreams(reader, moment, files)
    settings = msgspec.structs.replace(settings, authorization_mode=AuthorizationMode.READ_ONLY)
    async with serve_objects(objects, [*known.values(), *missing], streams, clock, settings) as plane:
        yield plane


def _is_servable(path: str) -> bool:
    """Whether an object can be served: groups of Kubernetes itself need a server that has them."""
    group = split_path(path).group
    return group in BUILTIN_GROUPS or not group.endswith(".k8s.io") or group.endswith(".x-k8s.io")


def guessed_definitions(objects: dict[str, JSON]) -> list[JSON]:
    """A CRD for each kind among objects that a server does not have by itself. It accepts every field."""
    guesses: dict[str, JSON] = {}
    for path, body in objects.items():
        where = split_path(path)
        if where.group not in BUILTIN_GROUPS:
            name = f"{where.plural}.{where.group}"
            guesses.setdefault(name, _guessed_definition(name, where.namespace != "", body))
    return list(guesses.values())


def _guessed_definition(name: str, namespaced: bool, body: JSON) -> JSON:
    plural, _, group = name.partition(".")
    kind, version = str(body.get("kind", "")), str(body.get("apiVersion", "")).rpartition("/")[2]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    conditions = [{"type": condition, "status": "True"} for condition in ("NamesAccepted", "Established")]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "uid": f"guessed-{name}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if namespaced else "Cluster",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
        "status": {"conditions": conditions, "acceptedNames": names, "storedVersions": [version]},
    }


class PastStreams(ArchivedStreams):
    """The streams of pods at a moment: of their logs, what had been printed by then."""

    def __init__(self, reader: HistoryReader, moment: datetime, files: Sequence[NodeLogReader]) -> None:
        self._history, self._moment, self._files = reader, moment, files

    def logs(self, ref: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """What a run had printed by then, or the end of it. Raises `NoLogs` at once if nothing of it was kept."""
        return self._select(self._file_log(ref, run) or self._recorded_end(ref, run), options)

    def _file_log(self, ref: ContainerRef, run: str) -> AsyncGenerator[bytes, None] | None:
        for files in self._files:
            with suppress(NoLogs):
                return files.read_run(ref.key, ref.uid, ref.container, run, LogOptions(timestamps=True))
        return None

    def _recorded_end(self, ref: ContainerRef, run: str) -> str:
        for end in self._history.pod_log_ends(ref.uid, self._moment.timestamp()):
            if end.container == ref.container and end.run.rpartition("//")[2] == run:
                return end.text
        raise NoLogs(f'nothing is recorded of the log of container "{ref.container}" in pod "{ref.key.name}"')

    async def _select(self, log: AsyncGenerator[bytes, None] | str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        if not isinstance(log, str):
            async with aclosing(log) as chunks:
                log = b"".join([chunk async for chunk in chunks]).decode(errors="replace")
        lines = lines_until(log, self._moment)
        if options.since is not None:
            since = options.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
            lines = [line for line in lines if line >= since]
        if options.tail is not None:
            lines = lines[max(0, len(lines) - options.tail) :]
        if not options.timestamps:
            lines = [line.partition(" ")[2] for line in lines]
        data = "".join(lines).encode()
        yield data if options.limit_bytes is None else data[: options.limit_bytes]

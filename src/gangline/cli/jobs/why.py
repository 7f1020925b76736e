"""`gangline why`: one cause, the evidence, the next step."""

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from gangline.api.meta import Selector
from gangline.base.errors import InputError
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import NOT_FOUND, Place, ServerOptions, converse, server_options
from gangline.cli.flags.verb import verb
from gangline.cli.output.log_lines import tamed
from gangline.cli.output.tables import colours
from gangline.kube.client import Client
from gangline.why.model.case import Case
from gangline.why.model.report import Cause, Report

FOUND, HEALTHY = 0, 3
WELL = "Nothing is wrong."
PARTLY = "Nothing wrong was found, but not everything could be read."
NEEDED = ("pods:", "events:", "log of")
"""Without these nobody can say that all is well."""
LABELS = 10
"""Columns before the text."""
NARROWEST = 40
_KUBECTL = re.compile(r"\bkubectl (?=[a-z])")
_OURS = re.compile(r"\bgangline (?:apply|delete|describe|get|logs|restart|resume|scale|suspend) ")


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from gangline.cli.completion.candidates import jobs

    return jobs(context, parameter, incomplete)


@verb()
@click.argument("job", metavar="[KIND/]NAME", shell_complete=_complete)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="For people, or for programs.",
)
@click.option(
    "--hung-after",
    type=DURATION,
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="No line and no CPU for so long is a hang.",
)
@server_options
def why(job: str, form: str, hung_after: timedelta, server: ServerOptions) -> int:
    r"""Say why a job waits, fails or hangs: one cause, the evidence, the next step.

    Reads only, and needs nothing installed: it works on every cluster, whoever runs its jobs, for the six kinds of
    training job and for Job, JobSet, TrainJob and Volcano's Job. It finds who failed first, and leaves out those who
    only lost a peer.

    \b
      gangline why linear
      gangline why pytorchjob/bert -n team-a
      gangline why job.batch/convert -o json

    Exit codes: 0 a cause was found; 3 nothing is wrong; 102 no such job; 1 an error.
    """

    async def work(client: Client, place: Place) -> int:
        from gangline.base.clock import SystemClock
        from gangline.why.collect import NoSuchJob, collect
        from gangline.why.diagnose import diagnose
        from gangline.why.model.case import Patience

        try:
            case = await collect(client, job, place.home, SystemClock(), Patience(hung=hung_after))
        except NoSuchJob as error:
            click.echo(f"error: {error}; see what there is: gangline get jobs -A", err=True)
            return NOT_FOUND
        report = reachable(diagnose(await metered(client, place, case)), server, place)
        click.echo(as_json(report) if form == "json" else screen(report), nl=False)
        return HEALTHY if report.healthy else FOUND

    return converse(server, work, missing=NOT_FOUND, as_it_was=True)


async def metered(client: Client, place: Place, case: Case) -> Case:
    """The case of a silent team on this machine, with the CPU that it uses; every other case as it is."""
    from gangline.why.rules.no_progress import silent

    if place.local is None or not silent(case):
        return case
    from gangline.api.quantity import Quantity
    from gangline.cli.jobs.top import measured

    metadata = [one.pod.metadata for one in case.replicas]
    bodies = [
        {"metadata": {"uid": one.uid, "namespace": one.namespace, "name": one.name}} for one in metadata
    ]
    try:
        uses = await measured(client, place, Selector(namespace=case.job.namespace), bodies)
    except InputError:
        return case
    cores = {uid: Quantity.of(f"{round(use.cores * 1000)}m") for uid, use in uses.items()}
    replicas = [
        msgspec.structs.replace(one, cpu=cores.get(one.pod.metadata.uid, one.cpu)) for one in case.replicas
    ]
    return msgspec.structs.replace(case, replicas=tuple(replicas))


def reachable(report: Report, server: ServerOptions, place: Place) -> Report:
    """The report with commands that reach the server it is about when they are typed as they stand.

    kubectl does not know the plane of this machine: it would say that there is no server, or act on another one. Of what
    a run left it can read nothing at all: there such steps are left out.
    """
    given = {name: getattr(server, name) for name in ("kubeconfig", "context", "cluster", "user")}
    ours = "".join(f"--{name} {shlex.quote(value)} " for name, value in given.items() if value)
    here = place.local is not None or place.run is not None
    file = shlex.quote(str(Path(place.connection.source).expanduser()))
    theirs = f"--kubeconfig {file} " if here and place.connection.source else ours

    def led(texts: Iterable[str]) -> tuple[str, ...]:
        if place.left is not None:
            return tuple(text for text in texts if not text.startswith("kubectl "))
        # By functions: a path may hold what a replacement would read as its own.
        return tuple(
            _OURS.sub(lambda found: found[0] + ours, _KUBECTL.sub(lambda found: found[0] + theirs, text))
            for text in texts
        )

    causes = tuple(msgspec.structs.replace(cause, next=led(cause.next)) for cause in report.causes)
    return msgspec.structs.replace(report, causes=causes, next=led(report.next), notes=led(report.notes))


def as_json(report: Report) -> str:
    """The report for programs: its fields are a promise."""
    return msgspec.json.format(msgspec.json.encode(report).decode(), indent=2) + "\n"


def screen(report: Report, width: int | None = None) -> str:
    """The report for people. Lines are broken on a terminal only."""
    lines = list(_lines(report))
    wide = width if width is not None else _width()
    return "".join(f"{line}\n" for text in lines for line in _broken(text, wide))


def _lines(report: Report) -> Iterator[str]:
    yield report.summary
    yield ""
    if report.healthy:
        yield _strong(PARTLY if any(line.startswith(NEEDED) for line in report.unread) else WELL)
    for number, cause in enumerate(report.causes):
        if number:
            yield ""
        yield from _cause(cause, "Cause" if not number else f"Also {number + 1}")
    yield from _labelled("Note", report.notes)
    if report.healthy:
        yield from _labelled("Looked at", [", ".join(report.looked_at)])
    yield from _labelled("Unread", report.unread)


def _cause(cause: Cause, label: str) -> Iterator[str]:
    yield from _labelled(label, [_strong(cause.cause)])
    # Lines of programs are among it.
    yield from _labelled("Evidence", map(tamed, cause.evidence))
    yield from _labelled("Next", cause.next)


def _labelled(label: str, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield f"{label:<{LABELS}}{text}"
        label = ""


def _strong(text: str) -> str:
    return click.style(text, bold=True) if colours(sys.stdout) else text


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _broken(line: str, width: int) -> list[str]:
    """Broken where it is too long, under its own beginning; a line of a log is left as it is."""
    if width < NARROWEST or len(line) <= width or "│" in line:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=" " * LABELS, break_long_words=False, break_on_hyphens=False
    )

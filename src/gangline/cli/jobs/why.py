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
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.log_lines import printable_text
from gangline.cli.output.tables import use_colour
from gangline.kube.client import Client
from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.report import Cause, Diagnosis

EXIT_CAUSE_FOUND, EXIT_HEALTHY = 0, 3
HEALTHY_TEXT = "Nothing is wrong."
PARTLY_READ_TEXT = "Nothing wrong was found, but not everything could be read."
REQUIRED_EVIDENCE = ("pods:", "events:", "log of")
"""Without these nobody can say that all is well."""
LABEL_WIDTH = 10
"""Columns before the text."""
MIN_WRAP_WIDTH = 40
_KUBECTL_COMMAND = re.compile(r"\bkubectl (?=[a-z])")
_GANGLINE_COMMAND = re.compile(r"\bgangline (?:apply|delete|describe|get|logs|restart|resume|scale|suspend) ")


def _complete_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from gangline.cli.completion.candidates import jobs

    return jobs(context, parameter, incomplete)


@cli_command()
@click.argument("job", metavar="[KIND/]NAME", shell_complete=_complete_jobs)
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

    async def work(client: Client, place: ServerTarget) -> int:
        from gangline.base.clock import SystemClock
        from gangline.why.collect import JobNotFound, collect
        from gangline.why.diagnosis.case import DiagnosisTimeouts
        from gangline.why.diagnosis.diagnose import diagnose

        try:
            case = await collect(
                client, job, place.object_namespace, SystemClock(), DiagnosisTimeouts(hung_after=hung_after)
            )
        except JobNotFound as error:
            click.echo(f"error: {error}; see what there is: gangline get jobs -A", err=True)
            return NOT_FOUND
        report = with_server_flags(diagnose(await with_cpu_usage(client, place, case)), server, place)
        click.echo(report_json(report) if form == "json" else report_text(report), nl=False)
        return EXIT_HEALTHY if report.healthy else EXIT_CAUSE_FOUND

    return run_async(server, work, missing=NOT_FOUND, as_it_was=True)


async def with_cpu_usage(client: Client, place: ServerTarget, case: JobSnapshot) -> JobSnapshot:
    """The case of a silent team on this machine, with the CPU that it uses; every other case as it is."""
    from gangline.why.diagnosis.rules.no_progress import is_silent

    if place.plane_folder is None or not is_silent(case):
        return case
    from gangline.api.quantity import Quantity
    from gangline.cli.jobs.top import measure_pods

    metadata = [one.pod.metadata for one in case.replicas]
    bodies = [{"metadata": {"uid": one.uid, "namespace": one.namespace, "name": one.name}} for one in metadata]
    try:
        uses = await measure_pods(client, place, Selector(namespace=case.job.namespace), bodies)
    except InputError:
        return case
    cores = {uid: Quantity.of(f"{round(use.cores * 1000)}m") for uid, use in uses.items()}
    replicas = [msgspec.structs.replace(one, cpu=cores.get(one.pod.metadata.uid, one.cpu)) for one in case.replicas]
    return msgspec.structs.replace(case, replicas=tuple(replicas))


def with_server_flags(report: Diagnosis, server: ServerOptions, place: ServerTarget) -> Diagnosis:
    """The report with commands that reach the server it is about when they are typed as they stand.

    kubectl does not know the plane of this machine: it would say that there is no server, or act on another one. Of what
    a run left it can read nothing at all: there such steps are left out.
    """
    given = {name: getattr(server, name) for name in ("kubeconfig", "context", "cluster", "user")}
    ours = "".join(f"--{name} {shlex.quote(value)} " for name, value in given.items() if value)
    here = place.plane_folder is not None or place.run_folder is not None
    file = shlex.quote(str(Path(place.connection.source).expanduser()))
    theirs = f"--kubeconfig {file} " if here and place.connection.source else ours

    def led(texts: Iterable[str]) -> tuple[str, ...]:
        if place.archive is not None:
            return tuple(text for text in texts if not text.startswith("kubectl "))
        # By functions: a path may hold what a replacement would read as its own.
        return tuple(
            _GANGLINE_COMMAND.sub(
                lambda found: found[0] + ours, _KUBECTL_COMMAND.sub(lambda found: found[0] + theirs, text)
            )
            for text in texts
        )

    causes = tuple(msgspec.structs.replace(cause, next=led(cause.next)) for cause in report.causes)
    return msgspec.structs.replace(report, causes=causes, next=led(report.next), notes=led(report.notes))


def report_json(report: Diagnosis) -> str:
    """The report for programs: its fields are a promise."""
    return msgspec.json.format(msgspec.json.encode(report).decode(), indent=2) + "\n"


def report_text(report: Diagnosis, width: int | None = None) -> str:
    """The report for people. Lines are broken on a terminal only."""
    lines = list(_report_lines(report))
    wide = width if width is not None else _terminal_width()
    return "".join(f"{line}\n" for text in lines for line in _wrapped(text, wide))


def _report_lines(report: Diagnosis) -> Iterator[str]:
    yield report.summary
    yield ""
    if report.healthy:
        yield _bold(
            PARTLY_READ_TEXT if any(line.startswith(REQUIRED_EVIDENCE) for line in report.unread) else HEALTHY_TEXT
        )
    for number, cause in enumerate(report.causes):
        if number:
            yield ""
        yield from _cause_lines(cause, "Cause" if not number else f"Also {number + 1}")
    yield from _labelled_lines("Note", report.notes)
    if report.healthy:
        yield from _labelled_lines("Looked at", [", ".join(report.looked_at)])
    yield from _labelled_lines("Unread", report.unread)


def _cause_lines(cause: Cause, label: str) -> Iterator[str]:
    yield from _labelled_lines(label, [_bold(cause.cause)])
    # Lines of programs are among it.
    yield from _labelled_lines("Evidence", map(printable_text, cause.evidence))
    yield from _labelled_lines("Next", cause.next)


def _labelled_lines(label: str, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield f"{label:<{LABEL_WIDTH}}{text}"
        label = ""


def _bold(text: str) -> str:
    return click.style(text, bold=True) if use_colour(sys.stdout) else text


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _wrapped(line: str, width: int) -> list[str]:
    """Broken where it is too long, under its own beginning; a line of a log is left as it is."""
    if width < MIN_WRAP_WIDTH or len(line) <= width or "│" in line:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=" " * LABEL_WIDTH, break_long_words=False, break_on_hyphens=False
    )

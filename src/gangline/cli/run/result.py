"""The results of a run: shown on the screen, written to the run folder, printed as JSON, and as an exit code."""

import io
import logging
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import click
import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON, Key
from gangline.base.invocation import own_command
from gangline.base.log import LogFormat, configure_logging
from gangline.cli.connect.server import archive_flags
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen
from gangline.cli.output.curve import AxisMark
from gangline.cli.output.text import Span, StyledLine
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.request import RunJob, RunRequest
from gangline.kube.client import Client
from gangline.kube.errors import NotFound


class JobResult(NamedTuple):
    """The outcome of a job, and its final body on the server."""

    outcome: RunOutcome
    body: JSON
    # The folder for files that its programs write; removed if it stayed empty.
    artifacts: Path | None = None


async def fetch_final_job(client: Client, outcome: RunOutcome) -> JSON:
    """The job as the server has it; if it is deleted already, as it was last seen."""
    job = outcome.job
    with suppress(NotFound):
        return await client.get(client.unstructured(type(job)), job.metadata.key)
    return to_json(job)


def silence_operator_log() -> None:
    """Log errors only: what the embedded operator would warn of, the screen shows."""
    configure_logging(logging.ERROR, LogFormat.TEXT)


def prepare_run_folders(request: RunRequest, jobs: Sequence[RunJob]) -> Mapping[str, RunFolder]:
    """The run folder of each job, by name; none without `--keep`. Raises `InputError` where one cannot be created."""
    folders = {job.name: RunFolder(request.runs, job.name) for job in jobs} if request.runs is not None else {}
    for folder in folders.values():
        folder.prepare()
    return folders


def output_stream(request: RunRequest) -> IO[str]:
    """The stream for the screen: stderr if stdout is used for JSON."""
    stream = sys.stderr if request.output else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # An encoding without the symbols of the screen prints question marks instead of failing.
        stream.reconfigure(errors="replace")
    return stream


def print_results(
    request: RunRequest,
    results: Sequence[JobResult],
    folders: Mapping[str, RunFolder],
    screen: Screen,
    *more: StyledLine,
) -> int:
    """Show the outcomes, then `more`; write the run folders; print JSON if requested. Returns the worst verdict."""
    for result in results:
        if len(results) > 1:
            job = result.outcome.job
            screen.say((Span(f"{result.body.get('kind', '').lower()}/{job.metadata.name}", "bold"),))
        screen.show_outcome(result.outcome)
        screen.say(*_result_lines(request, result, folders.get(result.outcome.job.metadata.name)))
    screen.say(*more)
    screen.say(*next_lines(request.next_steps))
    if request.output == "json":
        _print_json([result.body for result in results])
    return SUCCEEDED if all(result.outcome.succeeded for result in results) else FAILED


def _print_json(bodies: Sequence[JSON]) -> None:
    """One job as an object, several as a List, like `gangline get`."""
    body = bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
    click.echo(msgspec.json.format(msgspec.json.encode(body), indent=2))


def _result_lines(request: RunRequest, result: JobResult, folder: RunFolder | None) -> list[StyledLine]:
    """Write the job, its curve and its timeline into the run folder; returns the lines about curve, logs and artifacts."""
    outcome, lines = result.outcome, list[StyledLine]()
    lines += _curve_lines(request.curves, outcome)
    if folder is not None:
        folder.write_job(result.body)
        picture = folder.write_curve(outcome.curves, outcome.metric, _curve_marks(outcome))
        chart = folder.write_timeline(outcome.timeline) if outcome.timeline is not None else None
        pictures = {"curve": picture, "timeline": chart}
        text = "".join(f"{what}: {file}   " for what, file in pictures.items() if file is not None)
        lines.append((Span(f"{text}logs: {folder.folder}/", "dim"),))
        lines += [(Span("warning: ", "yellow"), Span(folder.write_error))] if folder.write_error else []
    if result.artifacts is not None and any(result.artifacts.glob("*")):
        lines.append((Span(f"artefacts: {result.artifacts}/", "dim"),))
    return lines


def _curve_marks(outcome: RunOutcome) -> list[AxisMark]:
    """Failures and restarts, at the steps at which they happened."""
    from gangline.cli.output.metric_curve import axis_marks

    return axis_marks(outcome.reports, outcome.timeline.marks) if outcome.timeline is not None else []


def _curve_lines(names: Sequence[str], outcome: RunOutcome) -> list[StyledLine]:
    """The curves that were asked for, or a line that says which there are instead."""
    from gangline.cli.output.metric_curve import metric_curve_lines, metric_names

    lines: list[StyledLine] = []
    marks = outcome.timeline.marks if outcome.timeline is not None else ()
    for name in names:
        drawn = metric_curve_lines(name, outcome.reports, marks, shutil.get_terminal_size().columns)
        if drawn:
            lines += [(), *drawn, ()]
        else:
            reported = ", ".join(metric_names(outcome.reports)) or "no metric"
            lines.append((Span("note: ", "yellow"), Span(f"no curve of {name}: the job reported {reported}")))
    return lines


def next_commands(*words: str) -> list[str]:
    """Command lines that read the archived runs; none where they would reach a running plane instead."""
    flags = archive_flags()
    return [f"{own_command()} {arguments}{flags}" for arguments in words] if flags is not None else []


def next_lines(commands: Sequence[str]) -> list[StyledLine]:
    """Commands to type next, one in a line so that a double or triple click takes it."""
    labels = ("next: ", *["      "] * len(commands))
    return [(Span(label, "bold"), Span(command)) for label, command in zip(labels, commands, strict=False)]


def stop_lines(jobs: Sequence[Key], folders: Mapping[str, RunFolder]) -> list[StyledLine]:
    """What to look at after a run was stopped: its kept logs, and the commands that read its record."""
    kept: list[StyledLine] = [
        (Span(f"logs: {folders[job.name].folder}/", "dim"),) for job in jobs if job.name in folders
    ]
    return [*kept, *next_lines([line for job in jobs for line in _record_commands(job)])]


def _record_commands(job: Key) -> list[str]:
    words = f"{job.name} -n {job.namespace}" if job.namespace != "default" else job.name
    return next_commands(f"why {words}", f"logs {words}")


def failure_hints(outcomes: Sequence[RunOutcome]) -> list[StyledLine]:
    """For each failed job the commands that explain the failure."""
    jobs = [outcome.job.metadata.key for outcome in outcomes if not outcome.succeeded]
    return next_lines([line for job in jobs for line in _record_commands(job)])

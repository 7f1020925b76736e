"""`gangline get jobs --history`: every recorded job, also those that are gone."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gangline.api.durations import human_duration
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.exit_codes import ERROR, SUCCEEDED
from gangline.cli.get.view import GetFlags
from gangline.cli.output import tables
from gangline.cli.resources.lookup import JOBS_WORDS, ResourceArg, resource_args
from gangline.history.reader import HistoryReader
from gangline.history.records import JobSummary
from gangline.local.paths import home_folder

HEADER = ("KIND", "NAME", "STATE", "CREATED", "DURATION", "DELETED")


def run_get_history(words: Sequence[str], server: ServerOptions, flags: GetFlags) -> int:
    """Print the recorded jobs that the words name. Returns the exit code. Raises `InputError`."""
    if flags.watch or flags.selector or flags.field_selector or flags.sort_by:
        raise InputError("--history: cannot be combined with --watch, --selector, --field-selector or --sort-by")
    if not flags.output_format.is_table:
        raise InputError("--history: prints a table; for one job in full: gangline at TIME get KIND/NAME -o yaml")
    folder = home_folder() / "history"
    args, recorded = resource_args(words), HistoryReader(folder).jobs()
    kinds = {job.kind.lower() for job in recorded} | {job.plural for job in recorded}
    for arg in args:
        if arg.kind.lower() not in (*JOBS_WORDS, *kinds) and not arg.kind.lower().removesuffix("s").endswith("job"):
            raise InputError(f"--history: lists jobs, not {arg.kind}; of a moment: gangline at TIME get {arg.kind}")
    namespace = "" if server.all_namespaces else server.namespace or "default"
    jobs = [job for job in recorded if namespace in ("", job.namespace) and any(_names(arg, job) for arg in args)]
    if not jobs:
        where = f" in namespace {namespace}" if namespace else ""
        print(f"No jobs are recorded{where} in {folder}", file=sys.stderr)
        return ERROR if any(arg.name for arg in args) else SUCCEEDED
    now = SystemClock().now()
    rows = [(*([] if namespace else [job.namespace]), *job_row(job, now)) for job in jobs]
    header = (*([] if namespace else ["NAMESPACE"]), *HEADER)
    text = tables.render(header, rows, headers=flags.headers, colour=tables.stdout_uses_colour())
    tables.write_stdout(text)
    return SUCCEEDED


def _names(arg: ResourceArg, job: JobSummary) -> bool:
    kind = arg.kind.lower().partition(".")[0]
    return kind in (*JOBS_WORDS, job.kind.lower(), job.plural) and arg.name in ("", job.name)


def job_row(job: JobSummary, now: datetime) -> tuple[str, ...]:
    """The cells of a job: times are those of this machine's clock, so that `gangline at` takes them."""
    ends = [moment for moment in (job.ended, job.deleted) if moment is not None]
    duration = timedelta(seconds=max(0.0, (min(ends) if ends else job.last) - job.created))
    return (
        job.kind,
        job.name,
        job.state or "-",
        _time_text(job.created, now),
        human_duration(duration),
        _time_text(job.deleted, now) if job.deleted is not None else "-",
    )


def _time_text(moment: float, now: datetime) -> str:
    local = datetime.fromtimestamp(moment, UTC).astimezone()
    return local.strftime("%H:%M:%S" if local.date() == now.astimezone().date() else "%Y-%m-%d %H:%M:%S")

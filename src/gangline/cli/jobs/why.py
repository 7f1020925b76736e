"""`gangline why`: one cause, the evidence, the next step."""

import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
import msgspec

from gangline.api.meta import Selector
from gangline.base.errors import InputError
from gangline.base.invocation import own_command, with_own_command
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND, NOTHING_WRONG, SUCCEEDED
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import duration_option
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.tables import use_colour
from gangline.kube.client import Client
from gangline.summary.log_lines import printable_text
from gangline.why.diagnosis.case import EventFact, JobSnapshot
from gangline.why.diagnosis.report import Cause, Diagnosis
from gangline.why.diagnosis.wording import time_of_day

HEALTHY_TEXT = "Nothing is wrong."
PARTLY_READ_TEXT = "Nothing wrong was found, but not everything could be read."
REQUIRED_EVIDENCE = ("pods:", "events:", "log of", "CPU use")
"""The beginnings of `unread` lines about evidence without which a job cannot be called healthy."""
LABEL_WIDTH = 10
"""The columns of the label before each text."""
MIN_WRAP_WIDTH = 40
DOCS_URL_VARIABLE = "GANGLINE_DOCS_URL"
"""Where the documentation site is deployed, if it is."""
SAMPLE_GAP = timedelta(seconds=2)
"""The time between two samples of stacks that are compared."""
_KUBECTL_COMMAND = re.compile(r"\bkubectl (?=[a-z])")
_GANGLINE_COMMAND = re.compile(
    r"\bgangline (?:apply|delete|describe|events|exec|get|logs|restart|resume|scale|stacks|suspend|why) "
)


@cli_command()
@click.argument("job", metavar="[KIND/]NAME", shell_complete=completed_by("jobs"))
@click.option(
    "-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", help="For people, or for programs."
)
@duration_option("--hung-after", "1m", "A job without log lines and CPU use for this time hangs.")
@server_options
def why(job: str, form: str, hung_after: timedelta, server: ServerOptions) -> int:
    r"""Print why a job waits, fails or hangs: one cause, the evidence, the next step.

    It only reads, and needs nothing installed: it works on every cluster, with any operator, for the six kinds of
    training job and for Job, JobSet, TrainJob and Volcano's Job. It finds the replica that failed first, and leaves out
    replicas that failed only because they lost a peer.

    \b
      gangline why linear
      gangline why pytorchjob/bert -n team-a
      gangline why job.batch/convert -o json

    The last line names a page with more about the cause. If the documentation site is deployed somewhere, set
    GANGLINE_DOCS_URL to its address, and the line is a link.

    Exit codes: 0 a cause was found; 3 nothing is wrong; 102 no such job; 1 an error.
    """

    async def work(client: Client, target: ServerTarget) -> int:
        from gangline.base.clock import SystemClock
        from gangline.why.collect import JobNotFound, collect
        from gangline.why.diagnosis.case import DiagnosisTimeouts
        from gangline.why.diagnosis.diagnose import diagnose

        try:
            case = await collect(
                client, job, target.object_namespace, SystemClock(), DiagnosisTimeouts(hung_after=hung_after)
            )
        except JobNotFound as error:
            _print_missing_job(str(error), error.events, target.object_namespace)
            return NOT_FOUND
        case = await with_stacks(target, await with_cpu_usage(client, target, case))
        report = with_server_flags(diagnose(case), server, target)
        click.echo(report_json(report) if form == "json" else report_text(report), nl=False)
        return NOTHING_WRONG if report.healthy else SUCCEEDED

    return run_async(server, work, missing=NOT_FOUND, as_it_was=True)


def _print_missing_job(error: str, events: Sequence[EventFact], namespace: str) -> None:
    """Print that there is no such job; of a job that was removed, what its events still tell."""
    if not events:
        click.echo(with_own_command(f"error: {error}; see what there is: gangline get jobs -A"), err=True)
        return
    lines = [
        f"error: {error}",
        *_labelled_lines(
            "Evidence",
            (
                f"{time_of_day(event.time) if event.time else '-'} {event.reason}: {printable_text(event.message)}"
                for event in events
            ),
        ),
        *_labelled_lines(
            "Next",
            (
                with_own_command(
                    f"see all its events, as long as the server keeps them: gangline get events -n {namespace}"
                ),
                "to keep ended jobs longer, raise spec.runPolicy.ttlSecondsAfterFinished",
            ),
        ),
    ]
    click.echo(with_own_command("\n".join(lines)), err=True)


async def with_cpu_usage(client: Client, target: ServerTarget, case: JobSnapshot) -> JobSnapshot:
    """The case with the CPU that its replicas use, if they are silent and run on this machine; else unchanged."""
    from gangline.why.diagnosis.rules.no_progress import is_silent

    on_this_machine = target.plane_folder is not None or target.run_folder is not None
    if not on_this_machine or not is_silent(case):
        return case
    from gangline.api.quantity import Quantity
    from gangline.cli.resources.usage import measure_pods

    metadata = [replica.pod.metadata for replica in case.replicas]
    bodies = [
        {"metadata": {"uid": replica.uid, "namespace": replica.namespace, "name": replica.name}} for replica in metadata
    ]
    try:
        usages = await measure_pods(client, target, Selector(namespace=case.job.namespace), bodies)
    except InputError as error:
        return msgspec.structs.replace(case, usage_error=str(error))
    cores = {uid: Quantity.of(f"{round(usage.cores * 1000)}m") for uid, usage in usages.items()}
    replicas = [
        msgspec.structs.replace(replica, cpu=cores.get(replica.pod.metadata.uid, replica.cpu))
        for replica in case.replicas
    ]
    return msgspec.structs.replace(case, replicas=tuple(replicas))


async def with_stacks(target: ServerTarget, case: JobSnapshot) -> JobSnapshot:
    """The case with the stacks of its ranks, if they are silent and run on this machine; else unchanged.

    If some use CPU, they are read twice: a rank that waits for the others may spin.
    """
    from gangline.cli.resources.usage import node_state
    from gangline.why.diagnosis.rules.no_progress import IDLE_CPU, is_silent, running_replicas

    state = node_state(target)
    if state is None or not is_silent(case):
        return case
    from gangline.base.clock import SystemClock
    from gangline.frameworks.ranks import rank_of
    from gangline.local.stack_sampling import LocalStackSampler
    from gangline.stacks.compare import unmoved
    from gangline.stacks.report import with_ranks

    running, sampler = running_replicas(case), LocalStackSampler(state)
    pods = [one.pod for one in running]
    stacks = await sampler.sample(pods)
    standing: frozenset[str] = frozenset()
    if any(one.cpu is None or one.cpu >= IDLE_CPU for one in running):
        await SystemClock().sleep(SAMPLE_GAP)
        stacks, before = await sampler.sample(pods), stacks
        standing = unmoved(before, stacks)
    job = case.job
    each = job.ranks_per_replica
    ranks = {
        one.name: rank_of(job.kind, job.desired_replicas, one.name, processes=each) if each is not None else None
        for one in running
    }
    return msgspec.structs.replace(case, stacks=with_ranks(stacks, ranks), unmoved=standing)


def with_server_flags(report: Diagnosis, server: ServerOptions, target: ServerTarget) -> Diagnosis:
    """The report with flags in its commands, so that these reach the server of the report when typed as printed.

    kubectl does not find the plane of this machine, and may not be installed: where gangline can do the same, it does.
    kubectl cannot read an archive at all, so for an archive the kubectl commands are left out.
    """
    flags = server.kubeconfig_flags
    gangline_flags = "".join(f"--{name} {shlex.quote(value)} " for name, value in flags.items() if value)
    on_this_machine = target.plane_folder is not None or target.run_folder is not None
    file = shlex.quote(str(Path(target.connection.source).expanduser()))
    kubectl_flags = f"--kubeconfig {file} " if on_this_machine and target.connection.source else gangline_flags

    def with_flags(texts: Iterable[str]) -> tuple[str, ...]:
        if target.archive is not None:
            shown = [_in_this_folder(text) for text in texts if not _KUBECTL_COMMAND.search(text)]
            return (
                tuple(at_moment(text, target.past.moment, target.past.server) for text in shown)
                if target.past
                else tuple(shown)
            )
        if on_this_machine:
            texts = [_as_gangline_command(text) for text in texts]
        # Functions, because a replacement text would interpret backslashes in a path.
        return tuple(
            _GANGLINE_COMMAND.sub(
                lambda match: match[0] + gangline_flags,
                _KUBECTL_COMMAND.sub(lambda match: match[0] + kubectl_flags, text),
            )
            for text in texts
        )

    causes = tuple(msgspec.structs.replace(cause, next=with_flags(cause.next)) for cause in report.causes)
    return msgspec.structs.replace(report, causes=causes, next=with_flags(report.next), notes=with_flags(report.notes))


def at_moment(text: str, moment: datetime, server: str = "") -> str:
    """The text with its commands that read showing the same moment, of the same server."""
    time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    prefix = f"at --server {server} {time} " if server else f"at {time} "
    return re.sub(r"(?<=\bgangline )(?=(?:describe|events|get|logs|why) )", lambda _: prefix, text)


def _as_gangline_command(text: str) -> str:
    """The text with the command of gangline that does the same as its kubectl command, if there is one."""
    text = re.sub(r"\bkubectl describe (.+)", r"kubectl get \1 -o yaml", text)
    return re.sub(r"\bkubectl (get|delete) ", r"gangline \1 ", text)


def _in_this_folder(text: str) -> str:
    """A command without the change into its folder, if that is the working directory.

    After a change into another folder, a relative path of gangline itself would lead nowhere: it becomes absolute.
    """
    try:
        here = shlex.quote(str(Path.cwd()))
    except FileNotFoundError:
        return text
    text, command = text.replace(f"cd {here} && ", ""), own_command()
    is_relative = "/" in command and not command.lstrip("'").startswith("/")
    return text.replace(" && gangline ", f" && {here}/{command} ") if is_relative else text


def report_json(report: Diagnosis) -> str:
    """The report for programs. Its fields are a public interface."""
    return msgspec.json.format(msgspec.json.encode(report).decode(), indent=2) + "\n"


def report_text(report: Diagnosis, width: int | None = None) -> str:
    """The report for people. Lines are wrapped only on a terminal, or to `width`. Commands in it can be copied."""
    lines = list(_report_lines(report))
    line_width = width if width is not None else _terminal_width()
    return "".join(f"{line}\n" for text in lines for line in _wrapped(text, line_width))


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
    yield from _labelled_lines("Note", map(with_own_command, report.notes))
    if report.healthy:
        yield from _labelled_lines("Looked at", [", ".join(report.looked_at)])
    yield from _labelled_lines("Unread", report.unread)


def _cause_lines(cause: Cause, label: str) -> Iterator[str]:
    yield from _labelled_lines(label, [_bold(cause.cause)])
    # Evidence includes log lines, which may hold control characters.
    yield from _labelled_lines("Evidence", map(printable_text, cause.evidence))
    yield from _labelled_lines("Next", map(with_own_command, cause.next))
    yield from _labelled_lines("More", [rule_page(cause.rule)])


def rule_page(rule: str) -> str:
    """The page about a rule: an address if the environment says where the site is, else its file in the repository."""
    site = os.environ.get(DOCS_URL_VARIABLE, "").rstrip("/")
    return f"{site}/why/{rule}.html" if site else f"docs/why/{rule}.md"


def _labelled_lines(label: str, texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield f"{label:<{LABEL_WIDTH}}{text}"
        label = ""


def _bold(text: str) -> str:
    return click.style(text, bold=True) if use_colour(sys.stdout) else text


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def _wrapped(line: str, width: int) -> list[str]:
    """A line wrapped to a width, with the text of continuation lines aligned.

    Log lines (with │) are not wrapped. Neither is a command at the end of a line: broken in two, it cannot be copied.
    """
    if width < MIN_WRAP_WIDTH or len(line) <= width or "│" in line:
        return [line]
    indent = " " * LABEL_WIDTH
    at = min((found for name in (own_command(), "kubectl") if (found := line.find(f"{name} ")) >= 0), default=len(line))
    prose, command = line[:at], line[at:]
    if command and len(prose) <= LABEL_WIDTH:
        return [line]
    lines = textwrap.wrap(prose, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [*lines, indent + command] if command else lines

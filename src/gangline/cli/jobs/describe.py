"""`gangline describe`: all about one job on one page."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import click

from gangline.api.durations import human_age, human_duration
from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.base.invocation import with_own_command
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.output import formats, tables
from gangline.cli.resources.lookup import find_job, is_builtin_kind
from gangline.kube.client import Client
from gangline.progress.line import parse_progress
from gangline.summary import event_rows, job_rows
from gangline.summary.goodput_rows import goodput_text
from gangline.summary.job_rows import NONE, PodDetails
from gangline.summary.job_state import conditions, job_state, replica_specs
from gangline.summary.log_lines import printable_text
from gangline.summary.objects import EVENTS, ServerJob
from gangline.summary.pending_reasons import pod_details
from gangline.summary.replicas import exit_text, list_replicas, pod_state, replica_name, restart_count

MAX_EVENTS = 20


@cli_command()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@click.option("-o", "--output", "form", default="", metavar="FORM", help="Print the object itself: json or yaml.")
@server_options
def describe(words: tuple[str, ...], form: str, server: ServerOptions) -> int:
    r"""Show one job in full: its replicas, its conditions, its first failure, its events.

    \b
      gangline describe linear
      gangline status tfjob/linear           the same, with the kind
      gangline describe linear -o yaml       the object itself

    Exit codes: 0 printed; 1 an error; 102 no such job.
    """
    output_format = formats.parse_format(form)
    # As in kubectl: `describe tfjob linear`.
    kind_first = len(words) > 1 and is_builtin_kind(words[0])
    names = [f"{words[0]}/{name}" for name in words[1:]] if kind_first else list(words)

    async def work(client: Client, target: ServerTarget) -> None:
        for number, word in enumerate(names):
            job = await find_job(client, target.object_namespace, word)
            if not output_format.is_table:
                tables.write_stdout(formats.format_objects([job.body], output_format, single=True))
                continue
            page = await client.list(EVENTS, Selector(job.key.namespace))
            pods = await list_replicas(client, job)
            text = describe_page(job, pods, page.items, SystemClock().now())
            tables.write_stdout(("\n\n" if number else "") + text)

    return run_blocking(server, work, missing=NOT_FOUND)


def describe_page(job: ServerJob, pods: Sequence[JSON], events: Sequence[JSON], now: datetime) -> str:
    """The text that `describe` prints."""
    colour = tables.stdout_uses_colour()
    own_events = [event for event in events if event_rows.is_about(event, job)]
    blocks = (
        _header_section(job, pod_details(job.body, pods, own_events), now),
        _spec_section(job.body),
        _replicas_section(job, pods, now, colour=colour),
        _conditions_section(job.body, now, colour=colour),
        _failure_section(job.body, now),
        _recovery_section(job.body, now),
        _events_section(job, own_events, now, colour=colour),
    )
    return "\n".join(block for block in blocks if block)


def _header_section(job: ServerJob, pods: PodDetails, now: datetime) -> str:
    body, metadata = job.body, job.body["metadata"]
    status = body.get("status") or {}
    start = job_rows.parse_timestamp(status.get("startTime"))
    completion = job_rows.parse_timestamp(status.get("completionTime"))
    ended = f"{human_duration(now - completion)} ago, after {job_rows.job_duration(body, now)}" if completion else ""
    reason, queue = job_rows.job_reason(body, now, pods), job_rows.queue_name(body)
    fields = {
        "Name": metadata["name"],
        "Namespace": metadata.get("namespace", ""),
        "Kind": f"{job.resource.kind} ({job.resource.api_version})",
        "Labels": _inline_text(metadata.get("labels") or {}),
        "State": job_state(body) + (f": {reason}" if reason != NONE else ""),
        "Ready": job_rows.ready_text(body, pods),
        "Restarts": str(status.get("restarts") or 0),
        "Queue": queue if queue != NONE else "",
        "Created": f"{human_age(metadata.get('creationTimestamp'), now)} ago",
        "Started": f"{human_duration(now - start)} ago" if start else "",
        "Ended": ended,
        "Progress": _progress_line(body, now),
        "Goodput": goodput_text(body, now),
    }
    return "".join(f"{name + ':':<14} {value}\n" for name, value in fields.items() if value)


def _progress_line(body: JSON, now: datetime) -> str:
    """`step 120/500 loss=0.12 (24 %), worker-0, 4s ago`."""
    text = job_rows.progress_text(body)
    if text == NONE:
        return ""
    progress = body["status"]["progress"]
    step, total = progress["step"], progress.get("total")
    share = f" ({min(step / total, 1):.0%})".replace("%", " %") if job_rows.is_number(total) and total > 0 else ""
    when = f", {human_age(progress['updated'], now)} ago" if progress.get("updated") else ""
    return f"{text}{share}" + (f", {progress['replica']}" if progress.get("replica") else "") + when


def _spec_section(body: JSON) -> str:
    spec = body.get("spec") or {}
    policy = {
        name: value for name, value in (spec.get("runPolicy") or {}).items() if value not in (None, {}, False, "")
    }
    lines = [f"Run policy:    {_inline_text(policy)}\n"] if policy else []
    rows = [
        _replica_type_row(replica_type, replica_spec or {})
        for replica_type, replica_spec in replica_specs(body).items()
    ]
    table = tables.render(("TYPE", "REPLICAS", "RESTART", "IMAGE", "RESOURCES", "COMMAND"), rows)
    return "".join(lines) + "Replica specs:\n" + _indented(table)


def _replica_type_row(replica_type: str, spec: JSON) -> list[str]:
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or [{}]
    main = containers[0]
    resources = (main.get("resources") or {}).get("limits") or (main.get("resources") or {}).get("requests") or {}
    command = " ".join(" ".join(map(str, [*(main.get("command") or []), *(main.get("args") or [])])).split())
    return [
        replica_type,
        str(1 if spec.get("replicas") is None else spec["replicas"]),
        spec.get("restartPolicy") or NONE,
        main.get("image") or NONE,
        _inline_text(resources) or NONE,
        tables.clipped_text(command, 60),
    ]


def _inline_text(mapping: JSON) -> str:
    """A mapping in one line: `cpu=2, schedulingPolicy(queue=batch)`."""
    return ", ".join(
        f"{name}={value}" if not isinstance(value, dict) else f"{name}({_inline_text(value)})"
        for name, value in sorted(mapping.items())
    )


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _replicas_section(job: ServerJob, pods: Sequence[JSON], now: datetime, *, colour: bool) -> str:
    if not pods:
        return "Replicas:      no pods\n"
    reports = [_last_report(pod) for pod in pods]
    has_progress = any(reports)
    rows = [
        [*_pod_row(job, pod, now), *([report or NONE] if has_progress else []), next(_pod_problems(pod), NONE)]
        for pod, report in zip(pods, reports, strict=True)
    ]
    header = ("REPLICA", "STATE", "NODE", "RESTARTS", "EXIT", "AGE", *(("PROGRESS",) if has_progress else ()), "WHY")
    table = tables.render(header, rows, colour=colour)
    return "Replicas:\n" + _indented(table)


def _last_report(pod: JSON) -> str:
    """The last progress report of a replica; empty if it reports none."""
    report = parse_progress((pod["metadata"].get("annotations") or {}).get(job_rows.PROGRESS_ANNOTATION, ""))
    if report is None:
        return ""
    progress = {
        "step": report.step,
        "total": report.total,
        "metrics": dict(report.metrics),
        "estimatedRemainingSeconds": report.remaining_seconds,
    }
    return job_rows.progress_text({"status": {"progress": progress}})


def _ranked_name(job: ServerJob, replica: str) -> str:
    """The replica with its framework's rank, if the job has several: `worker-1 (rank 2)`."""
    # Imported here: the kinds load slowly, and the text of an error needs none.
    from gangline.frameworks.ranks import ranks_per_replica, replica_with_rank

    spec = job.body.get("spec") or {}
    counts = {name: (spec or {}).get("replicas") for name, spec in replica_specs(job.body).items()}
    numbers = {name: 1 if count is None else count for name, count in counts.items()}
    processes = ranks_per_replica(spec.get("elasticPolicy"), spec.get("nprocPerNode") or spec.get("slotsPerWorker"))
    if processes is None or sum(numbers.values()) < 2:
        return replica
    return replica_with_rank(job.resource.kind, numbers, replica, processes=processes)


def _pod_row(job: ServerJob, pod: JSON, now: datetime) -> list[str]:
    return [
        _ranked_name(job, replica_name(job, pod)),
        pod_state(pod),
        pod["spec"].get("nodeName") or NONE,
        str(restart_count(pod)),
        exit_text(pod),
        human_age(pod["metadata"].get("creationTimestamp"), now),
    ]


def _pod_problems(pod: JSON) -> Iterator[str]:
    """The messages about why a replica does not run: of its containers, of its status, of its scheduler."""
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        for part in ("waiting", "terminated"):
            message = ((container.get("state") or {}).get(part) or {}).get("message")
            if message:
                yield _one_line(message)
    if status.get("message"):
        yield _one_line(status["message"])
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield _one_line(condition.get("message") or condition.get("reason") or "not scheduled")


def _one_line(text: str) -> str:
    return tables.clipped_text(" ".join(str(text).split()), 120)


def _conditions_section(body: JSON, now: datetime, *, colour: bool) -> str:
    rows = [
        [
            str(condition.get("type", "")),
            str(condition.get("status", "")),
            human_age(condition.get("lastTransitionTime"), now),
            str(condition.get("reason", "")) or NONE,
            " ".join(str(condition.get("message", "")).split()) or NONE,
        ]
        for condition in conditions(body)
    ]
    if not rows:
        return "Conditions:    none yet: no operator has seen the job\n"
    table = tables.render(("TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"), rows, colour=colour)
    return "Conditions:\n" + _indented(table)


def _recovery_section(body: JSON, now: datetime) -> str:
    """What the recovery policy did last, and what new pods get from it."""
    record = (body.get("status") or {}).get("recovery")
    if not record:
        return ""
    when = f", {human_age(record['time'], now)} ago" if record.get("time") else ""
    text = f"Recovery:      {_plain(record.get('message') or record.get('action', ''))}{when}\n"
    for node in record.get("excludedNodes") or ():
        until = job_rows.parse_timestamp(node.get("until"))
        if until is not None and until > now:
            text += f"  node {node.get('name', '')} is left out for {human_duration(until - now)} ({node.get('cause', '')})\n"
    return text + "".join(f"  {kind}: {memory} memory\n" for kind, memory in (record.get("memory") or {}).items())


def _plain(text: object) -> str:
    return " ".join(printable_text(str(text)).split())


def _failure_section(body: JSON, now: datetime) -> str:
    failure = (body.get("status") or {}).get("firstFailure")
    if not failure:
        return ""
    when = f", {human_age(failure['time'], now)} ago" if failure.get("time") else ""
    text = f"First failure: {job_rows.failure_text(failure)}{when}\n"
    if failure.get("exitCode") is not None:
        text += f"  exit code {failure['exitCode']}" + (f", pod {failure['pod']}" if failure.get("pod") else "") + "\n"
    if failure.get("orderUnknown"):
        text += "  others failed in the same second; which one was first is not known\n"
    if failure.get("message"):
        text += f"  {' '.join(str(failure['message']).split())}\n"
    return text + "".join(
        f"  {failure.get('replica', '')}| {printable_text(str(line))}\n" for line in failure.get("log") or ()
    )


def _events_section(job: ServerJob, events: Iterable[JSON], now: datetime, *, colour: bool) -> str:
    matching = event_rows.sorted_events(events)
    omitted = len(matching) - MAX_EVENTS
    rows = [event_rows.event_row(event, now) for event in matching[-MAX_EVENTS:]]
    if not rows:
        return "Events:        none\n"
    table = tables.render(event_rows.HEADER, rows, colour=colour)
    more = with_own_command(f"  {omitted} earlier ones: gangline events {job.key.name}\n") if omitted > 0 else ""
    return "Events:\n" + more + _indented(table)

"""All about one job: its row, its pods, its conditions and events, and its YAML. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import yaml

from gangline.api.meta import JSON
from gangline.dashboard.rows.job_row import JobRow, ProgressView, ViewStruct, job_row, progress_view
from gangline.dashboard.rows.queues import gang_phase
from gangline.progress.line import parse_progress
from gangline.summary import event_rows, job_rows
from gangline.summary.goodput_rows import goodput_seconds
from gangline.summary.job_rows import PROGRESS_ANNOTATION, PodDetails
from gangline.summary.job_state import conditions
from gangline.summary.objects import ServerJob
from gangline.summary.pending_reasons import is_ready, pod_details, pod_reason, podgroup_reasons
from gangline.summary.replicas import (
    REPLICA_INDEX,
    REPLICA_TYPE,
    container_name,
    exit_text,
    pod_state,
    replica_name,
    restart_count,
)

MAX_EVENTS = 200
_HIDDEN_ANNOTATIONS = ("kubectl.kubernetes.io/last-applied-configuration",)


class ConditionRow(ViewStruct, frozen=True):
    """A condition of a job."""

    type: str
    status: str
    reason: str
    message: str
    at: str | None


class PodRow(ViewStruct, frozen=True):
    """A pod of a job."""

    name: str
    uid: str
    replica: str
    type: str
    index: int
    state: str
    ready: bool
    # Why it does not start, or is not ready; empty if nothing is wrong.
    reason: str
    node: str
    restarts: int
    # How its training container last exited: `137 (OOMKilled)`; empty if it never did.
    exit: str
    container: str
    created_at: str | None
    started_at: str | None
    progress: ProgressView | None


class EventRow(ViewStruct, frozen=True):
    """An event about a job or one of its objects."""

    at: str | None
    type: str
    reason: str
    # `Pod/bert-worker-1`
    object: str
    message: str
    count: int


class AllowedActions(ViewStruct, frozen=True):
    """What the viewer may do to a job."""

    suspend: bool = False
    resume: bool = False
    scale: bool = False
    restart: bool = False
    delete: bool = False


NOTHING_ALLOWED = AllowedActions()


class JobObjects(ViewStruct, frozen=True):
    """The objects of one job, whole, as far as the viewer may read them."""

    job: ServerJob
    pods: Sequence[JSON] = ()
    events: Sequence[JSON] = ()
    group: JSON | None = None


class JobDetail(ViewStruct, frozen=True):
    """The page of a job."""

    row: JobRow
    timeline: Any
    conditions: list[ConditionRow]
    pods: list[PodRow]
    events: list[EventRow]
    yaml: str
    progress: ProgressView | None
    # The first failure as `describe` shows it; None if there is none.
    first_failure: Mapping[str, Any] | None
    # Seconds of the replicas by activity, in the order in which they are shown; empty if there is no ledger.
    goodput: Mapping[str, int]
    allowed: AllowedActions
    # Whether it comes from the history, and whether the job is gone.
    recorded: bool
    deleted: bool
    refused: Sequence[Any] = ()


def detail_row(objects: JobObjects, now: datetime, *, deleted: bool = False) -> JobRow:
    """The row of a job whose objects are at hand."""
    body, group = objects.job.body, objects.group
    details = pod_details(body, objects.pods, objects.events) if conditions(body) else PodDetails()
    reason = podgroup_reasons([group]).get(objects.job.key) if group is not None and job_rows.may_wait(body) else None
    details = details._replace(reason=reason) if reason else details
    return job_row(objects.job.resource, body, now, pods=details, gang_phase=gang_phase(group), deleted=deleted)


def condition_rows(body: JSON) -> list[ConditionRow]:
    """The conditions of a job, oldest first."""
    return [
        ConditionRow(
            type=str(item.get("type", "")),
            status=str(item.get("status", "")),
            reason=str(item.get("reason", "")),
            message=" ".join(str(item.get("message", "")).split()),
            at=item.get("lastTransitionTime"),
        )
        for item in conditions(body)
    ]


def pod_rows(job: ServerJob, pods: Iterable[JSON]) -> list[PodRow]:
    """The pods of a job, in the order in which they are given."""
    return [_pod_row(job, pod) for pod in pods]


def _pod_row(job: ServerJob, pod: JSON) -> PodRow:
    metadata, status = pod["metadata"], pod.get("status") or {}
    labels, exited = metadata.get("labels") or {}, exit_text(pod)
    index = str(labels.get(REPLICA_INDEX, "0"))
    return PodRow(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        replica=replica_name(job, pod),
        type=labels.get(REPLICA_TYPE, ""),
        index=int(index) if index.isdecimal() else 0,
        state=pod_state(pod),
        ready=is_ready(pod),
        reason=pod_reason(pod),
        node=(pod.get("spec") or {}).get("nodeName") or "",
        restarts=restart_count(pod),
        exit="" if exited == "-" else exited,
        container=container_name(pod),
        created_at=metadata.get("creationTimestamp"),
        started_at=status.get("startTime"),
        progress=_pod_progress(metadata),
    )


def _pod_progress(metadata: JSON) -> ProgressView | None:
    report = parse_progress((metadata.get("annotations") or {}).get(PROGRESS_ANNOTATION, ""))
    if report is None:
        return None
    return progress_view({"step": report.step, "total": report.total, "metrics": dict(report.metrics)})


def event_view(event: JSON) -> EventRow:
    """An event as the page shows it."""
    involved, last = event.get("involvedObject") or {}, event_rows.last_seen(event)
    return EventRow(
        at=last.isoformat() if last is not None else None,
        type=str(event.get("type", "")),
        reason=str(event.get("reason", "")),
        object=f"{involved.get('kind', '')}/{involved.get('name', '')}",
        message=" ".join(str(event.get("message", "")).split()),
        count=event_rows.occurrences(event),
    )


def event_views(events: Iterable[JSON]) -> list[EventRow]:
    """The newest events, oldest first."""
    return [event_view(event) for event in event_rows.sorted_events(events)[-MAX_EVENTS:]]


def shown_object(body: JSON) -> JSON:
    """An object as people edit it: without the server's bookkeeping."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    annotations = {
        name: value for name, value in (metadata.get("annotations") or {}).items() if name not in _HIDDEN_ANNOTATIONS
    }
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    return {**body, "metadata": metadata}


def object_yaml(body: JSON) -> str:
    """An object as YAML, as people edit it."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(shown_object(body), Dumper=dumper, sort_keys=False, allow_unicode=True))


def job_detail(
    objects: JobObjects,
    timeline: Any,
    now: datetime,
    *,
    recorded: bool = False,
    deleted: bool = False,
    with_yaml: bool = True,
) -> JobDetail:
    """The page of a job, from its objects and its timeline. What the viewer may do is added by others."""
    body, status = objects.job.body, objects.job.body.get("status") or {}
    return JobDetail(
        row=detail_row(objects, now, deleted=deleted),
        timeline=timeline,
        conditions=condition_rows(body),
        pods=pod_rows(objects.job, objects.pods),
        events=event_views(objects.events),
        yaml=object_yaml(body) if with_yaml else "",
        progress=progress_view(status.get("progress"), deleted=deleted),
        first_failure=status.get("firstFailure"),
        goodput=goodput_seconds(body, now),
        allowed=NOTHING_ALLOWED,
        recorded=recorded,
        deleted=deleted,
    )

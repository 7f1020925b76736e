"""A job as one row of the board. Pure: the words are those of `gangline get`."""

from datetime import datetime
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.summary import job_rows
from gangline.summary.job_rows import NO_DETAILS, PodDetails
from gangline.summary.job_state import job_state


class ViewStruct(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A value of the dashboard's API: camelCase on the wire, every field present."""


class ProgressView(ViewStruct, frozen=True):
    """The last reported progress of a job."""

    step: float | None
    total: float | None
    # 0 to 1; None if the job does not say how far it goes.
    fraction: float | None
    eta_seconds: float | None
    metrics: dict[str, float]
    updated_at: str | None
    replica: str


class JobRow(ViewStruct, frozen=True):
    """A job of the board."""

    id: str
    namespace: str
    plural: str
    kind: str
    name: str
    uid: str
    # One word, as in `gangline get`: Pending, Created, Running, Restarting, Succeeded, Failed, Suspended ...
    state: str
    # The state with what qualifies it: `Running, 3 of 4 ready`.
    state_text: str
    # Why it waits, restarts or failed; empty if there is nothing to say.
    reason: str
    progress: ProgressView | None
    restarts: int
    ready: int
    replicas: int
    queue: str
    # The phase of its gang: Pending, Running, Recovering, Unschedulable; empty without a gang.
    gang_phase: str
    # 1: the next gang of its queue; None if it does not wait in a queue.
    place_in_line: int | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    deleted: bool


def job_id(plural: str, namespace: str, name: str) -> str:
    """The id of a job in the dashboard: `team-a/pytorchjobs/bert`."""
    return f"{namespace}/{plural}/{name}"


def job_row(
    resource: Resource[Any],
    body: JSON,
    now: datetime,
    *,
    pods: PodDetails = NO_DETAILS,
    gang_phase: str = "",
    place: int | None = None,
    deleted: bool = False,
) -> JobRow:
    """The row of a job. `pods`: what its pods tell, where its own status does not."""
    metadata, status = body["metadata"], body.get("status") or {}
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    state, reason, queue = job_state(body), job_rows.job_reason(body, now, pods), job_rows.queue_name(body)
    ready, _, replicas = job_rows.ready_text(body, pods).partition("/")
    lacks = state == "Running" and ready != replicas
    return JobRow(
        id=job_id(resource.plural, namespace, name),
        namespace=namespace,
        plural=resource.plural,
        kind=resource.kind,
        name=name,
        uid=metadata.get("uid", ""),
        state=state,
        state_text=f"{state}, {ready} of {replicas} ready" if lacks else state,
        reason=_text(reason),
        progress=progress_view(status.get("progress"), deleted=deleted),
        restarts=int(status.get("restarts") or 0),
        ready=int(ready),
        replicas=int(replicas),
        queue=_text(queue),
        gang_phase=gang_phase,
        place_in_line=place,
        created_at=metadata.get("creationTimestamp"),
        started_at=status.get("startTime"),
        ended_at=status.get("completionTime") or _ended_at(body, state),
        deleted=deleted,
    )


def progress_view(progress: Any, *, deleted: bool = False) -> ProgressView | None:
    """`status.progress` of a job; None if it reports none. A job that was deleted has no time left."""
    if not isinstance(progress, dict):
        return None
    step, total = _number(progress.get("step")), _number(progress.get("total"))
    metrics = progress.get("metrics")
    named = metrics.items() if isinstance(metrics, dict) else ()
    fraction = min(max(step / total, 0.0), 1.0) if step is not None and total else None
    return ProgressView(
        step=step,
        total=total,
        fraction=fraction,
        eta_seconds=None if deleted else _number(progress.get("estimatedRemainingSeconds")),
        metrics={str(name): value for name, value in named if job_rows.is_number(value)},
        updated_at=progress.get("updated"),
        replica=str(progress.get("replica") or ""),
    )


def _ended_at(body: JSON, state: str) -> str | None:
    """When a job failed; the v1 operator sets a completion time only for jobs that succeed."""
    if state not in ("Failed", "Succeeded"):
        return None
    items = (body.get("status") or {}).get("conditions") or ()
    return next((item.get("lastTransitionTime") for item in items if item.get("type") == state), None)


def _number(value: Any) -> float | None:
    return value if job_rows.is_number(value) else None


def _text(cell: str) -> str:
    return "" if cell == job_rows.NONE else cell

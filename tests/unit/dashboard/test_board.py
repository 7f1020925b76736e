"""The board of one viewer: rows that change with time, and bookkeeping that does not grow."""

from datetime import timedelta
from typing import Any

from gangline.api.meta import JSON, Key
from gangline.dashboard.live.board import BoardFeed, _by_owner
from gangline.dashboard.rows.trimmed import trimmed_workload
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Delta
from gangline.testing.clock import FakeClock


class StillInformer:
    """An informer whose cache the test fills."""

    def __init__(self, cache: Cache[JSON] | None = None) -> None:
        self.cache: Cache[JSON] = cache if cache is not None else Cache()


def _board(clock: FakeClock) -> tuple[BoardFeed, StillInformer]:
    nothing: Any = None
    feed, informer = BoardFeed("", nothing, nothing, clock), StillInformer()
    feed._jobs = {"pytorchjobs": informer}  # type: ignore[dict-item]
    feed._ready.set()
    return feed, informer


def _job(clock: FakeClock, version: int) -> JSON:
    created = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": "bert", "namespace": "team", "uid": "u", "resourceVersion": str(version), "generation": version}
    return {"metadata": {**metadata, "creationTimestamp": created}, "spec": {}, "status": {}}


async def test_a_job_that_no_operator_sees_is_looked_at_again_once_however_often_it_changes() -> None:
    clock = FakeClock()
    feed, informer = _board(clock)
    changed = feed._on_job("pytorchjobs")
    body = _job(clock, 0)
    for version in range(20):
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        informer.cache.put(body)
        changed(Delta(None, body))
        feed.publish_now()
    (row,) = feed.rows()
    assert row.reason == ""
    await clock.advance(timedelta(seconds=12))
    (row,) = feed.rows()
    assert row.reason == "no operator has seen it"
    revision = feed.revision
    await clock.advance(timedelta(minutes=10))
    feed.publish_now()
    assert feed.revision == revision
    assert not feed._dirty
    informer.cache.drop(Key("team", "bert"))
    changed(Delta(body, None))
    assert list(feed.rows()) == []
    assert not feed._unobserved


async def test_a_job_that_waits_for_kueue_says_why() -> None:
    clock = FakeClock()
    feed, informer = _board(clock)
    held = [{"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": ""}]
    body = _job(clock, 1)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    body |= {"spec": {"runPolicy": {"suspend": True}}, "status": {"conditions": held}}
    informer.cache.put(body)
    feed._on_job("pytorchjobs")(Delta(None, body))
    (row,) = feed.rows()
    assert (row.state, row.queue, row.reason) == ("Suspended", "gpus", "")
    # Workloads are watched only now.
    assert feed._waits_for_kueue.is_set()
    workload = {
        "metadata": {"name": "w", "namespace": "team", "uid": "w", "ownerReferences": [{"name": "bert", "uid": "u"}]},
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "False", "message": "insufficient quota for nvidia.com/gpu"}
            ]
        },
    }
    workloads = StillInformer(Cache({"job": _by_owner}))
    workloads.cache.put(trimmed_workload(workload))
    feed._workloads = workloads  # type: ignore[assignment]
    feed._on_workload(Delta(None, workload))
    (row,) = feed.rows()
    assert row.reason == "insufficient quota for nvidia.com/gpu"

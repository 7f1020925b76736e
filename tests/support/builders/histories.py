"""Histories of a busy team: jobs of eight replicas that report progress every five seconds for an hour."""

import heapq
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.api.meta import timestamp as kubernetes_time

POD: JSON = json.loads((Path(__file__).parents[3] / "bench" / "pod.json").read_text())
"""A pod of a training job, as a real server stores it."""
START = datetime(2026, 11, 9, tzinfo=UTC).timestamp()
DAY, HOUR = 86400.0, 3600.0
REPLICAS, PROGRESS_SECONDS = 8, 5.0
LOG_LINES = 100


class RecordedEvent(NamedTuple):
    """A version of an object at a moment, None: deleted; or, with `log`, the end of the log of its container."""

    at: float
    path: str
    body: JSON | None
    log: str = ""


def busy_team(days: float, jobs_a_day: int, seed: int = 1) -> Iterator[RecordedEvent]:
    """All that happens to the jobs of some days, oldest first. Jobs are deleted a day after their end."""
    chance = random.Random(seed)
    count = round(days * jobs_a_day)
    lives = (
        job_life(f"train-{number:05d}", START + number * DAY / jobs_a_day, chance.random()) for number in range(count)
    )
    waiting: list[tuple[float, int, RecordedEvent, Iterator[RecordedEvent]]] = []
    for number, life in enumerate(lives):
        first = next(life)
        while waiting and waiting[0][0] <= first.at:
            yield from _step(waiting)
        heapq.heappush(waiting, (first.at, number, first, life))
    while waiting:
        yield from _step(waiting)


def _step(waiting: list[tuple[float, int, RecordedEvent, Iterator[RecordedEvent]]]) -> Iterator[RecordedEvent]:
    _, number, event, life = waiting[0]
    yield event
    following = next(life, None)
    if following is None:
        heapq.heappop(waiting)
    else:
        heapq.heapreplace(waiting, (following.at, number, following, life))


class _Object:
    """An object with its versions."""

    def __init__(self, path: str, body: JSON) -> None:
        self.path, self.body = path, body

    def changed(self, at: float, **parts: JSON) -> RecordedEvent:
        body = {**self.body, **parts}
        body["metadata"] = {**body["metadata"], "resourceVersion": str(round((at - START) * 50) + 1000)}
        self.body = body
        return RecordedEvent(at, self.path, body)


def job_life(name: str, start: float, luck: float) -> Iterator[RecordedEvent]:
    """A job from its creation to its deletion."""
    chance = random.Random(f"{name}{luck}")
    uid = f"{chance.getrandbits(128):032x}"
    job = _new_job(name, uid, start)
    yield job.changed(start)
    conditions = [_condition("Created", start)]
    yield job.changed(start + 0.02, status={"conditions": conditions, "startTime": _time(start)})
    pods, events = [_new_pod(name, uid, number, start, chance) for number in range(REPLICAS)], list[RecordedEvent]()
    for number, pod in enumerate(pods):
        at = start + 0.1 + number * 0.01
        yield pod.changed(at, status={"phase": "Pending"})
        events.append(_event(name, f"{name}-worker-{number}", "SuccessfulCreatePod", uid, at, chance))
        yield events[-1]
        status = {"phase": "Pending", "conditions": [_condition("PodScheduled", at)]}
        yield pod.changed(at + 0.2, status=status)
        events.append(
            _event(name, f"{name}-worker-{number}", "Scheduled", pod.body["metadata"]["uid"], at + 0.2, chance)
        )
        yield events[-1]
    for number, pod in enumerate(pods):
        at = start + 4 + number * 0.3
        events.append(_event(name, f"{name}-worker-{number}", "Pulled", pod.body["metadata"]["uid"], at, chance))
        yield events[-1]
        yield pod.changed(at, status=POD["status"])
        events.append(_event(name, f"{name}-worker-{number}", "Started", pod.body["metadata"]["uid"], at, chance))
        yield events[-1]
    conditions = [*conditions, _condition("Running", start + 8)]
    counts = {"Worker": {"active": REPLICAS}}
    yield job.changed(start + 8, status={"conditions": conditions, "replicaStatuses": counts})
    loss = 4.0
    for number in range(1, round(HOUR / PROGRESS_SECONDS) + 1):
        at = start + 8 + number * PROGRESS_SECONDS + chance.random()
        loss *= 1 + chance.gauss(-0.002, 0.01)
        metrics = {"loss": loss, "accuracy": 1 - loss / 5, "tokens_per_second": chance.gauss(51234.5, 300)}
        metrics = {key: round(value, 6) for key, value in metrics.items()}
        report = {"step": number * 10, "total": 7200, **metrics}
        metadata = pods[0].body["metadata"]
        annotations = {**metadata["annotations"], "training.gangline.dev/progress": json.dumps({"progress": report})}
        yield pods[0].changed(at, metadata={**metadata, "annotations": annotations})
        progress = {"step": number * 10, "total": 7200, "metrics": metrics, "replica": "worker-0", "updated": _time(at)}
        yield job.changed(at + 0.05, status={**job.body["status"], "progress": progress})
    end = start + 8 + HOUR + 10
    for number, pod in enumerate(pods):
        status = json.loads(json.dumps(POD["status"]))
        terminated = {
            "exitCode": 0,
            "reason": "Completed",
            "finishedAt": _time(end),
            "containerID": f"process://{number}",
        }
        for container in status["containerStatuses"]:
            container["state"] = {"terminated": terminated}
        yield pod.changed(end + number * 0.1, status={**status, "phase": "Succeeded"})
        yield RecordedEvent(end + number * 0.1, pod.path, pod.body, _log(number, end, chance))
    conditions = [*conditions[:1], {**conditions[1], "status": "False"}, _condition("Succeeded", end + 1)]
    yield job.changed(end + 1, status={**job.body["status"], "conditions": conditions})
    yield (ended := _event(name, name, "JobSucceeded", uid, end + 1, chance))
    # A server keeps events for an hour.
    yield from (RecordedEvent(end + 2, event.path, None) for event in events)
    yield RecordedEvent(end + HOUR, ended.path, None)
    for pod in pods:
        yield RecordedEvent(end + DAY, pod.path, None)
    yield RecordedEvent(end + DAY, job.path, None)


def _new_job(name: str, uid: str, start: float) -> _Object:
    replicas = {"replicas": REPLICAS, "restartPolicy": "OnFailure", "template": {"spec": POD["spec"]}}
    metadata = {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": _time(start)}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": {"pytorchReplicaSpecs": {"Worker": replicas}, "runPolicy": {"cleanPodPolicy": "None"}},
        "status": {},
    }
    return _Object(f"/kubeflow.org/pytorchjobs/default/{name}", body)


def _new_pod(job: str, uid: str, number: int, start: float, chance: random.Random) -> _Object:
    name = f"{job}-worker-{number}"
    metadata = {
        **{key: value for key, value in POD["metadata"].items() if key != "managedFields"},
        "name": name,
        "namespace": "default",
        "uid": f"{chance.getrandbits(128):032x}",
        "creationTimestamp": _time(start),
        "ownerReferences": [{**POD["metadata"]["ownerReferences"][0], "name": job, "uid": uid, "controller": True}],
    }
    return _Object(f"//pods/default/{name}", {**POD, "metadata": metadata})


def _event(job: str, name: str, reason: str, uid: str, at: float, chance: random.Random) -> RecordedEvent:
    own = f"{name}.{chance.getrandbits(64):016x}"
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": own, "namespace": "default", "uid": f"{chance.getrandbits(128):032x}"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": name, "uid": uid},
        "reason": reason,
        "message": f"{reason}: {name} of {job}",
        "firstTimestamp": _time(at),
        "lastTimestamp": _time(at),
        "count": 1,
        "type": "Normal",
    }
    return RecordedEvent(at, f"//events/default/{own}", body)


def _condition(kind: str, at: float) -> JSON:
    message = f"the job is {kind.lower()}"
    return {"type": kind, "status": "True", "reason": f"Job{kind}", "message": message, "lastTransitionTime": _time(at)}


def _log(rank: int, end: float, chance: random.Random) -> str:
    times = (datetime.fromtimestamp(end - LOG_LINES + line, UTC).isoformat() for line in range(LOG_LINES))
    return "".join(
        f"{time} rank {rank}: step {7200 - LOG_LINES + line} loss {chance.random():.6f} {chance.random() * 50:.1f} ms\n"
        for line, time in enumerate(times)
    )


def _time(at: float) -> str:
    return kubernetes_time(datetime.fromtimestamp(at, UTC))

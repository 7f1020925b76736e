"""Random histories of a store, recorded and replayed: every moment is as it was."""

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.tasks import background_tasks
from gangline.history.reader import HistoryReader
from gangline.history.retention import HistoryLimits
from gangline.history.selection import is_listed_job, recorded_body, recorded_prefixes
from gangline.local.history import StoreRecording
from gangline.testing.clock import FakeClock

HISTORIES, MOMENTS = 20, 50
"""A thousand moments."""
PATHS = (
    "/kubeflow.org/pytorchjobs/default/bert",
    "/kubeflow.org/tfjobs/team-a/linear",
    *(f"//pods/default/bert-worker-{number}" for number in range(4)),
    "//events/default/bert.1",
    "//nodes//one",
    "//services/default/bert",
    "/scheduling.gangline.dev/podgroups/default/bert",
    "//secrets/default/password",
    "//configmaps/default/settings",
    "/coordination.k8s.io/leases/default/leader",
)
PREFIXES = recorded_prefixes()


def random_value(chance: random.Random, depth: int = 0) -> Any:
    kinds = (
        ("text", "number", "truth", "nothing", "decimal")
        if depth > 3
        else ("map", "list", "map", "text", "nothing", "number")
    )
    match chance.choice(kinds):
        case "map":
            return {chance.choice("abcdé"): random_value(chance, depth + 1) for _ in range(chance.randrange(4))}
        case "list":
            return [random_value(chance, depth + 1) for _ in range(chance.randrange(3))]
        case "text":
            return chance.choice(("", "Running", "a line\nand another", "日本", '"quoted"', "\u2028"))
        case "number":
            return chance.choice((0, 1, -1, 2**53))
        case "decimal":
            return chance.choice((0.5, 1e-9, 1.0))
        case "truth":
            return chance.random() < 0.5
        case _:
            return None


def changed(chance: random.Random, value: Any) -> Any:
    """The value with a random part replaced, added or removed."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        if chance.random() < 0.2:
            return {other: part for other, part in value.items() if other != name}
        return {**value, name: changed(chance, value[name])}
    return random_value(chance, 1)


def random_body(chance: random.Random, path: str, uid: int) -> JSON:
    name = path.rpartition("/")[2]
    metadata: JSON = {"name": name, "uid": f"uid-{uid}", "managedFields": [{"manager": "kubectl"}]}
    if "pods" in path:
        metadata["ownerReferences"] = [{"uid": f"uid-{chance.randrange(uid + 1)}", "controller": True}]
    spec: JSON = {"pytorchReplicaSpecs": {}} if "jobs" in path else {"a": random_value(chance)}
    return {
        "kind": "Thing",
        "metadata": metadata,
        "spec": spec,
        "status": {"conditions": [], "b": random_value(chance)},
    }


def live_state(store: Store) -> dict[str, JSON]:
    records = (record for record in store.range("").records if record.path.startswith(PREFIXES))
    return {record.path: recorded_body(record.path, msgspec.json.decode(record.data)) for record in records}


async def change_store(chance: random.Random, store: Store, uids: list[int]) -> None:
    """One commit of one to three random writes."""
    writes = []
    for path in chance.sample(PATHS, chance.randrange(1, 4)):
        current = store.get(path)
        if current is None:
            uids[0] += 1
            writes.append(StoreWrite(path, random_body(chance, path, uids[0]), 0))
        elif chance.random() < 0.15:
            writes.append(StoreWrite(path, None, current.revision))
        else:
            body = msgspec.json.decode(current.data)
            if "jobs" in path or chance.random() < 0.5:
                status = {**body["status"], "b": changed(chance, body["status"]["b"])}
                if "jobs" in path and chance.random() < 0.1:
                    status["conditions"] = random_value(chance)
                body = {**body, "status": status}
            else:
                body = {**body, "spec": changed(chance, body["spec"])}
            writes.append(StoreWrite(path, body, current.revision))
    await store.commit(*writes)


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_any_moment_of_a_random_history_is_replayed_as_it_was(seed: int, tmp_path: Path) -> None:
    chance, clock, uids = random.Random(seed), FakeClock(), [0]
    snapshots: dict[float, dict[str, JSON]] = {}
    limits = HistoryLimits(segment_bytes=chance.choice((500, 5_000, 2**20)))
    async with Store() as store:
        for _ in range(chance.randrange(5)):
            await change_store(chance, store, uids)
        for _ in range(chance.choice((2, 3, 4))):  # the recorder is restarted
            recording = StoreRecording(tmp_path, tmp_path, clock, limits=limits)
            recording.start(store)
            async with background_tasks(recording.run()):
                for _ in range(40):
                    for _ in range(chance.randrange(4)):
                        await change_store(chance, store, uids)
                    snapshots[clock.now().timestamp()] = live_state(store)
                    await clock.advance(timedelta(milliseconds=chance.choice((1, 2, 5, 700, 3000, 20_000))))
            recording.finish()
            await clock.advance(timedelta(seconds=1))
    reader = HistoryReader(tmp_path)
    for moment in chance.sample(sorted(snapshots), MOMENTS):
        assert reader.objects_at(moment) == snapshots[moment]
    # Not only single moments: what is recorded of the jobs adds up to the last state.
    last = live_state(store)
    jobs = [job for job in reader.jobs() if job.deleted is None]
    assert {job.uid for job in jobs} == {
        body["metadata"]["uid"] for path, body in last.items() if is_listed_job(path, body)
    }
    for job in jobs:
        versions = reader.job_changes(job.namespace, job.plural, job.name, job.uid)
        newest = {version.path: version.body for version in versions if version.uid == job.uid}
        assert newest == {path: body for path, body in last.items() if body["metadata"]["uid"] == job.uid}
    kinds = {version.path.split("/")[2] for version in reader.changes(0, 1e12)}
    assert not kinds & {"secrets", "configmaps", "leases"}

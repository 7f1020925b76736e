"""The operator and a scheduler in one loop: whatever happens to pods and room, a job in a quiet cluster runs again.

The planner and the state machine are real; the cluster is a number of places, with a scheduler that binds all or none.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from gangline.api.codec.codec import to_json
from gangline.api.core import ContainerState, ContainerStateTerminated, ContainerStatus, Pod
from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE, JobKind
from gangline.api.meta import JSON
from gangline.api.scheduling import PodGroupState
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.framework import Framework
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.plan.actions import Create, Delete, Patch
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.pods.addressing import Site
from gangline.scheduler.gangs.phase import (
    GangObservation,
    LostMember,
    MemberStatus,
    PlacementAttempt,
    next_state,
    podgroup_status,
)
from gangline.testing.builders import make_job

START = datetime(2026, 1, 1, tzinfo=UTC)
SITE = Site(gang_scheduler=GanglineScheduler())
GROUPS = "podgroups.scheduling.gangline.dev"
FORBIDDEN = {
    ("Pending", "Unschedulable"),
    ("Running", "Pending"),
    ("Running", "Unschedulable"),
    ("Recovering", "Pending"),
    ("Unschedulable", "Recovering"),
}


class World:
    def __init__(self, framework: Framework[Any], job: Any, places: int) -> None:
        self.framework, self.job, self.places = framework, job, places
        self.now, self.made = START, 0
        self.pods: dict[str, Pod] = {}
        self.group: JSON | None = None
        self.gone: dict[str, LostMember] = {}
        self.failures = 0
        self.times_stranded = 0

    # The operator

    def operate(self) -> None:
        children = JobChildren(pods=tuple(self.pods.values()))
        seen = ObservedJob.of(
            self.framework,
            self.job,
            self.now,
            children,
            SITE,
            lambda kind, _: self.group if kind == GROUPS else {},
        )
        # What a framework needs besides is there, and not looked at.
        seen = msgspec.structs.replace(
            seen, companions=tuple(each for each in seen.companions if each[0].resource == GROUPS)
        )
        intent = reconcile_plan(self.framework, seen)
        self.job = msgspec.structs.replace(self.job, status=intent.status)
        for stage in intent.stages:
            for action in stage:
                self.perform(action)

    def perform(self, action: Any) -> None:
        match action:
            case Create(resource=resource, body=body) if resource == GROUPS:
                self.group = {**body, "metadata": {**body["metadata"], "uid": "g"}, "status": {}}
            case Patch(resource=resource, body=body) if resource == GROUPS and self.group is not None:
                self.group = {**self.group, "spec": {**self.group["spec"], **body["spec"]}}
            case Create(resource="pods", body=body):
                self.made += 1
                pod = msgspec.convert({**body, "status": {"phase": "Pending"}}, Pod, strict=False)
                uid = msgspec.structs.replace(pod.metadata, uid=f"u{self.made}", creation_timestamp=self.now)
                assert pod.metadata.name not in self.pods, "a seat has two pods"
                self.pods[pod.metadata.name] = msgspec.structs.replace(pod, metadata=uid)
                self.gone.pop(pod.metadata.name, None)
            case Delete(resource="pods", name=name, uid=uid):
                self.delete(name, uid)

    # The cluster

    def delete(self, name: str, uid: str = "") -> None:
        pod = self.pods.get(name)
        if pod is None or (uid and pod.metadata.uid != uid):
            return
        if not pod.spec.node_name or pod.status.phase == "Failed":
            self.remove(name)
        elif pod.metadata.deletion_timestamp is None:
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=self.now)
            self.pods[name] = msgspec.structs.replace(pod, metadata=metadata)

    def remove(self, name: str) -> None:
        pod = self.pods.pop(name)
        facts = self.facts(pod)
        self.gone[name] = LostMember(name, facts.role, facts.index)

    def fail(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is None or pod.status.phase != "Running" or pod.metadata.deletion_timestamp is not None:
            return
        self.failures += 1
        ended = ContainerStateTerminated(exit_code=137, finished_at=self.now)
        container = ContainerStatus(name=self.framework.facts.container, state=ContainerState(terminated=ended))
        status = msgspec.structs.replace(pod.status, phase="Failed", container_statuses=(container,))
        self.pods[name] = msgspec.structs.replace(pod, status=status)

    def kubelets(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.metadata.deletion_timestamp is not None:
                self.remove(name)
            elif pod.spec.node_name and pod.status.phase == "Pending":
                status = msgspec.structs.replace(pod.status, phase="Running")
                self.pods[name] = msgspec.structs.replace(pod, status=status)

    # The scheduler

    def facts(self, pod: Pod) -> MemberStatus:
        labels = pod.metadata.labels
        index = labels.get(REPLICA_INDEX)
        return MemberStatus(
            uid=pod.metadata.uid,
            name=pod.metadata.name,
            role=labels[REPLICA_TYPE],
            index=None if index is None else int(index),
            phase=pod.status.phase,
            deleting=pod.metadata.deletion_timestamp is not None,
            node=pod.spec.node_name,
            # Since it was made: later than that it was bound, and that is late enough.
            scheduled_at=pod.metadata.creation_timestamp if pod.spec.node_name else None,
        )

    def schedule(self) -> None:
        if self.group is None:
            return
        least = self.group["spec"]["minMember"]
        live = [pod for pod in self.pods.values() if pod.metadata.deletion_timestamp is None]
        live = [pod for pod in live if pod.status.phase != "Failed"]
        waiting = [pod for pod in live if not pod.spec.node_name]
        held = sum(bool(pod.spec.node_name) for pod in live)
        leaving = sum(pod.metadata.deletion_timestamp is not None for pod in self.pods.values())
        missing = max(least - held, 0)
        attempt = None
        if waiting and len(live) >= least:
            free = self.places - held
            attempt = PlacementAttempt(failed=missing > free, message="no room" if missing > free else "")
            for pod in waiting[: max(free - leaving, 0)] if missing <= free - leaving else []:
                spec = msgspec.structs.replace(pod.spec, node_name="node")
                self.pods[pod.metadata.name] = msgspec.structs.replace(pod, spec=spec)
        self.probe(attempt)

    def probe(self, attempt: PlacementAttempt | None) -> None:
        assert self.group is not None
        for _ in range(4):
            status = self.group["status"]
            before = msgspec.convert(status.get("state", {}), PodGroupState)
            seen = GangObservation(
                state=before,
                min_members=self.group["spec"]["minMember"],
                min_by_role=self.group["spec"].get("minTaskMember", {}),
                members=tuple(self.facts(pod) for pod in self.pods.values()),
                lost_members=tuple(self.gone.values()),
                last_attempt=attempt,
                recorded_count=status.get("running", 0) + status.get("succeeded", 0),
                now=self.now,
            )
            after = next_state(seen)
            assert (before.phase, after.phase) not in FORBIDDEN
            self.times_stranded += after.phase == "Unschedulable" != before.phase
            self.group = {**self.group, "status": to_json(podgroup_status(seen, after))}
            if after.phase == before.phase:
                break
        assert self.count("Running") <= max(self.places, self.most)

    # What there is

    most = 0

    def count(self, phase: str) -> int:
        return sum(pod.status.phase == phase for pod in self.pods.values())

    @property
    def phase(self) -> str:
        found: str = ((self.group or {}).get("status") or {}).get("state", {}).get("phase", "")
        return found

    def turn(self) -> None:
        """Everybody looks once."""
        self.operate()
        self.schedule()
        self.kubelets()
        self.schedule()
        self.now += timedelta(seconds=1)


def mpi() -> World:
    return World(Mpi(), make_job(MPIJOB, launcher=1, worker=3, restart="ExitCode"), 4)


def elastic() -> World:
    policy = {"schedulingPolicy": {"minAvailable": 4}}
    spec = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}}
    return World(PyTorch(), make_job(PYTORCHJOB, worker=4, restart="ExitCode", policy=policy, spec=spec), 4)


def whole() -> World:
    job = make_job(PYTORCHJOB, master=1, worker=3, restart="ExitCode", policy={"restartScope": "Job"})
    return World(PyTorch(), job, 4)


def names(kind: JobKind) -> list[str]:
    lead = {"MPIJob": ["job-launcher"], "PyTorchJob": ["job-master-0", "job-worker-3"]}[kind.kind]
    return [*lead, *(f"job-worker-{index}" for index in range(3))]


WORDS = ["turn", "turn", "operate", "schedule", "kubelets", "kill", "fail", "room", "squeeze", "squeeze"]
STEPS = st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 4)), max_size=20)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([mpi, elastic, whole]), STEPS)
@example(elastic, [("squeeze", 1), ("kill", 2), ("turn", 0), ("room", 0), ("turn", 0)])
def test_a_job_whose_gang_was_in_trouble_runs_again_once_it_can(make: Any, steps: list[tuple[str, int]]) -> None:
    world = make()
    known = names(world.framework.facts)
    world.turn()
    for what, number in steps:
        if what == "squeeze":
            # One is lost, and its place too.
            world.delete(known[number % len(known)])
            world.kubelets()
            world.places = max(world.count("Running"), 1)
            world.turn()
        elif what == "kill":
            world.delete(known[number % len(known)])
        elif what == "fail":
            world.fail(known[number % len(known)])
        elif what == "room":
            # Room that is in use, or given, stays so.
            world.places = number
            world.most = max(world.most, sum(bool(pod.spec.node_name) for pod in world.pods.values()))
        else:
            getattr(world, what)()
    world.places = 4
    for _ in range(12):
        world.turn()
        # Waits between restarts are over at some time.
        world.now += timedelta(minutes=1)
    status = world.job.status
    event(f"{world.job.KIND}, stranded {min(world.times_stranded, 2)} times")
    assert world.phase == "Running"
    assert world.count("Running") == 4
    assert status.holds("Running")
    assert world.group is not None
    assert world.group["spec"]["minMember"] == 4
    # Only failures are counted, each once; nobody is blamed for room.
    assert status.restarts <= world.failures + (status.ledger.round if make is whole else 0)
    assert status.ledger.renewals <= world.times_stranded
    assert make is not elastic or status.ledger.round == 0

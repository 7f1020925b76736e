"""What must hold of a job, whatever happens: judged at every change that the operator makes, and when it is quiet."""

from datetime import datetime, timedelta
from typing import Any

from gangline.api.kubeflow.training import (
    JOB_NAME,
    ROUND_ANNOTATION,
    ConditionType,
    JobPhase,
    JobStatus,
    RestartPolicy,
    RestartScope,
    RunState,
)
from gangline.api.meta import JSON
from gangline.jobs.defaults import is_managed_here
from gangline.jobs.framework import Framework
from gangline.jobs.plan.restarts import restart_scope
from gangline.jobs.pods.replicas import Member, member_name
from gangline.jobs.site import ServiceMode
from gangline.testing.world.server import WorldWrite, controller_uid, labels_of
from gangline.testing.world.world import World

LABELLED_RESOURCES = ("pods", "services")


class Invariants:
    """Follows one job, until another one of its name takes its place."""

    def __init__(self) -> None:
        self._uid = ""
        self._reset("")

    def _reset(self, uid: str) -> None:
        self._uid = uid
        self._status = JobStatus()
        self._replaced: set[str] = set()
        self._services: set[str] = set()
        # When each condition was last written, by type: a count of writes.
        self._condition_writes: dict[str, tuple[int, Any]] = {}
        self._status_writes = 0
        # The clean-up policy under which the job came to its end.
        self._policy = ""

    def judge(self, world: World, write: WorldWrite) -> None:
        """One change of the operator's."""
        if write.resource == world.plural:
            if write.verb == "status":
                self._judge_status(world)
            return
        if write.before is not None:
            touched = write.before["metadata"]["uid"]
            assert touched not in world.strangers, f"touched a stranger's {world.server.names_by_uid[touched]}"
        if write.verb == "create":
            self._judge_create(world, write)
        if write.verb == "patch" and write.before is not None and controller_uid(write.before) is None:
            body = world.body
            assert body is not None
            assert controller_uid(write.newest) == body["metadata"]["uid"], "adopted by a job that is no more"
        if write.verb == "delete" and write.resource == "pods":
            self._judge_deleted_pod(world, write)

    # Writes

    def _judge_create(self, world: World, write: WorldWrite) -> None:
        facts, name = world.framework.facts, write.newest["metadata"]["name"]
        owner = controller_uid(write.newest)
        assert owner is not None, f"{write.resource} {name} has no owner"
        body = world.body
        if owner != self._uid and body is not None and owner == body["metadata"]["uid"]:
            # The objects of a new job may come before its status.
            self._reset(owner)
        if write.resource == "services":
            self._services.add(name)
        elif write.resource == "pods" and facts.port is not None:
            needed = world.key.name if world.site.services is ServiceMode.PER_JOB else name
            found = world.server.find("services", needed)
            assert needed in self._services or found is not None, f"pod {name} came before its service"

    def _judge_deleted_pod(self, world: World, write: WorldWrite) -> None:
        """A failed pod is the only proof of its restart: that must be written down before the pod goes."""
        body, pod = world.body, write.before
        assert pod is not None
        if body is None or controller_uid(pod) != body["metadata"]["uid"]:
            return
        job, uid = world.job, pod["metadata"]["uid"]
        status: JobStatus = job.status
        names = {
            member_name(world.key.name, seat)
            for seat in expected_members(world.framework, job)
            if int((pod["metadata"].get("annotations") or {}).get(ROUND_ANNOTATION, "0")) >= status.ledger.round
        }
        stays = pod["metadata"]["name"] in names and not status.finished
        if pod["status"]["phase"] == "Failed" and stays and not world.framework.run_policy(job).suspend:
            assert uid in self._replaced, f"{world.server.names_by_uid[uid]} was deleted before it was counted"

    def _judge_status(self, world: World) -> None:
        job = world.job
        if job.metadata.uid != self._uid:
            self._reset(job.metadata.uid)
        before, after = self._status, job.status
        self._judge_conditions(after)
        self._judge_end(world, before, after)
        self._judge_restarts(world, before, after)
        self._judge_lifecycle(world, before, after)
        self._status = after

    def _judge_conditions(self, status: JobStatus) -> None:
        self._status_writes += 1
        for found in status.conditions:
            known = self._condition_writes.get(found.type)
            if known is None or known[1] != (found.status, found.reason):
                self._condition_writes[found.type] = (self._status_writes, (found.status, found.reason))
        kinds = [found.type for found in status.conditions]
        assert len(set(kinds)) == len(kinds), f"{kinds}: a condition is there twice"
        true = [found for found in status.conditions if found.status == "True"]
        order = [self._condition_writes[found.type][0] for found in true]
        assert order[-1:] == [max(order)] if order else True, f"{kinds}: the newest True condition is not the last"
        for kind in set(self._condition_writes) - set(kinds):
            del self._condition_writes[kind]
        held = {found.type for found in true}
        assert not {"Succeeded", "Failed"} <= held
        assert not {"Running", "Restarting"} <= held
        assert not ({"Succeeded", "Failed"} & held and {"Running", "Restarting", "Blocked"} & held)
        assert not {"Suspended", "Running"} <= held

    def _judge_end(self, world: World, before: JobStatus, after: JobStatus) -> None:
        assert after.finished == (after.completion_time is not None)
        if not before.finished:
            failed = after.condition(ConditionType.FAILED)
            if failed is not None and "replica(s) failed" in failed.message:
                assert after.first_failure is not None
                name = after.first_failure.pod
                assert name in world.failures.values(), f"{name} never failed"
            return
        for kind in (ConditionType.SUCCEEDED, ConditionType.FAILED):
            assert after.condition(kind) == before.condition(kind), "the verdict changed"
        assert after.completion_time == before.completion_time
        assert after.restarts == before.restarts
        assert after.conditions == before.conditions
        if before.phase != JobPhase.CLEAN_UP:
            assert after.phase == before.phase, f"{before.phase} is terminal, and became {after.phase}"

    def _judge_restarts(self, world: World, before: JobStatus, after: JobStatus) -> None:
        fresh = set(after.ledger.replaced) - self._replaced
        for uid in fresh:
            assert uid in world.failures, f"{world.server.names_by_uid[uid]} never failed"
        self._replaced |= fresh
        assert after.ledger.round - before.ledger.round in (0, 1)
        made = len(self._replaced) + after.ledger.round - after.ledger.renewals
        assert after.restarts == made + after.ledger.in_place, (
            f"{after.restarts} restarts, of which {len(self._replaced)} replaced, {after.ledger.round} rounds"
            f" and {after.ledger.in_place} in place"
        )
        assert after.restarts >= before.restarts
        there_were = sum(world.in_place.values())
        assert after.ledger.in_place <= there_were, (
            f"{after.ledger.in_place} restarts in place were counted, {there_were} there were"
        )
        assert after.ledger.round <= world.incidents, "the team restarted for nothing"
        limit = world.framework.run_policy(world.job).backoff_limit
        assert limit is None or made <= limit, f"{made} restarts, of {limit} allowed"

    def _judge_lifecycle(self, world: World, before: JobStatus, after: JobStatus) -> None:
        """The tables of docs/jobs.md."""
        suspended, running = after.holds(ConditionType.SUSPENDED), after.holds(ConditionType.RUNNING)
        succeeded, failed = after.holds(ConditionType.SUCCEEDED), after.holds(ConditionType.FAILED)
        going = not suspended and not after.finished
        allowed = {
            JobPhase.NONE: suspended and not after.finished,
            JobPhase.CREATING: going and not running,
            JobPhase.RUNNING: going and (running or before.phase == JobPhase.RUNNING),
            JobPhase.CLEAN_UP: after.finished,
            JobPhase.DONE: succeeded,
            JobPhase.FAILED: failed,
        }
        assert allowed[JobPhase(after.phase)], f"phase {after.phase!r} with {after.conditions}"
        states = {
            RunState.UNKNOWN: not after.finished,
            RunState.RUNNING: after.phase in (JobPhase.CREATING, JobPhase.RUNNING),
            RunState.SUCCEEDED: succeeded,
            RunState.FAILED: failed,
        }
        assert states[RunState(after.state)], f"state {after.state} in phase {after.phase!r}"
        if not before.finished:
            self._judge_states(world, after, suspended=suspended)

    def _judge_states(self, world: World, status: JobStatus, *, suspended: bool) -> None:
        for kind, spec in world.framework.replicas(world.job).items():
            if suspended and kind not in status.replica_statuses:
                continue
            found = status.replica_statuses[kind]
            assert sum(found.states.values()) == spec.replicas, f"{kind}: {spec.replicas} replicas, {found.states}"
            assert all(number > 0 for number in found.states.values())
            assert found.state == RunState.UNKNOWN or found.states.get(found.state), f"{kind} is {found}"


def expected_members(framework: Framework[Any], job: Any) -> list[Member]:
    return [
        Member(kind, index) for kind, spec in framework.replicas(job).items() for index in range(spec.replicas or 0)
    ]


async def check_at_rest(world: World) -> None:
    """The caches show everything and nothing wakes the operator: it must be right as it is, and stay so."""
    await check_nothing_left_to_do(world)
    body = world.body
    if body is None:
        left = [
            (kind, found["metadata"]["name"]) for kind, found in world.server.objects.items() if controller_uid(found)
        ]
        assert not left, f"the job is gone, and left behind {left}"
        return
    job, status = world.job, world.job.status
    policy = world.framework.run_policy(job)
    if not is_managed_here(policy):
        return
    # Without its label nobody sees an object, unless its name is needed.
    mine = [
        (kind, found) for kind, found in world.owned() if kind not in LABELLED_RESOURCES or JOB_NAME in labels_of(found)
    ]
    pods = [found for kind, found in mine if kind == "pods"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if status.finished:
        _check_finished(world, status, policy.clean_pod_policy, mine, live)
    elif policy.suspend:
        assert status.holds(ConditionType.SUSPENDED)
        assert status.phase == ""
        assert not live
        assert not [found for kind, found in mine if kind == "services"]
        assert all(found.active == 0 for found in status.replica_statuses.values())
    elif not status.holds(ConditionType.BLOCKED):
        _check_active(world, job, pods)


def _check_finished(world: World, status: JobStatus, policy: str, mine: Any, live: list[JSON]) -> None:
    services = [found for kind, found in mine if kind == "services"]
    if policy == "All" or status.ledger.clear:
        assert not live, [pod["metadata"]["name"] for pod in live]
        assert not services
    if policy == "Running":
        assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in live)
    failed = status.holds(ConditionType.FAILED)
    if not [found for kind, found in mine if kind == "pods" and "deletionTimestamp" in found["metadata"]]:
        assert status.phase == (JobPhase.FAILED if failed else JobPhase.DONE)
    assert status.state == (RunState.FAILED if failed else RunState.SUCCEEDED)


def _check_active(world: World, job: Any, pods: list[JSON]) -> None:
    status: JobStatus = job.status
    wanted = {member_name(world.key.name, seat): seat for seat in expected_members(world.framework, job)}
    there = {pod["metadata"]["name"]: pod for pod in pods}
    replicas = world.framework.replicas(job)
    waits = world.alarm is not None
    strangers = {name for (kind, name), found in world.server.objects.items() if kind == "pods"} - set(there)
    for name, seat in wanted.items():
        assert name in there or waits or strangers or _any_terminating(pods), f"nobody sits at {name}"
        pod = there.get(name)
        if pod is None or pod["status"]["phase"] != "Failed" or "deletionTimestamp" in pod["metadata"]:
            continue
        never = replicas[seat.type].restart_policy == RestartPolicy.NEVER
        tolerated = never and world.framework.tolerates(job, seat.type)
        assert waits or tolerated, f"{name} failed, and nothing is done"
    extra = [name for name, pod in there.items() if name not in wanted and "deletionTimestamp" not in pod["metadata"]]
    assert not extra, f"{extra} are too many"
    if world.framework.facts.port is not None and wanted:
        services = {found["metadata"]["name"] for found in world.server.list_objects("services")}
        needed = {world.key.name} if world.site.services is ServiceMode.PER_JOB else set(wanted)
        assert needed <= services, f"services {needed - services} are missing"
    _check_counters(world, job, there, wanted)
    _check_in_place(world, status, pods, replicas, wanted)


def _check_counters(world: World, job: Any, there: dict[str, JSON], wanted: dict[str, Any]) -> None:
    """At rest the counters are those of the pods."""
    number = job.status.ledger.round
    for kind, counts in job.status.replica_statuses.items():
        seen = [
            pod["status"]["phase"]
            for name, pod in there.items()
            if name in wanted
            and wanted[name].type == kind
            and int((pod["metadata"].get("annotations") or {}).get(ROUND_ANNOTATION, "0")) >= number
            and not (pod["status"]["phase"] == "Running" and "deletionTimestamp" in pod["metadata"])
        ]
        told = (counts.active, counts.succeeded, counts.failed)
        assert told == (seen.count("Running"), seen.count("Succeeded"), seen.count("Failed")), (
            kind,
            told,
            seen,
        )


def _check_in_place(world: World, status: JobStatus, pods: list[JSON], replicas: Any, wanted: Any) -> None:
    """What kubelets did to the pods that are there is counted to the last."""
    for pod in pods:
        uid, seat = pod["metadata"]["uid"], wanted.get(pod["metadata"]["name"])
        if seat is not None and replicas[seat.type].restart_policy != RestartPolicy.NEVER:
            number = int((pod["metadata"].get("annotations") or {}).get(ROUND_ANNOTATION, "0"))
            if number >= status.ledger.round:
                assert status.ledger.counted.get(uid, 0) == world.in_place.get(uid, 0)


def check_restart_count(world: World) -> None:
    """When the operator has seen everything: single restarts, one for each that there was.

    Of a job that restarts replicas one by one, goes on, and whose name was never another job's. While one is blocked,
    only an alarm makes the operator look at what its caches do not show.
    """
    if world.body is None or world.job.status.finished or world.job.status.holds(ConditionType.BLOCKED):
        return
    job = world.job
    if restart_scope(job, world.framework.run_policy(job)) is RestartScope.JOB or not is_managed_here(
        world.framework.run_policy(job)
    ):
        return
    again = {
        kind.lower()
        for kind, spec in world.framework.replicas(job).items()
        if spec.restart_policy != RestartPolicy.NEVER
    }
    replaced = [
        name
        for uid, name in world.failures.items()
        if uid not in world.strangers and _replica_type(world, name) in again
    ]
    happened = len(replaced) + sum(world.in_place.values())
    assert job.status.restarts == happened, f"{job.status.restarts} restarts were counted, {happened} there were"


def _replica_type(world: World, pod: str) -> str:
    name = pod.removeprefix(f"{world.key.name}-")
    return name.rpartition("-")[0] or name


def _any_terminating(pods: list[JSON]) -> bool:
    return any("deletionTimestamp" in pod["metadata"] for pod in pods)


async def check_nothing_left_to_do(world: World) -> None:
    """The plan is empty now; and until the alarm, or for ever if there is none, it stays empty."""
    writes = world.writes
    alarm = world.alarm
    await world.look()
    assert world.writes == writes, "a second look changed something"
    assert world.alarm == alarm or (world.alarm is None) == (alarm is None)
    now: datetime = world.clock.now()
    later = timedelta(days=30) if alarm is None else alarm - now - timedelta(seconds=1)
    if later > timedelta():
        world.advance(later)
        await world.look()
        assert world.writes == writes, f"something was due after {later}, and nothing would have woken the operator"
        world.advance(-later)
        await world.look()

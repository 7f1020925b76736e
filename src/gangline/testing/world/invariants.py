"""Invariants of a job in a `World`: checked at every write of the operator, and when it is done."""

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
from gangline.jobs.plan.restarts import restart_scope
from gangline.jobs.pods.replicas import Member, job_members, member_name
from gangline.jobs.site import ServiceMode
from gangline.testing.world.server import WorldWrite, controller_uid, labels_of
from gangline.testing.world.world import World

LABELLED_RESOURCES = ("pods", "services")


class Invariants:
    """Checks every write of the operator for one job. Starts anew when another job of that name is created."""

    def __init__(self) -> None:
        self._uid = ""
        self._reset("")

    def _reset(self, uid: str) -> None:
        self._uid = uid
        self._status = JobStatus()
        self._replaced: set[str] = set()
        self._services: set[str] = set()
        # By condition type: the number of the status write that last changed it, and its status and reason.
        self._condition_writes: dict[str, tuple[int, Any]] = {}
        self._status_writes = 0

    def judge(self, world: World, write: WorldWrite) -> None:
        """Check one write of the operator."""
        if write.resource == world.plural:
            if write.verb == "status":
                self._judge_status(world)
            return
        if write.before is not None:
            uid = write.before["metadata"]["uid"]
            assert uid not in world.strangers, f"touched a stranger's {world.server.names_by_uid[uid]}"
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
        job_kind, name = world.framework.facts, write.newest["metadata"]["name"]
        owner = controller_uid(write.newest)
        assert owner is not None, f"{write.resource} {name} has no owner"
        body = world.body
        if owner != self._uid and body is not None and owner == body["metadata"]["uid"]:
            # The objects of a new job may be created before its status.
            self._reset(owner)
        if write.resource == "services":
            self._services.add(name)
        elif write.resource == "pods" and job_kind.port is not None:
            needed = world.key.name if world.site.services is ServiceMode.PER_JOB else name
            service = world.server.find("services", needed)
            assert needed in self._services or service is not None, f"pod {name} came before its service"
        if write.resource == "pods":
            self._judge_rounds(world, write.newest)

    def _judge_rounds(self, world: World, created: JSON) -> None:
        """No pod starts while a pod of another round exists, even one without labels: two teams would meet.

        A pod without labels of which the job asks no replica cannot be found.
        """
        owner, number = controller_uid(created), _round(created)
        body = world.body
        if body is None or body["metadata"]["uid"] != owner:
            return
        members = _members_by_name(world, world.job)
        for pod in world.pods():
            name, other = pod["metadata"]["name"], _round(pod)
            visible = JOB_NAME in labels_of(pod) or name in members
            if controller_uid(pod) == owner and visible and other != number:
                raise AssertionError(f"{created['metadata']['name']} of round {number} meets {name} of round {other}")

    def _judge_deleted_pod(self, world: World, write: WorldWrite) -> None:
        """A failed pod is the only proof of its restart: the restart must be counted before the pod is deleted."""
        body, pod = world.body, write.before
        assert pod is not None
        if body is None or controller_uid(pod) != body["metadata"]["uid"]:
            return
        job, uid = world.job, pod["metadata"]["uid"]
        status: JobStatus = job.status
        is_current = pod["metadata"]["name"] in _members_by_name(world, job) and _round(pod) >= status.ledger.round
        restarts = is_current and not status.finished and not world.framework.run_policy(job).suspend
        if pod["status"]["phase"] == "Failed" and restarts:
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
        for condition in status.conditions:
            last = self._condition_writes.get(condition.type)
            value = (condition.status, condition.reason)
            if last is None or last[1] != value:
                self._condition_writes[condition.type] = (self._status_writes, value)
        kinds = [condition.type for condition in status.conditions]
        assert len(set(kinds)) == len(kinds), f"{kinds}: a condition is there twice"
        true = [condition.type for condition in status.conditions if condition.status == "True"]
        order = [self._condition_writes[kind][0] for kind in true]
        assert order[-1:] == [max(order)] if order else True, f"{kinds}: the newest True condition is not the last"
        for kind in set(self._condition_writes) - set(kinds):
            del self._condition_writes[kind]
        assert not {"Succeeded", "Failed"} <= set(true)
        assert not {"Running", "Restarting"} <= set(true)
        assert not ({"Succeeded", "Failed"} & set(true) and {"Running", "Restarting", "Blocked"} & set(true))
        assert not {"Suspended", "Running"} <= set(true)

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
        newly_replaced = set(after.ledger.replaced) - self._replaced
        for uid in newly_replaced:
            assert uid in world.failures, f"{world.server.names_by_uid[uid]} never failed"
        self._replaced |= newly_replaced
        assert after.ledger.round - before.ledger.round in (0, 1)
        by_operator = len(self._replaced) + after.ledger.round - after.ledger.renewals
        assert after.restarts == by_operator + after.ledger.in_place, (
            f"{after.restarts} restarts, of which {len(self._replaced)} replaced, {after.ledger.round} rounds"
            f" and {after.ledger.in_place} in place"
        )
        assert after.restarts >= before.restarts
        in_place = sum(world.in_place.values())
        assert after.ledger.in_place <= in_place, (
            f"{after.ledger.in_place} restarts in place were counted, {in_place} there were"
        )
        assert after.ledger.round <= world.incidents, "the team restarted for nothing"
        limit = world.framework.run_policy(world.job).backoff_limit
        counted = by_operator - (after.recovery.uncounted if after.recovery is not None else 0)
        assert limit is None or counted <= limit, f"{counted} restarts, of {limit} allowed"

    def _judge_lifecycle(self, world: World, before: JobStatus, after: JobStatus) -> None:
        """Check phase and state against the tables of docs/jobs.md."""
        suspended, running = after.holds(ConditionType.SUSPENDED), after.holds(ConditionType.RUNNING)
        succeeded, failed = after.holds(ConditionType.SUCCEEDED), after.holds(ConditionType.FAILED)
        active = not suspended and not after.finished
        allowed = {
            JobPhase.NONE: suspended and not after.finished,
            JobPhase.CREATING: active and not running,
            JobPhase.RUNNING: active and (running or before.phase == JobPhase.RUNNING),
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
            replica = status.replica_statuses[kind]
            assert sum(replica.states.values()) == spec.replicas, f"{kind}: {spec.replicas} replicas, {replica.states}"
            assert all(count > 0 for count in replica.states.values())
            assert replica.state == RunState.UNKNOWN or replica.states.get(replica.state), f"{kind} is {replica}"


def _members_by_name(world: World, job: Any) -> dict[str, Member]:
    """The replicas that the job asks for, by the names of their pods."""
    return {member_name(world.key.name, member): member for member in job_members(world.framework.replicas(job))}


def _round(pod: JSON) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(ROUND_ANNOTATION, "0"))


async def check_at_rest(world: World) -> None:
    """Check a world whose caches have received all events and in which no reconcile is due."""
    await check_nothing_left_to_do(world)
    body = world.body
    if body is None:
        owned = [
            (kind, body["metadata"]["name"]) for kind, body in world.server.objects.items() if controller_uid(body)
        ]
        assert not owned, f"the job is gone, and left behind {owned}"
        return
    job, status = world.job, world.job.status
    policy = world.framework.run_policy(job)
    if not is_managed_here(policy):
        return
    # The caches do not contain objects that lost the label.
    owned_objects = [
        (kind, body) for kind, body in world.owned() if kind not in LABELLED_RESOURCES or JOB_NAME in labels_of(body)
    ]
    pods = [body for kind, body in owned_objects if kind == "pods"]
    services = [body for kind, body in owned_objects if kind == "services"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    if status.finished:
        _check_finished(status, policy.clean_pod_policy, pods, services, live)
    elif policy.suspend:
        assert status.holds(ConditionType.SUSPENDED)
        assert status.phase == ""
        assert not live
        assert not services
        assert all(replica.active == 0 for replica in status.replica_statuses.values())
    elif not status.holds(ConditionType.BLOCKED):
        _check_active(world, job, pods)


def _check_finished(status: JobStatus, policy: str, pods: list[JSON], services: list[JSON], live: list[JSON]) -> None:
    if policy == "All" or status.ledger.clear:
        assert not live, [pod["metadata"]["name"] for pod in live]
        assert not services
    if policy == "Running":
        assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in live)
    failed = status.holds(ConditionType.FAILED)
    if len(live) == len(pods):
        assert status.phase == (JobPhase.FAILED if failed else JobPhase.DONE)
    assert status.state == (RunState.FAILED if failed else RunState.SUCCEEDED)


def _check_active(world: World, job: Any, pods: list[JSON]) -> None:
    status: JobStatus = job.status
    members = _members_by_name(world, job)
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    replicas = world.framework.replicas(job)
    waits = world.alarm is not None
    strangers = {name for kind, name in world.server.objects if kind == "pods"} - set(by_name)
    for name, member in members.items():
        assert name in by_name or waits or strangers or _any_terminating(pods), f"{name} has no pod"
        pod = by_name.get(name)
        if pod is None or pod["status"]["phase"] != "Failed" or "deletionTimestamp" in pod["metadata"]:
            continue
        never = replicas[member.type].restart_policy == RestartPolicy.NEVER
        tolerated = never and world.framework.tolerates(job, member.type)
        assert waits or tolerated, f"{name} failed, and nothing is done"
    extra = [
        name for name, pod in by_name.items() if name not in members and "deletionTimestamp" not in pod["metadata"]
    ]
    assert not extra, f"{extra} are too many"
    if world.framework.facts.port is not None and members:
        services = {service["metadata"]["name"] for service in world.server.list_objects("services")}
        needed = {world.key.name} if world.site.services is ServiceMode.PER_JOB else set(members)
        assert needed <= services, f"services {needed - services} are missing"
    _check_counters(status, by_name, members)
    _check_in_place(world, status, pods, members)


def _check_counters(status: JobStatus, pods: dict[str, JSON], members: dict[str, Member]) -> None:
    """Check that the counters of the status are those of the pods."""
    for kind, counts in status.replica_statuses.items():
        phases = [
            pod["status"]["phase"]
            for name, pod in pods.items()
            if name in members
            and members[name].type == kind
            and _round(pod) >= status.ledger.round
            and not (pod["status"]["phase"] == "Running" and "deletionTimestamp" in pod["metadata"])
        ]
        counters = (counts.active, counts.succeeded, counts.failed)
        expected = (phases.count("Running"), phases.count("Succeeded"), phases.count("Failed"))
        assert counters == expected, (kind, counters, phases)


def _check_in_place(world: World, status: JobStatus, pods: list[JSON], members: dict[str, Member]) -> None:
    """Check that all restarts by kubelets of pods that exist are counted."""
    replicas = world.framework.replicas(world.job)
    for pod in pods:
        uid, member = pod["metadata"]["uid"], members.get(pod["metadata"]["name"])
        if member is None or replicas[member.type].restart_policy == RestartPolicy.NEVER:
            continue
        if _round(pod) >= status.ledger.round:
            assert status.ledger.counted.get(uid, 0) == world.in_place.get(uid, 0)


def _has_uncounted_failure(world: World, status: JobStatus) -> bool:
    failed = (pod for pod in world.server.list_objects("pods") if (pod.get("status") or {}).get("phase") == "Failed")
    return any(pod["metadata"]["uid"] not in status.ledger.replaced for pod in failed)


def check_restart_count(world: World) -> None:
    """Check that every restart is counted once, when the operator has seen everything.

    Only for an active job that restarts replicas one by one, without a recovery policy, and whose name no other job had.
    Not while it is blocked: then only an alarm lets the operator see what its caches do not contain. And not while its
    verdict waits for the ends of other replicas.
    """
    if world.body is None or world.job.status.finished or world.job.status.holds(ConditionType.BLOCKED):
        return
    job = world.job
    if world.site.shared_host and _has_uncounted_failure(world, job.status):
        return
    policy = world.framework.run_policy(job)
    if restart_scope(job, policy) is RestartScope.JOB or not is_managed_here(policy) or policy.recovery is not None:
        return
    restarted_types = {
        kind.lower()
        for kind, spec in world.framework.replicas(job).items()
        if spec.restart_policy != RestartPolicy.NEVER
    }
    replaced = [
        name
        for uid, name in world.failures.items()
        if uid not in world.strangers and _replica_type(world, name) in restarted_types
    ]
    restarts = len(replaced) + sum(world.in_place.values())
    assert job.status.restarts == restarts, f"{job.status.restarts} restarts were counted, {restarts} there were"


def _replica_type(world: World, pod: str) -> str:
    name = pod.removeprefix(f"{world.key.name}-")
    return name.rpartition("-")[0] or name


def _any_terminating(pods: list[JSON]) -> bool:
    return any("deletionTimestamp" in pod["metadata"] for pod in pods)


async def check_nothing_left_to_do(world: World) -> None:
    """Check that a reconcile writes nothing now, and nothing until the alarm, or ever if there is none."""
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

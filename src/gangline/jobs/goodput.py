"""The goodput ledger of jobs, kept up to date at each reconcile from what is seen there.

`account` is pure. `GoodputBook` remembers the newest ledger of each job, so that a status is not written for its sake
alone whenever a replica does something else: what is lost with the process is what the pods themselves do not date.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from gangline.api.core import ContainerStatus, Pod
from gangline.api.kubeflow.training import (
    PROGRESS_ANNOTATION,
    ConditionType,
    GoodputLedger,
    JobStatus,
    ReachedStep,
    TrainingJob,
)
from gangline.goodput.accrual import (
    accrue,
    moved,
    opened_ledger,
    ordered_seconds,
    skipped,
    whole_seconds,
)
from gangline.goodput.model import ALWAYS, Activity, ActivityChange, Course
from gangline.goodput.pods import first_start, latest_start, pod_course
from gangline.goodput.steps import ReporterState, reached_step
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.defaults import is_managed_here
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.actions import JobPlan
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Member, training_status
from gangline.progress.line import CHECKPOINT_BEGIN, parse_progress

LEDGER_INTERVAL = timedelta(minutes=1)
"""A status in which only the ledger changed is written no sooner than this after its last entry, and only if a replica
does something else than before: the time that passes is no news."""
MAX_REMEMBERED = 4096
_QUEUED: Course = (ActivityChange(ALWAYS, Activity.QUEUEING),)
_NEVER = 2**62
_NO_CONTAINER = ContainerStatus()
_TEAM_STATES = (Activity.STALLED, Activity.CHECKPOINTING, Activity.RECOMPUTING)


class JobAccount(NamedTuple):
    """A ledger, and what each replica does by itself since its last entry."""

    ledger: GoodputLedger
    activities: Mapping[Member, Activity] = {}
    # The pods, as they were seen then, and what they said: of one that has not changed it is not computed again.
    courses: Mapping[Member, tuple[Pod, Course]] = {}


class GoodputBook:
    """Remembers the accounts of one reconciler's jobs."""

    def __init__(self) -> None:
        # By job uid.
        self._accounts: BoundedDict[str, JobAccount] = BoundedDict(MAX_REMEMBERED)

    def account(self, framework: Framework[J], observed: ObservedJob[J], status: JobStatus) -> GoodputLedger | None:
        """The ledger of a job as of now, for this planned status; None if it gets none."""
        uid = observed.job.metadata.uid
        current = account(framework, observed, status, self._accounts.get(uid))
        if current is None or status.finished:
            self._accounts.pop(uid, None)
        else:
            self._accounts[uid] = current
            self._accounts.move_to_end(uid)
        return current.ledger if current is not None else None


def plan_with_goodput(
    observed: ObservedJob[J], plan: JobPlan, ledger: GoodputLedger | None, interval: timedelta = LEDGER_INTERVAL
) -> JobPlan:
    """The plan with the ledger in its status, if that is written anyway, or if it is time to write the ledger alone."""
    written = observed.job.status.goodput
    if ledger is None:
        return plan
    with_ledger = msgspec.structs.replace(plan, status=msgspec.structs.replace(plan.status, goodput=ledger))
    if plan.status != observed.job.status:
        return with_ledger
    # The definition of another operator has no such field: it would be written for ever, and never be there.
    if written is None or written.replicas == ledger.replicas:
        return plan
    remaining = written.until + interval - observed.now
    if remaining <= timedelta():
        return with_ledger
    delays = (remaining, plan.requeue_after)
    return msgspec.structs.replace(plan, requeue_after=min(delay for delay in delays if delay is not None))


def account(
    framework: Framework[J], observed: ObservedJob[J], status: JobStatus, before: JobAccount | None = None
) -> JobAccount | None:
    """The account of a job as of now. `status` is the one that is planned; None if the job gets no ledger, or keeps its own.

    The time since the last entry is booked by the dates of the pods, and where they have none by what was so `before`.
    """
    job, now = observed.job, observed.now
    if job.status.finished or observed.problems or not status.conditions:
        return None
    if not is_managed_here(framework.run_policy(job)):
        return None
    before = _newest(before, job)
    ledger = before.ledger if before is not None else opened_ledger(_beginning(observed))
    was_suspended = job.status.holds(ConditionType.SUSPENDED)
    is_suspended = status.holds(ConditionType.SUSPENDED)
    if was_suspended or (is_suspended and before is None):
        ledger = skipped(ledger, now)
    known = before.activities if before is not None else {}
    team = _Team.of(framework, observed, status, ledger, before or JobAccount(ledger))
    courses = _booked_courses(observed, ledger, team.courses, known)
    ledger = accrue(_with_stall(observed, ledger), courses, team.running, now)
    if status.finished:
        return JobAccount(msgspec.structs.replace(ledger, replicas={}, formed_round=None, reached=None))
    if is_suspended:
        return JobAccount(msgspec.structs.replace(ledger, replicas={}, reached=team.reached))
    own = {member: _at_last(team.courses.get(member)) for member in observed.gang.seats}
    together = team.running[-1].activity
    counts = Counter((together if activity is Activity.WORKING else activity).value for activity in own.values())
    ledger = msgspec.structs.replace(
        ledger, replicas=ordered_seconds(counts), formed_round=team.formed_round, reached=team.reached
    )
    return JobAccount(ledger, own, {member: (pod, team.courses[member]) for member, pod in team.pods.items()})


def _with_stall(observed: ObservedJob[J], ledger: GoodputLedger) -> GoodputLedger:
    """The ledger when a job is found stalled: what was booked as work since its last sign of life was none."""
    stall = observed.stall
    if stall is None or observed.job.status.holds(ConditionType.STALLED):
        return ledger
    lost = whole_seconds(ledger.until) - whole_seconds(max(stall.since, ledger.since))
    return moved(ledger, Activity.WORKING, Activity.STALLED, lost * ledger.replicas.get(Activity.WORKING.value, 0))


def _newest(before: JobAccount | None, job: TrainingJob) -> JobAccount | None:
    """What is remembered, else what the status says, whichever has the later entry."""
    written = job.status.goodput
    if before is None or (written is not None and written.until > before.ledger.until):
        return JobAccount(written) if written is not None else None
    return before


def _beginning(observed: ObservedJob[J]) -> datetime:
    """When the count begins: with the job, unless it has a past that nobody wrote down."""
    status, created = observed.job.status, observed.job.metadata.creation_timestamp
    has_past = status.restarts or status.ledger.round or status.condition(ConditionType.SUSPENDED) is not None
    return observed.now if has_past or created is None else min(created, observed.now)


def _course(of_pod: Course | None, before: Activity, ledger: GoodputLedger) -> Course:
    """The course of a replica: that of its pod, and what it did before that pod was there."""
    if of_pod is None:
        # Nobody said when the pod was gone: now.
        return (ActivityChange(ALWAYS, before),)
    if of_pod[0].at <= whole_seconds(ledger.until):
        return of_pod
    return (ActivityChange(ALWAYS, before), *of_pod)


def _booked_courses(
    observed: ObservedJob[J], ledger: GoodputLedger, courses: Mapping[Member, Course], known: Mapping[Member, Activity]
) -> list[Course]:
    """The courses of the replicas that the job had at the last entry: one that is new has no time before."""
    if known:
        return [_course(courses.get(member), known[member], ledger) for member in known]
    count = sum(ledger.replicas.values()) or len(observed.gang.seats)
    # After a restart of the operator only their number is known. Those whose pods are oldest were there.
    seats = sorted(observed.gang.seats, key=lambda seat: (courses[seat][0].at if seat in courses else _NEVER, seat))
    booked = [courses.get(seat, _QUEUED) for seat in seats[:count]]
    usual = max(ledger.replicas, key=lambda name: ledger.replicas[name], default=Activity.WORKING.value)
    gone: Course = (ActivityChange(ALWAYS, _own(Activity(usual))),)
    return booked + [gone] * (count - len(booked))


def _own(activity: Activity) -> Activity:
    """What a replica does by itself in a team that does this together."""
    return Activity.WORKING if activity in _TEAM_STATES else activity


def _at_last(course: Course | None) -> Activity:
    return course[-1].activity if course is not None else Activity.QUEUEING


class _Team(NamedTuple):
    """What the pods of a job say about it as a whole."""

    pods: Mapping[Member, Pod]
    courses: Mapping[Member, Course]
    # What a replica does whose process runs.
    running: Course
    formed_round: int | None
    reached: ReachedStep | None

    @classmethod
    def of(
        cls,
        framework: Framework[J],
        observed: ObservedJob[J],
        status: JobStatus,
        ledger: GoodputLedger,
        before: JobAccount,
    ) -> "_Team":
        container, now, known = framework.facts.container, observed.now, before.activities
        pods = seat_pods(observed)
        courses: dict[Member, Course] = {}
        for member, pod in pods.items():
            seen = before.courses.get(member)
            if seen is not None and seen[0] is pod:
                courses[member] = seen[1]
            else:
                training = training_status(pod, container)
                courses[member] = _pod_course(pod, training, now, ledger, known.get(member))
        reached, restarted = _reached(observed, status, ledger.reached, pods, container)
        number = observed.job.status.ledger.round
        restart = observed.job.status.ledger.restarting_in_place
        if restart is not None and not restart.replicas:
            formed_at = _restarted_at(observed, container, restart.number)
        else:
            formed_at = ALWAYS if ledger.formed_round == number else _formed_at(observed, container)
        if formed_at is not None and formed_at != ALWAYS and known and known.keys() != set(observed.gang.seats):
            # It waits for fewer replicas than before, since now.
            formed_at = whole_seconds(now)
        running = _running_course(observed, status, ledger, reached, restarted)
        if formed_at != ALWAYS:
            running = _waiting_course(running, formed_at)
        # A restart of the whole team begins a new round, whose processes are still to come.
        formed = number if formed_at is not None else ledger.formed_round
        return cls(pods, courses, running, formed, reached)


def _pod_course(
    pod: Pod, training: ContainerStatus, now: datetime, ledger: GoodputLedger, before: Activity | None
) -> Course:
    course = pod_course(pod, training, now, now)
    if course[-1].activity is before:
        # It was so at the last entry, too.
        return pod_course(pod, training, now, ledger.until)
    if before is not None and training == _NO_CONTAINER:
        # An evicted pod does not tell any more what its container did.
        return (ActivityChange(ALWAYS, before), course[-1])
    return course


def _waiting_course(running: Course, formed_at: int | None) -> Course:
    """The course of a team whose replicas wait for each other until it has formed, or still do."""
    waiting = ActivityChange(ALWAYS, Activity.IDLE)
    if formed_at is None:
        return (waiting,)
    then = next(change.activity for change in reversed(running) if change.at <= formed_at)
    return (waiting, ActivityChange(formed_at, then), *(change for change in running if change.at > formed_at))


def seat_pods(observed: ObservedJob[J]) -> dict[Member, Pod]:
    """The pod of each replica; one of the round before while it is still there."""
    gang = observed.gang
    pods = dict(gang.pods)
    if gang.stale:
        members = {gang.names[member]: member for member in gang.seats}
        for pod in gang.stale:
            pods.setdefault(members[pod.metadata.name], pod)
    launched = max(observed.children.launched, key=_creation_order, default=None)
    if launched is not None:
        pods.setdefault(Member(UNINDEXED_TYPE, 0), launched)
    return pods


def _creation_order(pod: Pod) -> tuple[str, str]:
    created = pod.metadata.creation_timestamp
    return (created.isoformat() if created is not None else "", pod.metadata.uid)


def _formed_at(observed: ObservedJob[J], container: str) -> int | None:
    """When so many replicas of this round had started that the team could work; None if they have not."""
    pods: Iterable[Pod] = (*observed.gang.pods.values(), *observed.children.launched)
    starts, reports = list[int](), False
    for pod in pods:
        start = first_start(training_status(pod, container), observed.now)
        if start is not None:
            starts.append(whole_seconds(min(start, observed.now)))
            reports = reports or PROGRESS_ANNOTATION in pod.metadata.annotations
    needed = observed.gang_spec.min_members or len(observed.gang.seats)
    if starts and len(starts) >= needed:
        return sorted(starts)[max(needed, 1) - 1]
    # Steps are proof of work, whoever is missing.
    return whole_seconds(observed.now) if reports else None


def _restarted_at(observed: ObservedJob[J], container: str, number: int) -> int | None:
    """When the last replica of a team started that restarts in place; None if one has not."""
    statuses = [training_status(pod, container) for pod in observed.gang.pods.values()]
    if len(statuses) < len(observed.gang.seats) or any(status.restart_count < number for status in statuses):
        return None
    starts = [latest_start(status, observed.now) or observed.now for status in statuses]
    return whole_seconds(min(max(starts), observed.now))


def _reached(
    observed: ObservedJob[J],
    status: JobStatus,
    before: ReachedStep | None,
    pods: Mapping[Member, Pod],
    container: str,
) -> tuple[ReachedStep | None, int | None]:
    """The furthest step, and when the process started that has to reach it again, if that is new."""
    progress = status.progress
    if progress is None:
        return before, None
    pod = next((pods[member] for member in pods if str(member) == progress.replica), None)
    if pod is None:
        return before, None
    training = training_status(pod, container)
    start = latest_start(training, observed.now)
    process = f"{pod.metadata.uid}/{training.restart_count}" if start is not None else ""
    line = pod.metadata.annotations.get(PROGRESS_ANNOTATION, "")
    after = reached_step(before, ReporterState(process, progress.step, line))
    is_restart = after.repeating and before is not None and before.process != after.process and start is not None
    return after, whole_seconds(min(start, observed.now)) if is_restart and start is not None else None


def _running_course(
    observed: ObservedJob[J],
    status: JobStatus,
    ledger: GoodputLedger,
    reached: ReachedStep | None,
    restarted: int | None,
) -> Course:
    """What running replicas did since the last entry, and do from now on."""
    changes = [ActivityChange(ALWAYS, _state_before(ledger))]
    if restarted is not None:
        changes.append(ActivityChange(restarted, Activity.RECOMPUTING))
    current = Activity.WORKING
    if status.holds(ConditionType.STALLED):
        current = Activity.STALLED
        condition = status.condition(ConditionType.STALLED)
        dated = condition.last_transition_time if condition is not None else None
        since = min(observed.stall.since if observed.stall is not None else dated or observed.now, observed.now)
        changes.append(ActivityChange(max(changes[-1].at, whole_seconds(since)), Activity.STALLED))
    elif _is_checkpointing(observed, status):
        current = Activity.CHECKPOINTING
    elif reached is not None and reached.repeating:
        current = Activity.RECOMPUTING
    return (*changes, ActivityChange(max(changes[-1].at, whole_seconds(observed.now)), current))


def _state_before(ledger: GoodputLedger) -> Activity:
    """What the running replicas did at the last entry."""
    known = next((state for state in _TEAM_STATES if ledger.replicas.get(state.value)), None)
    if known is not None:
        return known
    return Activity.RECOMPUTING if ledger.reached is not None and ledger.reached.repeating else Activity.WORKING


def _is_checkpointing(observed: ObservedJob[J], status: JobStatus) -> bool:
    """Whether the replica that reports progress says that it saves a checkpoint."""
    progress = status.progress
    if progress is None:
        return False
    pod = next((pod for member, pod in observed.gang.pods.items() if str(member) == progress.replica), None)
    report = parse_progress(pod.metadata.annotations.get(PROGRESS_ANNOTATION, "")) if pod is not None else None
    return report is not None and report.checkpoint == CHECKPOINT_BEGIN

"""What the state of its gang asks of a job's owner: start all anew, give up, or tell somebody."""

from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import RestartLedger, RestartScope
from gangline.api.scheduling import (
    DEFAULT_SCHEDULE_TIMEOUT,
    ON_TIMEOUT_ANNOTATION,
    PodGroupPhase,
    PodGroupState,
)
from gangline.jobs.framework import AllOrNothing, Framework, J
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import requested_scope


class GangWait(msgspec.Struct, frozen=True):
    """A gang that waits for its places: since when, for how long it may, and what its scheduler says."""

    since: datetime
    remaining: timedelta
    limit_seconds: int
    message: str

    @property
    def timeout_message(self) -> str:
        why = f": {self.message}" if self.message else ""
        return f"its gang found no place within {self.limit_seconds} s{why}"


def stranded_state(framework: Framework[J], seen: ObservedJob[J], ledger: RestartLedger) -> PodGroupState | None:
    """The state of a gang that must start anew: some run, there is no room for the others, and none can do alone.

    Once for each time that it comes to this: until the scheduler has seen them all go, the state stays.
    """
    state = seen.gang_state
    if state is None or state.phase != PodGroupPhase.UNSCHEDULABLE:
        return None
    if state.last_transition_time == ledger.regrouped or seen.gang_spec.min_members is not None:
        return None
    asked = requested_scope(seen.job, framework.run_policy(seen.job))
    inseparable = isinstance(framework, AllOrNothing) and framework.all_or_nothing
    whole = asked is RestartScope.JOB or (asked is None and inseparable)
    return state if whole else None


def placement_wait(seen: ObservedJob[J]) -> GangWait | None:
    """How a gang stands that is still to be placed."""
    state = seen.gang_state
    if state is None or state.phase != PodGroupPhase.PENDING or state.last_transition_time is None:
        return None
    limit = seen.gang_spec.policy.schedule_timeout_seconds or DEFAULT_SCHEDULE_TIMEOUT
    left = state.last_transition_time + timedelta(seconds=limit) - seen.now
    return GangWait(state.last_transition_time, left, limit, state.message)


def expired_wait(seen: ObservedJob[J]) -> GangWait | None:
    """The same of one that found no place in time, if its job is to fail then."""
    if seen.job.metadata.annotations.get(ON_TIMEOUT_ANNOTATION, "").lower() != "fail":
        return None
    waits = placement_wait(seen)
    return waits if waits is not None and waits.remaining <= timedelta() else None

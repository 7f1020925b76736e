"""What a job does about the state that its gang scheduler reports: restart all replicas, fail, or warn."""

from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import RestartLedger, RestartScope
from gangline.api.scheduling import DEFAULT_SCHEDULE_TIMEOUT, ON_TIMEOUT_ANNOTATION, PodGroupPhase, PodGroupState
from gangline.jobs.framework import AllOrNothing, Framework, J
from gangline.jobs.plan.conditions import time_left
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import requested_scope


class GangWait(msgspec.Struct, frozen=True):
    """A gang that waits for placement: since when, how long it may still wait, and what its scheduler says."""

    since: datetime
    remaining: timedelta
    limit_seconds: int
    message: str

    @property
    def timeout_message(self) -> str:
        reason = f": {self.message}" if self.message else ""
        return f"its gang found no place within {self.limit_seconds} s{reason}"


def stranded_state(framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger) -> PodGroupState | None:
    """The state of a gang that must restart: some replicas run, the others do not fit, and none can work without them.

    None if the job has restarted for this state already: it stays until the scheduler has seen all pods deleted.
    """
    state = observed.gang_state
    if state is None or state.phase != PodGroupPhase.UNSCHEDULABLE:
        return None
    if state.last_transition_time == ledger.regrouped or observed.gang_spec.min_members is not None:
        return None
    scope = requested_scope(observed.job, framework.run_policy(observed.job))
    all_or_nothing = isinstance(framework, AllOrNothing) and framework.all_or_nothing
    restarts_together = scope is RestartScope.JOB or (scope is None and all_or_nothing)
    return state if restarts_together else None


def placement_wait(observed: ObservedJob[J]) -> GangWait | None:
    """The wait of a gang that is not placed yet."""
    state = observed.gang_state
    if state is None or state.phase != PodGroupPhase.PENDING or state.last_transition_time is None:
        return None
    limit = observed.gang_spec.policy.schedule_timeout_seconds or DEFAULT_SCHEDULE_TIMEOUT
    remaining = time_left(state.last_transition_time, limit, observed.now)
    return GangWait(state.last_transition_time, remaining, limit, state.message)


def expired_wait(observed: ObservedJob[J]) -> GangWait | None:
    """The wait of a gang that was not placed in time, if its job is to fail then."""
    if observed.job.metadata.annotations.get(ON_TIMEOUT_ANNOTATION, "").lower() != "fail":
        return None
    wait = placement_wait(observed)
    return wait if wait is not None and wait.remaining <= timedelta() else None

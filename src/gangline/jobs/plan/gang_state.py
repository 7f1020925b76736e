"""What the state of its gang asks of a job's owner: start all anew, give up, or tell somebody."""

from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import Ledger, RestartScope
from gangline.api.scheduling import ON_TIMEOUT, SCHEDULE_TIMEOUT, GroupPhase, PodGroupState
from gangline.jobs.framework import Framework, Inseparable, J
from gangline.jobs.plan.observed import Observed
from gangline.jobs.plan.restarts import asked_scope


class Overdue(msgspec.Struct, frozen=True):
    """A gang that waits for its places: since when, for how long it may, and what its scheduler says."""

    since: datetime
    left: timedelta
    limit: int
    message: str

    @property
    def told(self) -> str:
        why = f": {self.message}" if self.message else ""
        return f"its gang found no place within {self.limit} s{why}"


def stranded(framework: Framework[J], seen: Observed[J], ledger: Ledger) -> PodGroupState | None:
    """The state of a gang that must start anew: some run, there is no room for the others, and none can do alone.

    Once for each time that it comes to this: until the scheduler has seen them all go, the state stays.
    """
    state = seen.gang_state
    if state is None or state.phase != GroupPhase.UNSCHEDULABLE:
        return None
    if state.last_transition_time == ledger.regrouped or seen.team.fewest is not None:
        return None
    asked = asked_scope(seen.job, framework.run_policy(seen.job))
    inseparable = isinstance(framework, Inseparable) and framework.inseparable
    whole = asked is RestartScope.JOB or (asked is None and inseparable)
    return state if whole else None


def overdue(seen: Observed[J]) -> Overdue | None:
    """How a gang stands that is still to be placed."""
    state = seen.gang_state
    if state is None or state.phase != GroupPhase.PENDING or state.last_transition_time is None:
        return None
    limit = seen.team.policy.schedule_timeout_seconds or SCHEDULE_TIMEOUT
    left = state.last_transition_time + timedelta(seconds=limit) - seen.now
    return Overdue(state.last_transition_time, left, limit, state.message)


def gives_up(seen: Observed[J]) -> Overdue | None:
    """The same of one that found no place in time, if its job is to fail then."""
    if seen.job.metadata.annotations.get(ON_TIMEOUT, "").lower() != "fail":
        return None
    waits = overdue(seen)
    return waits if waits is not None and waits.left <= timedelta() else None

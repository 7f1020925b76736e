"""What Kueue's integration of v1 jobs relies on (K50): it suspends, changes templates, and reads our status."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import MULTIKUEUE_MANAGER
from gangline.api.meta import JSON
from gangline.api.scheduling import PODGROUPS
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.plan.actions import Delete, DeleteJob, JobPlan
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.pods.addressing import Site
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import (
    OBSERVED_AT,
    condition_pairs,
    created_body,
    created_names,
    job_services,
    plan_actions,
    with_status,
)

TORCH = PyTorch()
GROUP: JSON = {"metadata": {"name": "job", "uid": "g", "ownerReferences": [{"uid": "uid-job"}]}, "spec": {}}
GIVEN = {"kubernetes.io/instance-type": "h100"}
TOLERATED = {"key": "gpu", "operator": "Exists"}


def job(*, suspend: bool, admitted: bool = False, **policy: Any) -> Any:
    """A job with a queue label. Kueue's webhook suspends it; on admission Kueue changes its templates."""
    made = make_job(PYTORCHJOB, master=1, worker=2, policy={"suspend": suspend, **policy})
    if admitted:
        for spec in made.spec.pytorch_replica_specs.values():
            spec.template["spec"] |= {"nodeSelector": GIVEN, "tolerations": [TOLERATED]}
            spec.template["metadata"] = {"labels": {"kueue.x-k8s.io/podset": "worker"}}
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, labels={"kueue.x-k8s.io/queue-name": "team-a"}),
    )


def look(wanted: Any, *pods: Pod, group: JSON | None = None, after: timedelta = timedelta()) -> JobPlan:
    def find(resource: str, name: str) -> JSON | None:
        return group if resource == PODGROUPS.name else None

    children = JobChildren(pods=pods, services=job_services(TORCH, wanted) if pods else ())
    return reconcile_plan(
        TORCH,
        ObservedJob.of(TORCH, wanted, OBSERVED_AT + after, children, Site(gang_scheduler=GanglineScheduler()), find),
    )


def team(phase: str = "Running") -> list[Pod]:
    return [
        make_member("Master", of=PYTORCHJOB, phase=phase),
        *(make_member("Worker", index, of=PYTORCHJOB, phase=phase) for index in range(2)),
    ]


def test_k50_a_suspended_job_has_no_pods_and_no_group() -> None:
    intent = look(job(suspend=True))
    assert plan_actions(intent) == []
    assert condition_pairs(intent.status) == [("Created", "True"), ("Suspended", "True")]
    assert intent.status.start_time is None


def test_k50_on_admission_pods_get_what_was_put_into_the_template() -> None:
    waiting = look(job(suspend=True))
    admitted = with_status(job(suspend=False, admitted=True), waiting.status)
    intent = look(admitted, after=timedelta(hours=1))
    assert created_names(intent) == ["job-master-0", "job-worker-0", "job-worker-1"]
    pod = created_body(intent, "job-worker-1")
    assert pod["spec"]["nodeSelector"] == GIVEN
    assert pod["spec"]["tolerations"] == [TOLERATED]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
    assert intent.status.start_time == OBSERVED_AT + timedelta(hours=1)
    assert ("Suspended", "False") in condition_pairs(intent.status)


def test_k50_a_gate_that_kueue_put_into_the_template_is_on_the_pods() -> None:
    wanted = job(suspend=False)
    gate = [{"name": "kueue.x-k8s.io/topology"}]
    wanted.spec.pytorch_replica_specs["Worker"].template["spec"]["schedulingGates"] = gate
    assert created_body(look(wanted), "job-worker-0")["spec"]["schedulingGates"] == gate


def evicted() -> tuple[Any, JobPlan]:
    running = look(job(suspend=False, admitted=True), *team(), group=GROUP)
    # The templates are as the user wrote them again.
    wanted = with_status(job(suspend=True), running.status)
    return wanted, look(wanted, *team(), group=GROUP, after=timedelta(minutes=5))


def test_k50_on_eviction_all_pods_and_the_group_go_and_the_job_stays() -> None:
    _, intent = evicted()
    gone = [each for each in plan_actions(intent) if isinstance(each, Delete)]
    assert {each.name for each in gone if each.resource == "pods"} == {
        "job-master-0",
        "job-worker-0",
        "job-worker-1",
    }
    assert Delete(PODGROUPS.name, "job", "g") in gone
    assert not [each for each in plan_actions(intent) if isinstance(each, DeleteJob)]


def test_k50_after_an_eviction_kueue_sees_nothing_active_and_not_running() -> None:
    _, intent = evicted()
    assert [found.active for found in intent.status.replica_statuses.values()] == [0, 0]
    assert ("Running", "False") in condition_pairs(intent.status)
    assert ("Suspended", "True") in condition_pairs(intent.status)
    assert not intent.status.finished


def test_k50_the_next_admission_starts_the_clock_and_takes_the_new_template() -> None:
    wanted, released = evicted()
    again = with_status(job(suspend=False, admitted=True), released.status)
    intent = look(again, after=timedelta(hours=2))
    assert intent.status.start_time == OBSERVED_AT + timedelta(hours=2)
    assert created_body(intent, "job-master-0")["spec"]["nodeSelector"] == GIVEN
    assert "nodeSelector" not in wanted.spec.pytorch_replica_specs["Master"].template["spec"]


@pytest.mark.parametrize(
    ("phase", "seen"),
    [("Running", ("Running", "True")), ("Succeeded", ("Succeeded", "True")), ("Failed", ("Failed", "True"))],
)
def test_k50_what_kueue_reads_is_in_the_conditions(phase: str, seen: tuple[str, str]) -> None:
    status = look(job(suspend=False, backoffLimit=0), *team(phase), group=GROUP).status
    assert condition_pairs(status)[-1] == seen
    assert status.replica_statuses["Worker"].active == (2 if phase == "Running" else 0)


def test_k50_a_job_of_another_cluster_is_left_alone() -> None:
    intent = look(job(suspend=False, managedBy=MULTIKUEUE_MANAGER))
    assert (plan_actions(intent), intent.status) == ([], job(suspend=False).status)

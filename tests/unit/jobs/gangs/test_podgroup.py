"""Gang scheduling by Volcano and scheduler-plugins (contract, section 6)."""

from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.gangs.podgroup import GangScheduler, pod_group_resource
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.plan.actions import Create, Delete, JobPlan, Patch
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.site import Site
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import (
    OBSERVED_AT,
    condition_pairs,
    created_body,
    created_names,
    plan_actions,
    with_status,
)

TORCH = PyTorch()
VOLCANO, PLUGINS = Volcano(), SchedulerPlugins("scheduler-plugins-scheduler")
both = pytest.mark.parametrize("gangs", [VOLCANO, PLUGINS], ids=["volcano", "scheduler-plugins"])
POLICY = {"queue": "q1", "priorityClass": "high", "minAvailable": 2, "scheduleTimeoutSeconds": 30}


def job(policy: dict[str, Any] | None = None, **run_policy: Any) -> Any:
    """A job of a master with requests and two workers with limits only."""
    job = make_job(PYTORCHJOB, master=1, worker=2, policy={"schedulingPolicy": policy or {}, **run_policy})
    specs = job.spec.pytorch_replica_specs
    master, worker = (specs[kind].template["spec"]["containers"][0] for kind in ("Master", "Worker"))
    master["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "9"}}
    worker["resources"] = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}
    return job


def planned(gangs: GangScheduler, wanted: Any, found: Any = None, *pods: Any) -> JobPlan:
    def find(resource: str, name: str) -> Any:
        return found if (resource, name) == (pod_group_resource(gangs), "job") else None

    view = ObservedJob.of(TORCH, wanted, OBSERVED_AT, JobChildren(pods=pods), Site(gang_scheduler=gangs), find)
    return reconcile_plan(TORCH, view)


def group(spec: Any, phase: str = "Inqueue") -> Any:
    return {
        "metadata": {"name": "job", "uid": "g", "ownerReferences": [{"uid": "uid-job"}]},
        "spec": spec,
        "status": {"phase": phase},
    }


def test_k47_volcano_gets_a_group_with_queue_and_priority() -> None:
    body = created_body(planned(VOLCANO, job(POLICY)), "job", pod_group_resource(VOLCANO))
    assert body["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "priorityClassName": "high",
        "queue": "q1",
    }
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-job"


def test_k48_scheduler_plugins_get_a_group_with_a_timeout() -> None:
    body = created_body(planned(PLUGINS, job(POLICY)), "job", pod_group_resource(PLUGINS))
    assert body["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "3", "memory": "1Gi", "nvidia.com/gpu": "1"},
        "scheduleTimeoutSeconds": 30,
    }


@both
def test_by_default_all_must_fit(gangs: GangScheduler) -> None:
    spec = created_body(planned(gangs, job()), "job", pod_group_resource(gangs))["spec"]
    assert spec["minMember"] == 3
    assert spec["minResources"] == {"cpu": "5", "memory": "1Gi", "nvidia.com/gpu": "2"}


@both
def test_d12_a_group_that_is_right_is_left_alone(gangs: GangScheduler) -> None:
    spec = created_body(planned(gangs, job(POLICY)), "job", pod_group_resource(gangs))["spec"]
    # A field that another writer added stays.
    settled = planned(gangs, job(POLICY), group({**spec, "minTaskMember": {"worker": 1}}))
    touching = [
        a for a in plan_actions(settled) if isinstance(a, (Patch, Create)) and a.resource == pod_group_resource(gangs)
    ]
    assert touching == []


@both
def test_d12_only_a_change_of_the_job_changes_the_group(gangs: GangScheduler) -> None:
    spec = created_body(planned(gangs, job(POLICY)), "job", pod_group_resource(gangs))["spec"]
    (change,) = [
        a for a in plan_actions(planned(gangs, job({**POLICY, "minAvailable": 3}), group(spec))) if isinstance(a, Patch)
    ]
    assert change.body["spec"]["minMember"] == 3


def test_a_group_moved_to_another_queue_stays_there() -> None:
    spec = created_body(planned(VOLCANO, job(POLICY)), "job", pod_group_resource(VOLCANO))["spec"]
    moved = planned(VOLCANO, job(POLICY), group({**spec, "queue": "q2"}))
    assert not [a for a in plan_actions(moved) if isinstance(a, Patch)]


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_k47_volcano_is_asked_before_pods_are_made(phase: str) -> None:
    waiting = planned(VOLCANO, job(), group({}, phase))
    assert created_names(waiting) == created_names(waiting, "services") == []
    assert condition_pairs(waiting.status) == [("Created", "True")]
    assert (waiting.status.start_time, waiting.status.replica_statuses, waiting.status.phase) == (
        None,
        {},
        "",
    )
    let_in = planned(VOLCANO, with_status(job(), waiting.status), group({}, "Inqueue"))
    assert created_names(let_in) == ["job-master-0", "job-worker-0", "job-worker-1"]
    assert let_in.status.start_time == OBSERVED_AT


def test_k48_scheduler_plugins_see_pods_at_once() -> None:
    assert len(created_names(planned(PLUGINS, job()))) == 3


def test_volcano_knows_pods_by_annotations() -> None:
    body = created_body(planned(VOLCANO, job(), group({})), "job-worker-0")
    assert body["spec"]["schedulerName"] == "volcano"
    assert body["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "job",
        "volcano.sh/task-spec": "worker",
    }


def test_k48_scheduler_plugins_know_pods_by_a_label() -> None:
    body = created_body(planned(PLUGINS, job()), "job-worker-0")
    assert body["spec"]["schedulerName"] == "scheduler-plugins-scheduler"
    assert body["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "job"


def test_a_templates_own_scheduler_is_respected_and_told() -> None:
    training_job = job()
    training_job.spec.pytorch_replica_specs["Worker"].template["spec"]["schedulerName"] = "mine"
    plan = planned(PLUGINS, training_job)
    assert created_body(plan, "job-worker-0")["spec"]["schedulerName"] == "mine"
    assert [note.reason for note in plan.events if note.warning] == ["SetPodTemplateSchedulerName"]


@both
@pytest.mark.parametrize("ends", ["suspended", "succeeded"])
def test_the_group_goes_with_the_work(gangs: GangScheduler, ends: str) -> None:
    training_job = job(suspend=ends == "suspended")
    pods = () if ends == "suspended" else (make_member("Master", of=PYTORCHJOB, phase="Succeeded"),)
    plan = planned(gangs, training_job, group({}), *pods)
    assert Delete(pod_group_resource(gangs), "job", "g") in plan_actions(plan)

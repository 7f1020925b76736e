"""Gang scheduling of Kubernetes itself (K49)."""

from typing import Any

import pytest

from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB
from gangline.api.meta import JSON
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.gangs.kubernetes import KNOWN_VERSIONS, KubernetesWorkloads
from gangline.jobs.gangs.podgroup import NO_EVICTION_ANNOTATIONS
from gangline.jobs.plan.actions import Create, Delete, JobPlan, Patch
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.site import Site
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import (
    OBSERVED_AT,
    created_body,
    created_names,
    job_services,
    plan_actions,
)

TORCH = PyTorch()
WORKLOADS, GROUPS = "workloads.scheduling.k8s.io", "podgroups.scheduling.k8s.io"
Objects = dict[str, JSON]


def look(job: Any, *pods: Any, found: Objects | None = None, version: str = "v1beta1") -> JobPlan:
    site = Site(gang_scheduler=KubernetesWorkloads(version))
    children = JobChildren(pods=pods, services=job_services(TORCH, job))
    return reconcile_plan(
        TORCH,
        ObservedJob.of(TORCH, job, OBSERVED_AT, children, site, lambda kind, name: (found or {}).get(kind)),
    )


def job(**policy: Any) -> Any:
    return make_job(PYTORCHJOB, master=1, worker=3, policy=policy)


def with_class(made: Any, **classes: str) -> Any:
    """The job with these priority classes in its templates."""
    for kind, name in classes.items():
        made.spec.pytorch_replica_specs[kind].template["spec"]["priorityClassName"] = name
    return made


def there(plan: JobPlan, **metadata: Any) -> Objects:
    """The objects that the plan creates, by resource."""
    owner = {"uid": "u", "ownerReferences": [{"uid": "uid-job"}], **metadata}
    return {
        kind: {**body, "metadata": {**body["metadata"], **owner}}
        for kind in (WORKLOADS, GROUPS)
        for body in [created_body(plan, "job", kind)]
    }


def test_k49_the_workload_comes_first_then_the_group_then_the_pods() -> None:
    plan = look(job())
    stages = [[action.resource for action in stage if isinstance(action, Create)] for stage in plan.stages]
    assert stages == [[WORKLOADS], [GROUPS], ["pods"] * 4]
    assert created_body(plan, "job-worker-0")["spec"]["schedulingGroup"] == {"podGroupName": "job"}


def test_k49_both_say_the_same_policy() -> None:
    policy = {"minAvailable": 3, "priorityClass": "high"}
    objects = there(look(job(schedulingPolicy=policy)))
    gang = {"schedulingPolicy": {"gang": {"minCount": 3}}, "priorityClassName": "high"}
    assert objects[WORKLOADS]["spec"] == {
        "controllerRef": {"apiGroup": "kubeflow.org", "kind": "PyTorchJob", "name": "job"},
        "podGroupTemplates": [{"name": "team", **gang}],
    }
    assert objects[GROUPS]["spec"] == {"workloadRef": {"workloadName": "job", "templateName": "team"}, **gang}


def test_k49_in_1_36_the_group_refers_to_its_workload_in_other_words() -> None:
    spec = there(look(job(), version="v1alpha2"))[GROUPS]["spec"]
    assert spec["podGroupTemplateRef"] == {"workload": {"workloadName": "job", "podGroupTemplateName": "team"}}
    assert "workloadRef" not in spec


@pytest.mark.parametrize(
    ("version", "mode"), [("v1beta1", {"all": {}}), ("v1alpha3", {"all": {}}), ("v1alpha2", "PodGroup")]
)
def test_a_gang_of_which_nobody_can_be_spared_has_to_give_way_as_a_whole(version: str, mode: Any) -> None:
    objects = there(look(job(), version=version))
    (template,) = objects[WORKLOADS]["spec"]["podGroupTemplates"]
    assert template["disruptionMode"] == objects[GROUPS]["spec"]["disruptionMode"] == mode
    spare = there(look(job(schedulingPolicy={"minAvailable": 3}), version=version))
    assert "disruptionMode" not in spare[GROUPS]["spec"]


def test_what_cannot_be_changed_is_not_tried_to_be() -> None:
    settled = there(look(job(schedulingPolicy={"minAvailable": 2})))
    # As the server stores it: with its defaults, and the priority of the class.
    settled[GROUPS]["spec"] |= {"disruptionMode": {"single": {}}, "priority": 0}
    plan = look(job(schedulingPolicy={"priorityClass": "high"}), found=settled)
    (change,) = [action for action in plan_actions(plan) if isinstance(action, Patch)]
    assert change.body["spec"] == {
        **settled[GROUPS]["spec"],
        "schedulingPolicy": {"gang": {"minCount": 4}},
    }


def test_a_class_that_all_templates_name_is_that_of_the_group() -> None:
    # From 1.37 on a pod must have the priority of its PodGroup.
    objects = there(look(with_class(job(), Master="high", Worker="high")))
    assert objects[GROUPS]["spec"]["priorityClassName"] == "high"
    (template,) = objects[WORKLOADS]["spec"]["podGroupTemplates"]
    assert template["priorityClassName"] == "high"
    mixed = there(look(with_class(job(), Master="high")))
    assert "priorityClassName" not in mixed[GROUPS]["spec"]


def test_pods_without_a_class_get_that_of_the_group_and_others_keep_theirs() -> None:
    training_job = job(schedulingPolicy={"priorityClass": "high"})
    plan = look(with_class(training_job, Master="own"))
    assert created_body(plan, "job-worker-0")["spec"]["priorityClassName"] == "high"
    assert created_body(plan, "job-master-0")["spec"]["priorityClassName"] == "own"


@pytest.mark.parametrize(("version", "name"), [("v1beta1", "low"), ("v1alpha2", "high")])
def test_from_1_37_on_the_class_of_the_group_that_is_there_counts(version: str, name: str) -> None:
    settled = there(look(job(schedulingPolicy={"priorityClass": "low"}), version=version))
    plan = look(job(schedulingPolicy={"priorityClass": "high"}), found=settled, version=version)
    assert created_body(plan, "job-worker-0")["spec"]["priorityClassName"] == name


def short() -> tuple[Any, ...]:
    """A job of four replicas: one has succeeded and one is missing."""
    master = make_member("Master", of=PYTORCHJOB, node="n")
    succeeded = make_member("Worker", 0, of=PYTORCHJOB, phase="Succeeded", node="n")
    return (master, succeeded, make_member("Worker", 1, of=PYTORCHJOB, node="n"))


def test_those_who_have_ended_are_not_waited_for() -> None:
    settled = there(look(job()))
    plan = look(job(), *short(), found=settled)
    (change,) = [action for action in plan_actions(plan) if isinstance(action, Patch)]
    assert change.body["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert change.body["spec"]["disruptionMode"] == {"all": {}}
    assert created_body(plan, "job-worker-2")["spec"]["schedulingGroup"] == {"podGroupName": "job"}


def test_in_1_36_where_its_group_would_wait_for_those_a_pod_is_placed_alone() -> None:
    settled = there(look(job(), version="v1alpha2"))
    plan = look(job(), *short(), found=settled, version="v1alpha2")
    assert not [action for action in plan_actions(plan) if isinstance(action, Patch)]
    assert "schedulingGroup" not in created_body(plan, "job-worker-2")["spec"]
    enough = job(schedulingPolicy={"minAvailable": 3})
    settled = there(look(enough, version="v1alpha2"))
    plan = look(enough, *short(), found=settled, version="v1alpha2")
    assert created_body(plan, "job-worker-2")["spec"]["schedulingGroup"] == {"podGroupName": "job"}


def test_in_1_36_a_pod_of_a_team_that_was_made_smaller_is_placed_alone_and_others_are_not() -> None:
    settled = there(look(job(), version="v1alpha2"))
    smaller = make_job(PYTORCHJOB, master=1, worker=2)
    plan = look(smaller, found=settled, version="v1alpha2")
    assert "schedulingGroup" not in created_body(plan, "job-worker-1")["spec"]
    # The PodGroup has enough pods; the smaller number is used after the job is resumed.
    fewer = look(job(schedulingPolicy={"minAvailable": 2}), found=settled, version="v1alpha2")
    assert created_body(fewer, "job-worker-1")["spec"]["schedulingGroup"] == {"podGroupName": "job"}
    # The policy asked for more pods than the job has from the start: that stays.
    more = job(schedulingPolicy={"minAvailable": 5})
    waits = look(more, found=there(look(more, version="v1alpha2")), version="v1alpha2")
    assert created_body(waits, "job-worker-1")["spec"]["schedulingGroup"] == {"podGroupName": "job"}


def test_a_group_is_not_written_for_every_member_that_ends() -> None:
    all_placed = (*short(), make_member("Worker", 2, of=PYTORCHJOB, node="n"))
    plan = look(job(), *all_placed, found=there(look(job())))
    assert not [action for action in plan_actions(plan) if isinstance(action, Patch)]


def test_an_mpi_job_counts_its_launcher() -> None:
    children = JobChildren()
    job = make_job(MPIJOB, launcher=1, worker=2)
    observed = ObservedJob.of(Mpi(), job, OBSERVED_AT, children, Site(gang_scheduler=KubernetesWorkloads()))
    assert (
        created_body(reconcile_plan(Mpi(), observed), "job", GROUPS)["spec"]["schedulingPolicy"]["gang"]["minCount"]
        == 3
    )


@pytest.mark.parametrize(("version", "changes"), [("v1beta1", 1), ("v1alpha3", 1), ("v1alpha2", 0)])
def test_only_the_count_can_be_changed_and_from_1_37_on(version: str, changes: int) -> None:
    assert version in KNOWN_VERSIONS
    settled = there(look(job(), version=version))
    assert not [
        action for action in plan_actions(look(job(), found=settled, version=version)) if isinstance(action, Patch)
    ]
    plan = look(job(schedulingPolicy={"minAvailable": 2}), found=settled, version=version)
    patches = [action for action in plan_actions(plan) if isinstance(action, Patch)]
    assert [action.resource for action in patches] == [GROUPS] * changes


def test_a_group_on_its_way_out_gets_no_new_pods() -> None:
    # A finalizer keeps the PodGroup until its last pod has ended.
    leaving = there(look(job()), deletionTimestamp="2026-01-01T12:00:00Z")
    held = look(job(), found=leaving)
    assert created_names(held) == []
    del leaving[GROUPS]
    assert len(created_names(look(job(), found=leaving))) == 4


def test_both_go_with_the_work_and_once() -> None:
    master = make_member("Master", of=PYTORCHJOB, phase="Succeeded")
    deletes = [
        action for action in plan_actions(look(job(), master, found=there(look(job())))) if isinstance(action, Delete)
    ]
    assert {action.resource for action in deletes} >= {WORKLOADS, GROUPS}
    leaving = there(look(job()), deletionTimestamp="2026-01-01T12:00:00Z")
    second_deletes = [
        action for action in plan_actions(look(job(), master, found=leaving)) if isinstance(action, Delete)
    ]
    assert not {action.resource for action in second_deletes} & {WORKLOADS, GROUPS}


def test_pods_keep_their_scheduler_and_autoscalers_keep_off() -> None:
    body = created_body(look(job()), "job-worker-0")
    assert "schedulerName" not in body["spec"]
    assert NO_EVICTION_ANNOTATIONS.items() <= body["metadata"]["annotations"].items()

"""What the operator owes the scheduler, whatever kind of job it is."""

from typing import Any

from gangline.api.kubeflow.kinds import MPIJOB, TFJOB
from gangline.api.kubeflow.training import REPLICA_TYPE
from gangline.api.scheduling import GROUP_NAME_ANNOTATION, PODGROUPS
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.plan.actions import Create
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.pods.addressing import Site
from gangline.testing.builders import make_job
from support.builders.observed_jobs import OBSERVED_AT, job_services, plan_actions

JOBS = (
    (TensorFlow(), make_job(TFJOB, chief=1, ps=2, worker=3, evaluator=1), 7),
    (Mpi(), make_job(MPIJOB, launcher=1, worker=4), 5),
)


def made(framework: Any, job: Any) -> list[Create]:
    children = JobChildren(pods=(), services=job_services(framework, job))
    site = Site(gang_scheduler=GanglineScheduler())
    found = reconcile_plan(framework, ObservedJob.of(framework, job, OBSERVED_AT, children, site, lambda *_: None))
    return [action for action in plan_actions(found) if isinstance(action, Create)]


def test_l9_all_roles_of_a_job_are_one_group_so_no_two_groups_can_wait_for_each_other() -> None:
    for framework, job, members in JOBS:
        bodies = [create for create in made(framework, job) if create.resource == PODGROUPS.name]
        (group,) = bodies
        assert group.body["spec"]["minMember"] == members


def test_l2_and_l3_all_members_are_made_in_one_step_with_their_group_before_them() -> None:
    for framework, job, members in JOBS:
        kinds = [create.resource for create in made(framework, job)]
        assert kinds.count("pods") == members
        assert kinds.index(PODGROUPS.name) < kinds.index("pods")


def test_pods_say_their_group_their_role_and_their_scheduler() -> None:
    for framework, job, _ in JOBS:
        pods = [create.body for create in made(framework, job) if create.resource == "pods"]
        assert {pod["metadata"]["annotations"][GROUP_NAME_ANNOTATION] for pod in pods} == {job.metadata.name}
        assert {pod["spec"]["schedulerName"] for pod in pods} == {"gangline"}
        roles = {kind.lower() for kind in framework.replicas(job)}
        assert {pod["metadata"]["labels"][REPLICA_TYPE] for pod in pods} == roles

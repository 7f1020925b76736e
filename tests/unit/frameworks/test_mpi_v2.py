"""MPIJobs of v2beta1: what is planned for a cluster, and what for one machine. Recorded behaviour: test_mpi_v2beta1.py."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.codec.codec import to_json
from gangline.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    Service,
)
from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2, MPIJob, MPIJobV2, find_job_api
from gangline.api.kubeflow.training import JobStatus, ReplicaStatus
from gangline.api.meta import JSON, Condition, ObjectMeta, OwnerReference
from gangline.frameworks.mpi_v2.framework import AgentMpi, SshMpi
from gangline.frameworks.mpi_v2.objects import scheduling_changes
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Addresses
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.observer import launching_jobs
from gangline.jobs.plan.actions import Create, CreateKeyPair, Delete, JobPlan, Patch
from gangline.jobs.pods.replicas import Gang, Member
from gangline.jobs.site import Site
from support.builders.observed_jobs import job_plan, plan_actions

SSH = SshMpi()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def mpi_job(workers: int = 2, **spec: Any) -> MPIJobV2:
    template = {"spec": {"containers": [{"name": "mpi", "image": "train:1"}]}}
    replicas: JSON = {"Launcher": {"template": template}, "Worker": {"replicas": workers, "template": template}}
    overrides = spec.pop("replicas", {})
    replicas = {kind: {**replicas[kind], **overrides.get(kind, {})} for kind in replicas}
    body = {
        "metadata": {"name": "pi", "namespace": "default", "uid": "u1"},
        "spec": {"mpiReplicaSpecs": replicas, "mpiImplementation": "OpenMPI", **spec},
    }
    return msgspec.convert(body, MPIJobV2)


def worker(index: int, phase: str = "Running", *, ready: bool = True, reason: str = "") -> Pod:
    conditions = (Condition(type="Ready", status="True" if ready else "False"),)
    return Pod(
        metadata=ObjectMeta(name=f"pi-worker-{index}", namespace="default", uid=f"w{index}"),
        spec=PodSpec(),
        status=PodStatus(phase=phase, reason=reason, conditions=conditions),
    )


def launched(phase: str = "Running", **status: Any) -> Pod:
    owner = OwnerReference(kind="Job", name="pi-launcher", uid="j1", controller=True)
    metadata = ObjectMeta(name="pi-launcher-x", namespace="default", uid="l1", owner_references=(owner,))
    return Pod(metadata=metadata, status=PodStatus(phase=phase, **status))


def launcher_body(*conditions: JSON, suspend: bool = False, template: JSON | None = None, **status: Any) -> JSON:
    spec = {"suspend": suspend, "template": template or {"metadata": {}, "spec": {}}}
    metadata = {"name": "pi-launcher", "uid": "j1", "ownerReferences": [{"uid": "u1"}]}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions), **status}}


def plan(job: MPIJobV2, *pods: Pod, services: tuple[str, ...] = ("pi",), **children: Any) -> JobPlan:
    existing = [Service(metadata=ObjectMeta(name=name, namespace="default")) for name in services]
    return job_plan(SSH, job, *pods, services=existing, **children)


def names(found: JobPlan) -> list[str]:
    """What is created and deleted, in order."""
    shown = []
    for action in plan_actions(found):
        match action:
            case Create(resource):
                shown.append(f"{resource}/{action.name}")
            case CreateKeyPair():
                shown.append(f"keys/{action.name}")
            case Delete():
                shown.append(f"-{action.resource}/{action.name}")
            case Patch():
                shown.append(f"~{action.resource}/{action.subresource or action.name}")
            case _:
                raise AssertionError(action)
    return shown


def conditions(found: JobPlan) -> dict[str, str]:
    return {one.type: f"{one.status} {one.reason}" for one in found.status.conditions}


def ended_container(code: int, at: datetime, name: str = "mpi") -> ContainerStatus:
    ended = ContainerStateTerminated(exit_code=code, reason="Error", finished_at=at)
    return ContainerStatus(name=name, state=ContainerState(terminated=ended))


def test_the_launcher_that_failed_is_the_first_failure() -> None:
    failed = launched("Failed", container_statuses=(ended_container(3, NOW),))
    found = plan(
        mpi_job(),
        worker(0),
        worker(1),
        launcher=launcher_body(),
        launched=(failed,),
        log_tails={"l1": ("out of luck",)},
    )
    failure = found.status.first_failure
    assert failure is not None
    assert (failure.replica, failure.pod, failure.exit_code) == ("launcher", "pi-launcher-x", 3)
    assert failure.log == ("out of luck",)
    # The failure stays in the status when Kubernetes has deleted the pod and gives up.
    ended = launcher_body({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"})
    job = msgspec.structs.replace(mpi_job(), status=found.status)
    assert plan(job, worker(0), worker(1), launcher=ended).status.first_failure == failure


def test_a_worker_that_failed_before_its_launcher_is_the_first_failure() -> None:
    lost = msgspec.structs.replace(
        worker(1), status=PodStatus(phase="Failed", container_statuses=(ended_container(137, NOW),))
    )
    late = launched("Failed", container_statuses=(ended_container(1, NOW + timedelta(seconds=20)),))
    found = plan(mpi_job(), worker(0), lost, launcher=launcher_body(), launched=(late,))
    assert found.status.first_failure is not None
    assert (found.status.first_failure.replica, found.status.first_failure.exit_code) == ("worker-1", 137)


def test_a_launcher_that_its_kubelet_started_again_is_a_failure() -> None:
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=9, reason="Error", finished_at=NOW))
    again = ContainerStatus(name="mpi", last_state=ended, restart_count=1)
    found = plan(
        mpi_job(), worker(0), worker(1), launcher=launcher_body(), launched=(launched(container_statuses=(again,)),)
    )
    assert found.status.first_failure is not None
    assert (found.status.first_failure.replica, found.status.first_failure.exit_code) == ("launcher", 9)


def test_a_new_job_gets_keys_before_pods() -> None:
    found = plan(mpi_job(), services=())
    assert names(found) == [
        *("configmaps/pi-config", "services/pi", "keys/pi-ssh"),
        *("pods/pi-worker-0", "pods/pi-worker-1", "jobs.batch/pi-launcher"),
    ]
    assert conditions(found) == {"Created": "True MPIJobCreated"}


def test_keys_are_no_part_of_a_plan() -> None:
    assert plan(mpi_job()) == plan(mpi_job())
    (keys,) = [action for action in plan_actions(plan(mpi_job())) if isinstance(action, CreateKeyPair)]
    assert keys.body.keys() == {"metadata"}


def test_no_keys_are_asked_for_while_no_pod_is_created() -> None:
    found = plan(mpi_job(), worker(0), worker(1), launcher=launcher_body(), launched=(launched(),))
    assert "keys/pi-ssh" not in names(found)
    assert conditions(found)["Running"] == "True MPIJobRunning"


def test_what_we_created_a_moment_ago_is_not_created_again() -> None:
    pending = frozenset({("jobs.batch", "pi-launcher"), ("pods", "pi-worker-1"), ("configmaps", "pi-config")})
    assert names(plan(mpi_job(), worker(0), pending_creates=pending)) == []


@pytest.mark.parametrize(("ready", "waits"), [(False, True), (True, False)])
def test_a_launcher_may_wait_for_its_workers(ready: bool, waits: bool) -> None:
    job = mpi_job(launcherCreationPolicy="WaitForWorkersReady")
    found = plan(job, worker(0), worker(1, ready=ready))
    assert ("jobs.batch/pi-launcher" not in names(found)) is waits


def test_a_failed_worker_is_the_launchers_business_and_a_missing_one_is_made_again() -> None:
    found = plan(mpi_job(3), worker(0, "Failed"), worker(1), launcher=launcher_body(), launched=(launched(),))
    assert [name for name in names(found) if "worker" in name] == ["pods/pi-worker-2"]
    assert found.status.replica_statuses["Worker"].failed == 1


def test_surplus_workers_are_deleted_also_where_the_launcher_is_a_worker() -> None:
    job = mpi_job(1, runLauncherAsWorker=True)
    found = plan(job, worker(0), worker(1), launcher=launcher_body(), launched=(launched(),))
    assert [name for name in names(found) if "worker" in name] == ["-pods/pi-worker-1"]


@pytest.mark.parametrize(
    ("ended", "pods", "expected"),
    [
        ({"type": "Complete", "status": "True"}, ("Succeeded",), "True MPIJobSucceeded"),
        ({"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}, (), "True DeadlineExceeded"),
        ({"type": "Failed", "status": "True"}, (), "True MPIJobFailed"),
        (
            {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"},
            ("Failed",),
            "True BackoffLimitExceeded/Evicted",
        ),
    ],
)
def test_a_job_ends_with_its_launcher(ended: JSON, pods: tuple[str, ...], expected: str) -> None:
    children = tuple(launched(phase, reason="Evicted") for phase in pods)
    found = plan(mpi_job(), worker(0), worker(1), launcher=launcher_body(ended), launched=children)
    kind = "Succeeded" if ended["type"] == "Complete" else "Failed"
    assert conditions(found)[kind] == expected
    assert found.status.completion_time is not None
    assert found.status.replica_statuses["Worker"] == ReplicaStatus(state="Unknown", states={"Unknown": 2})
    assert names(found) == []  # cleanPodPolicy: None


def test_an_edit_of_a_finished_job_is_acknowledged() -> None:
    complete = {"type": "Complete", "status": "True"}
    job = mpi_job()
    ended = plan(job, launcher=launcher_body(complete)).status
    seen = msgspec.structs.replace(ended, observed_generation=1)
    metadata = msgspec.structs.replace(job.metadata, generation=2)
    edited = msgspec.structs.replace(job, metadata=metadata, status=seen)
    again = plan(edited, launcher=launcher_body(complete))
    assert again.status == msgspec.structs.replace(seen, observed_generation=2)


@pytest.mark.parametrize(
    ("policy", "deleted"),
    [("None", []), ("Running", ["-pods/pi-worker-1"]), ("All", ["-pods/pi-worker-0", "-pods/pi-worker-1"])],
)
def test_workers_are_cleaned_up_as_the_policy_says(policy: str, deleted: list[str]) -> None:
    job = mpi_job(runPolicy={"cleanPodPolicy": policy})
    ended = launcher_body({"type": "Complete", "status": "True"})
    first = plan(job, worker(0, "Succeeded"), worker(1), launcher=ended)
    assert names(first) == deleted
    again = plan(msgspec.structs.replace(job, status=first.status), worker(0, "Succeeded"), worker(1), launcher=ended)
    assert (names(again), again.status, again.events) == (deleted, first.status, ())


def test_a_success_takes_back_the_failure_of_an_evicted_worker() -> None:
    job = mpi_job()
    evicted = plan(job, worker(0, "Failed", reason="Evicted"), worker(1), launcher=launcher_body())
    assert conditions(evicted)["Failed"] == "True MPIJobEvicted"
    assert evicted.status.completion_time is None
    ended = launcher_body({"type": "Complete", "status": "True"})
    found = plan(msgspec.structs.replace(job, status=evicted.status), worker(1), launcher=ended)
    assert (conditions(found)["Failed"], conditions(found)["Succeeded"]) == (
        "False MPIJobEvicted",
        "True MPIJobSucceeded",
    )


def test_a_suspended_job_has_a_suspended_launcher_and_no_workers() -> None:
    job = mpi_job(runPolicy={"suspend": True})
    new = plan(job)
    assert names(new) == ["configmaps/pi-config", "keys/pi-ssh", "jobs.batch/pi-launcher"]
    (launcher,) = [
        action for action in plan_actions(new) if isinstance(action, Create) and action.resource == "jobs.batch"
    ]
    assert launcher.body["spec"]["suspend"] is True
    assert new.status.start_time is None
    running = plan(job, worker(0), launcher=launcher_body(), launched=(launched(),))
    assert names(running)[:2] == ["~jobs.batch/pi-launcher", "-pods/pi-worker-0"]


def test_a_job_is_resumed_where_it_shall_run_now() -> None:
    job = mpi_job()
    template = plan_launcher(job)
    body = launcher_body(suspend=True, template=template, startTime="2026-01-01T00:00:00Z")
    unchanged = plan(job, worker(0), worker(1), launcher=body)
    assert [name for name in names(unchanged) if name.startswith("~")] == ["~jobs.batch/pi-launcher"]
    moved = mpi_job(
        replicas={
            "Launcher": {
                "template": {
                    "spec": {"containers": [{"name": "mpi", "image": "train:1"}], "nodeSelector": {"pool": "a"}}
                }
            }
        }
    )
    found = [
        action for action in plan_actions(plan(moved, worker(0), worker(1), launcher=body)) if isinstance(action, Patch)
    ]
    assert [(patch.subresource, patch.body) for patch in found] == [
        ("status", {"status": {"startTime": None}}),
        ("", {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": {"pool": "a"}}}}}),
    ]


def plan_launcher(job: MPIJobV2) -> JSON:
    (launcher,) = [
        action for action in plan_actions(plan(job)) if isinstance(action, Create) and action.resource == "jobs.batch"
    ]
    template: JSON = launcher.body["spec"]["template"]
    return template


def test_a_patch_removes_what_is_not_wanted_any_more() -> None:
    current = {
        "metadata": {"labels": {"a": "1"}},
        "spec": {"nodeSelector": {"zone": "a", "pool": "b"}, "tolerations": [{}]},
    }
    desired = {"metadata": {"labels": {"a": "1"}}, "spec": {"nodeSelector": {"pool": "c"}}}
    assert scheduling_changes(current, desired) == {
        "spec": {"nodeSelector": {"zone": None, "pool": "c"}, "tolerations": None}
    }


def test_a_gang_has_the_launcher_in_it() -> None:
    site = Site(gang_scheduler=GanglineScheduler())
    found = plan(mpi_job(), site=site)
    created = {action.resource: action.body for action in plan_actions(found) if isinstance(action, Create)}
    assert created["podgroups.scheduling.gangline.dev"]["spec"]["minMember"] == 3
    launcher = created["jobs.batch"]["spec"]["template"]
    assert launcher["spec"]["schedulerName"] == created["pods"]["spec"]["schedulerName"] == "gangline"
    assert names(plan(mpi_job(runPolicy={"suspend": True}), site=site)) == [
        "configmaps/pi-config",
        "keys/pi-ssh",
        "jobs.batch/pi-launcher",
    ]


def test_a_gang_does_not_wait_for_a_launcher_that_waits_for_it() -> None:
    job = mpi_job(launcherCreationPolicy="WaitForWorkersReady")
    found = plan(job, site=Site(gang_scheduler=GanglineScheduler()))
    created = {action.resource: action.body for action in plan_actions(found) if isinstance(action, Create)}
    assert created["podgroups.scheduling.gangline.dev"]["spec"]["minMember"] == 2


def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    found = plan(mpi_job(runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
    assert (found.status, found.stages) == (JobStatus(), ())


@pytest.mark.parametrize(
    ("job", "path"),
    [
        (mpi_job(0), "spec.mpiReplicaSpecs.Worker.replicas"),
        (mpi_job(replicas={"Launcher": {"replicas": 2}}), "spec.mpiReplicaSpecs.Launcher.replicas"),
        (mpi_job(replicas={"Worker": {"restartPolicy": "ExitCode"}}), "spec.mpiReplicaSpecs.Worker.restartPolicy"),
        (mpi_job(mpiImplementation="MVAPICH"), "spec.mpiImplementation"),
        (mpi_job(runPolicy={"cleanPodPolicy": "Never"}), "spec.runPolicy.cleanPodPolicy"),
        (mpi_job(runPolicy={"backoffLimit": -1}), "spec.runPolicy.backoffLimit"),
        (mpi_job(slotsPerWorker=-1), "spec.slotsPerWorker"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_created(job: MPIJobV2, path: str) -> None:
    assert [problem.path for problem in problems(SSH, SSH.default(job))] == [path]
    found = plan(job)
    assert (found.status, found.stages) == (job.status, ())
    (event,) = found.events
    assert (event.reason, path in event.message) == ("ValidationError", True)


@pytest.mark.parametrize(("name", "message"), [("a" * 56, "2 too long"), ("9pi", "is no host name")])
def test_a_name_must_be_a_host_name(name: str, message: str) -> None:
    job = mpi_job()
    job = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, name=name))
    (problem,) = problems(SSH, SSH.default(job))
    assert (problem.path, message in problem.message) == ("metadata.name", True)


def test_each_version_knows_its_own_jobs() -> None:
    body = to_json(mpi_job())
    assert msgspec.convert(body, MPIJobV2).is_of_this_api
    assert not msgspec.convert(body, MPIJob).is_of_this_api
    del body["spec"]["mpiImplementation"]
    assert not msgspec.convert(body, MPIJobV2).is_of_this_api
    assert msgspec.convert(body, MPIJob).is_of_this_api
    assert find_job_api("kubeflow.org/v2beta1", "MPIJob") is MPIJOB_V2
    assert find_job_api("kubeflow.org/v1", "MPIJob") is MPIJOB
    assert find_job_api("kubeflow.org/v2beta1", "TFJob") is None


def test_a_pod_of_the_launchers_job_belongs_to_the_job_in_its_labels() -> None:
    labels = {"training.kubeflow.org/job-name": "pi", "training.kubeflow.org/operator-name": "mpi-operator"}
    pod = launched()
    labelled = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
    keys = launching_jobs("mpi-operator")
    assert [str(key) for key in keys(labelled)] == ["default/pi"]
    assert [*keys(pod)] == []
    assert [*keys(worker(0))] == []


# On one machine

AGENT = AgentMpi("agent")


def test_on_one_machine_ranks_are_started_by_the_agent() -> None:
    job = AGENT.default(mpi_job())
    edits = AGENT.wiring(job, Member("Launcher", 0), Addresses())
    env = {variable["name"]: variable.get("value") for variable in edits.env}
    assert env["OMPI_MCA_plm_rsh_agent"] == env["HYDRA_LAUNCHER_EXEC"] == "/etc/mpi/agent.sh"
    assert "OMPI_MCA_plm_rsh_args" not in env  # those are for ssh
    assert not [volume for volume in edits.volumes if "secret" in volume]
    gang = Gang.of("pi", AGENT.replicas(job), ())
    (config,) = AGENT.companions(job, gang)
    assert config.body["data"]["hostfile"] == "pi-worker-0 slots=1\npi-worker-1 slots=1\n"
    assert config.body["data"]["hydra-hostfile"] == "pi-worker-0:1\npi-worker-1:1\n"


@pytest.mark.parametrize("command", [None, ["/usr/sbin/sshd", "-De"], ["sshd"]])
def test_on_one_machine_workers_sleep_instead_of_running_sshd(command: list[str] | None) -> None:
    container = {"name": "mpi", "image": "train:1", **({"command": command} if command else {})}
    job = mpi_job(replicas={"Worker": {"template": {"spec": {"containers": [container]}}}})
    created = [action.body for action in plan_actions(job_plan(AGENT, job, services=())) if isinstance(action, Create)]
    pods = [body for body in created if body["metadata"]["name"] == "pi-worker-0"]
    assert [pod["spec"]["containers"][0]["command"] for pod in pods] == [["sleep"]]


def test_on_one_machine_a_worker_keeps_another_command() -> None:
    container = {"name": "mpi", "image": "train:1", "command": ["serve"]}
    job = mpi_job(replicas={"Worker": {"template": {"spec": {"containers": [container]}}}})
    created = [action.body for action in plan_actions(job_plan(AGENT, job, services=())) if isinstance(action, Create)]
    commands = {
        body["metadata"]["name"]: body["spec"]["containers"][0].get("command")
        for body in created
        if "containers" in body.get("spec", {})
    }
    assert commands["pi-worker-0"] == ["serve"]


def test_on_one_machine_the_defaults_are_those_of_a_cluster() -> None:
    job = AGENT.default(mpi_job())
    policies = {kind: spec.restart_policy for kind, spec in AGENT.replicas(job).items()}
    assert policies == {"Launcher": "OnFailure", "Worker": "Never"}
    assert (job.spec.run_policy.backoff_limit, job.spec.slots_per_worker) == (6, 1)

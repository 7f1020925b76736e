import pytest

from gangline.api.kubeflow.kinds import TFJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.defaults import problems
from gangline.jobs.framework import ConditionText, EnvTarget, Framework, PodEdits
from gangline.jobs.pods.replicas import Member
from support.builders.teams import (
    cluster_addresses,
    env_pairs,
    local_addresses,
    make_framework_job,
    make_gang,
    member_pod_edits,
)

TF: Framework[TFJob] = TensorFlow()


def config(edits: PodEdits) -> str:
    """TF_CONFIG, which is the only variable."""
    ((name, value),) = env_pairs(edits)
    assert name == "TF_CONFIG"
    return str(value)


# TF_CONFIG


def test_everyone_is_told_of_everyone() -> None:
    job = make_framework_job(TF, {"PS": 1, "Worker": 2}, "mnist")
    assert config(member_pod_edits(TF, job, "Worker", 1)) == (
        '{"cluster":{"ps":["mnist-ps-0.ml.svc:2222"],'
        '"worker":["mnist-worker-0.ml.svc:2222","mnist-worker-1.ml.svc:2222"]},'
        '"task":{"type":"worker","index":1},"environment":"cloud"}'
    )


def test_an_evaluator_is_in_the_cluster_it_sees() -> None:
    job = make_framework_job(TF, {"Worker": 2, "Evaluator": 1, "Chief": 1}, "mnist")
    assert config(member_pod_edits(TF, job, "Evaluator")) == (
        '{"cluster":{"chief":["mnist-chief-0.ml.svc:2222"],"evaluator":["mnist-evaluator-0.ml.svc:2222"],'
        '"worker":["mnist-worker-0.ml.svc:2222","mnist-worker-1.ml.svc:2222"]},'
        '"task":{"type":"evaluator","index":0},"environment":"cloud"}'
    )


def test_a_chief_and_a_worker_are_distributed() -> None:
    job = make_framework_job(TF, {"Chief": 1, "Worker": 1})
    assert config(member_pod_edits(TF, job, "Chief")) == (
        '{"cluster":{"chief":["job-chief-0.ml.svc:2222"],"worker":["job-worker-0.ml.svc:2222"]},'
        '"task":{"type":"chief","index":0},"environment":"cloud"}'
    )


def test_addresses_carry_the_custom_domain() -> None:
    job = make_framework_job(TF, {"PS": 1, "Worker": 1})
    edits = TF.wiring(job, Member("PS", 0), cluster_addresses(TF, job, domain="cluster.test"))
    assert config(edits) == (
        '{"cluster":{"ps":["job-ps-0.ml.svc.cluster.test:2222"],'
        '"worker":["job-worker-0.ml.svc.cluster.test:2222"]},'
        '"task":{"type":"ps","index":0},"environment":"cloud"}'
    )


def test_each_type_is_reached_at_its_own_port() -> None:
    job = make_framework_job(TF, {"PS": 1, "Worker": 1})
    assert config(member_pod_edits(TF, job, "Worker", ps=3333)) == (
        '{"cluster":{"ps":["job-ps-0.ml.svc:3333"],"worker":["job-worker-0.ml.svc:2222"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


def test_on_one_machine_every_member_has_its_own_port() -> None:
    job = make_framework_job(TF, {"PS": 1, "Worker": 2})
    edits = TF.wiring(job, Member("Worker", 0), local_addresses(TF, job))
    assert config(edits) == (
        '{"cluster":{"ps":["127.0.0.1:7000"],"worker":["127.0.0.1:7001","127.0.0.1:7002"]},'
        '"task":{"type":"worker","index":0},"environment":"cloud"}'
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_who_is_alone_is_told_of_no_cluster(dynamic: bool) -> None:
    job = make_framework_job(TF, {"Worker": 1}, enableDynamicWorker=dynamic)
    assert env_pairs(member_pod_edits(TF, job, "Worker")) == []


@pytest.mark.parametrize(
    ("kind", "index", "cluster"),
    [
        ("Worker", 1, '{"worker":{"1":"mnist-worker-1.ml.svc:2222"},"ps":["mnist-ps-0.ml.svc:2222"]}'),
        ("PS", 0, '{"worker":{},"ps":["mnist-ps-0.ml.svc:2222"]}'),
        ("Chief", 0, '{"worker":{},"ps":[]}'),
        ("Evaluator", 0, '{"worker":{},"ps":[]}'),
    ],
)
def test_with_dynamic_workers_each_knows_only_what_stays_true(kind: str, index: int, cluster: str) -> None:
    replicas = {"PS": 1, "Worker": 2, "Chief": 1, "Evaluator": 1}
    job = make_framework_job(TF, replicas, "mnist", enableDynamicWorker=True)
    task = f'{{"type":"{kind.lower()}","index":{index}}}'
    assert config(member_pod_edits(TF, job, kind, index)) == f'{{"cluster":{cluster},"task":{task}}}'


def test_a_server_knows_only_itself_among_many() -> None:
    job = make_framework_job(TF, {"PS": 2, "Worker": 1}, enableDynamicWorker=True)
    assert '"ps":["job-ps-1.ml.svc:2222"]}' in config(member_pod_edits(TF, job, "PS", 1))


def test_variables_go_into_the_training_container_alone() -> None:
    assert member_pod_edits(TF, make_framework_job(TF, {"Worker": 2}), "Worker").into is EnvTarget.DEFAULT


# Who leads


@pytest.mark.parametrize(
    ("replicas", "leader"),
    [
        ({"Chief": 1, "Worker": 2, "PS": 1}, Member("Chief", 0)),
        ({"Master": 1, "Worker": 2}, Member("Master", 0)),
        ({"Worker": 2, "PS": 1}, Member("Worker", 0)),
        ({"Worker": 1}, Member("Worker", 0)),
        ({"Chief": 0, "Worker": 2}, Member("Worker", 0)),
        ({"PS": 2}, None),
    ],
)
def test_one_pod_has_the_master_role(replicas: dict[str, int], leader: Member | None) -> None:
    job = make_framework_job(TF, replicas)
    known = cluster_addresses(TF, job)
    marked = [seat for seat in known.known if TF.wiring(job, seat, known).labels == {JOB_ROLE: "master"}]
    assert marked == ([leader] if leader else [])


# Verdict

RUNNING, SUCCEEDED, PENDING = "TFJob ml/job is running.", "TFJob ml/job successfully completed.", ""
CHIEF = {"Chief": 1, "Worker": 2, "PS": 1}
FOUR = {"Worker": 4, "PS": 1}


@pytest.mark.parametrize(
    ("replicas", "phases", "told"),
    [
        (CHIEF, {"chief_0": "Pending", "worker_0": "Running"}, PENDING),
        (CHIEF, {"chief_0": "Running"}, RUNNING),
        (CHIEF, {"chief_0": "Running", "worker_0": "Succeeded", "worker_1": "Succeeded"}, RUNNING),
        (CHIEF, {"chief_0": "Running", "worker_0": "Failed", "worker_1": "Failed"}, RUNNING),
        (CHIEF, {"chief_0": "-Running"}, PENDING),
        (CHIEF, {"chief_0": "Succeeded", "worker_0": "Failed"}, SUCCEEDED),
        (CHIEF, {"chief_0": "Failed", "worker_0": "Succeeded"}, PENDING),
        ({"Master": 1, "Worker": 2}, {"master_0": "Succeeded"}, SUCCEEDED),
        (FOUR, {"worker_0": "Pending", "ps_0": "Running"}, PENDING),
        (FOUR, {"worker_3": "Running"}, RUNNING),
        (FOUR, {"worker_0": "Succeeded", "worker_1": "Running"}, SUCCEEDED),
        (FOUR, {"worker_0": "Succeeded:3", "worker_1": "Running"}, RUNNING),
        (FOUR, {"worker_0": "Running", "worker_1": "Succeeded"}, RUNNING),
        (FOUR, {"worker_0": "Failed", "worker_1": "Succeeded"}, PENDING),
        (FOUR, {f"worker_{index}": "Succeeded" for index in range(4)}, SUCCEEDED),
        # No worker was asked for, so none can have succeeded.
        ({"Worker": 0, "PS": 1}, {"ps_0": "Running"}, PENDING),
    ],
)
def test_the_chief_or_worker_0_decides(replicas: dict[str, int], phases: dict[str, str], told: str) -> None:
    job = make_framework_job(TF, replicas)
    assert TF.verdict(job, make_gang(TF, job, **phases)).message == told


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ({"worker_0": "Succeeded", "worker_1": "Running"}, RUNNING),
        ({"worker_0": "Succeeded", "worker_1": "Pending"}, PENDING),
        ({"worker_0": "Succeeded", "worker_1": "Succeeded"}, SUCCEEDED),
    ],
)
def test_all_workers_decide_if_the_job_says_so(phases: dict[str, str], told: str) -> None:
    job = make_framework_job(TF, {"Worker": 2}, successPolicy="AllWorkers")
    assert TF.verdict(job, make_gang(TF, job, **phases)).message == told


def test_worker_0_that_does_not_tell_its_exit_code_is_not_enough() -> None:
    job = make_framework_job(TF, {"Worker": 2})
    gang = make_gang(TF, job, worker_0="Succeeded:", worker_1="Running")
    assert TF.verdict(job, gang).message == RUNNING


def test_failure_is_told_with_the_namespace() -> None:
    job = make_framework_job(TF, {"Worker": 2})
    message = "TFJob ml/job has failed because 2 Worker replica(s) failed."
    assert TF.failure(job, "Worker", 2) == ConditionText("TFJobFailed", message)


@pytest.mark.parametrize(
    ("dynamic", "kind", "tolerated"),
    [(True, "Worker", True), (True, "PS", False), (False, "Worker", False)],
)
def test_only_dynamic_workers_may_fail(dynamic: bool, kind: str, tolerated: bool) -> None:
    job = make_framework_job(TF, {"Worker": 2, "PS": 1}, enableDynamicWorker=dynamic)
    assert TF.tolerates(job, kind) is tolerated


# Defaults and what cannot run


def test_types_are_folded_and_defaults_filled_in() -> None:
    job = make_framework_job(TF, {"WORKER": None, "ps": {"restartPolicy": "Always", "replicas": 3}})
    filled = {kind: (spec.replicas, spec.restart_policy) for kind, spec in TF.replicas(job).items()}
    assert filled == {"PS": (3, "Always"), "Worker": (1, "Never")}
    assert TF.run_policy(job).clean_pod_policy == "None"


def test_a_custom_clean_policy_is_kept() -> None:
    job = make_framework_job(TF, {"Worker": 1}, runPolicy={"cleanPodPolicy": "All"})
    assert TF.run_policy(job).clean_pod_policy == "All"


@pytest.mark.parametrize(
    ("replicas", "told"),
    [
        ({"Chief": 1, "Worker": 1}, []),
        (
            {"Chief": 1, "Master": 1},
            ["spec.tfReplicaSpecs: has both Chief and Master, two names of one role; write one"],
        ),
        (
            {"Chief": 2, "Worker": 1},
            ["spec.tfReplicaSpecs.Chief.replicas: is 2; write 1, for TensorFlow knows one chief"],
        ),
    ],
)
def test_there_is_one_chief(replicas: dict[str, int], told: list[str]) -> None:
    assert [str(problem) for problem in problems(TF, make_framework_job(TF, replicas))] == told

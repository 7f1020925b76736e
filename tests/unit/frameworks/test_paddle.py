import pytest

from gangline.api.kubeflow.kinds import PaddleJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.frameworks.paddle import Paddle
from gangline.jobs.defaults import problems
from gangline.jobs.framework import ConditionText, EnvTarget, Framework
from gangline.jobs.pods.replicas import Member
from support.builders.teams import env_pairs, local_addresses, make_framework_job, make_gang, member_pod_edits

PADDLE: Framework[PaddleJob] = Paddle()
OWN = {"fieldRef": {"fieldPath": "status.podIP"}}
COLLECTIVE, SERVED = {"Worker": 2}, {"Master": 2, "Worker": 2}


def common(nodes: int) -> list[tuple[str, str]]:
    return [("PYTHONUNBUFFERED", "1"), ("PADDLE_JOB_ID", "pc"), ("PADDLE_NNODES", str(nodes))]


def test_worker_0_meets_the_others_at_its_own_number() -> None:
    edits = member_pod_edits(PADDLE, make_framework_job(PADDLE, COLLECTIVE, "pc"), "Worker", 0)
    assert env_pairs(edits) == [*common(2), ("POD_IP_DUMMY", OWN), ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543")]
    assert edits.into is EnvTarget.EVERY


def test_the_others_meet_worker_0_by_its_name() -> None:
    edits = member_pod_edits(PADDLE, make_framework_job(PADDLE, COLLECTIVE, "pc"), "Worker", 1)
    assert env_pairs(edits) == [*common(2), ("PADDLE_MASTER", "pc-worker-0:36543")]


@pytest.mark.parametrize(
    ("kind", "index", "told"),
    [
        (
            "Master",
            0,
            [("POD_IP_DUMMY", OWN), ("PADDLE_MASTER", "$(POD_IP_DUMMY):36543"), ("PADDLE_SERVER_NUM", "1")],
        ),
        ("Master", 1, [("PADDLE_MASTER", "pc-master-0:36543"), ("PADDLE_SERVER_NUM", "1")]),
        ("Worker", 0, [("PADDLE_MASTER", "pc-master-0:36543"), ("PADDLE_TRAINER_NUM", "1")]),
        ("Worker", 1, [("PADDLE_MASTER", "pc-master-0:36543"), ("PADDLE_TRAINER_NUM", "1")]),
    ],
)
def test_with_masters_all_meet_at_the_first(kind: str, index: int, told: list[tuple[str, object]]) -> None:
    assert env_pairs(member_pod_edits(PADDLE, make_framework_job(PADDLE, SERVED, "pc"), kind, index)) == [
        *common(4),
        *told,
    ]


def test_the_port_is_that_of_the_meeting_place() -> None:
    job = make_framework_job(PADDLE, {"Master": 1, "Worker": 1}, "pc")
    assert ("PADDLE_MASTER", "pc-master-0:1111") in env_pairs(
        member_pod_edits(PADDLE, job, "Worker", master=1111, worker=2222)
    )


def test_on_one_machine_the_meeting_place_has_a_port_of_its_own() -> None:
    job = make_framework_job(PADDLE, COLLECTIVE)
    told = [env_pairs(PADDLE.wiring(job, Member("Worker", index), local_addresses(PADDLE, job))) for index in (0, 1)]
    assert told[0][-1] == ("PADDLE_MASTER", "$(POD_IP_DUMMY):7000")
    assert told[1][-1] == ("PADDLE_MASTER", "127.0.0.1:7000")


@pytest.mark.parametrize(
    ("replicas", "kind", "marked"),
    [(SERVED, "Master", True), (SERVED, "Worker", False), (COLLECTIVE, "Worker", False)],
)
def test_only_masters_have_the_master_role(replicas: dict[str, int], kind: str, marked: bool) -> None:
    edits = member_pod_edits(PADDLE, make_framework_job(PADDLE, replicas), kind)
    assert edits.labels == ({JOB_ROLE: "master"} if marked else {})


@pytest.mark.parametrize(
    ("replicas", "phases", "told"),
    [
        (SERVED, {"worker_0": "Running"}, ""),
        (SERVED, {"master_0": "Running"}, "PaddleJob job is running."),
        (SERVED, {"master_0": "Succeeded", "master_1": "Running"}, "PaddleJob job is running."),
        (
            SERVED,
            {"master_0": "Succeeded", "master_1": "Succeeded", "worker_0": "Running"},
            "PaddleJob job is successfully completed.",
        ),
        (COLLECTIVE, {"worker_1": "Running"}, "PaddleJob ml/job is running."),
        (COLLECTIVE, {"worker_0": "Succeeded"}, ""),
        (
            COLLECTIVE,
            {"worker_0": "Succeeded", "worker_1": "Succeeded"},
            "PaddleJob ml/job successfully completed.",
        ),
        # No master asked for is no master.
        ({"Master": 0, "Worker": 2}, {"worker_0": "Running"}, "PaddleJob ml/job is running."),
    ],
)
def test_the_masters_decide_or_all_workers(replicas: dict[str, int], phases: dict[str, str], told: str) -> None:
    job = make_framework_job(PADDLE, replicas)
    assert PADDLE.verdict(job, make_gang(PADDLE, job, **phases)).message == told


def test_failure_and_defaults() -> None:
    job = make_framework_job(PADDLE, {"Worker": None})
    assert PADDLE.failure(job, "Worker", 1) == ConditionText(
        "PaddleJobFailed", "PaddleJob job is failed because 1 Worker replica(s) failed."
    )
    worker = PADDLE.replicas(job)["Worker"]
    assert (worker.replicas, worker.restart_policy) == (1, "OnFailure")
    assert not PADDLE.tolerates(job, "Worker")


def test_elastic_bounds_are_filled_in() -> None:
    elastic = make_framework_job(PADDLE, {"Worker": 3}, elasticPolicy={"minReplicas": 2}).spec.elastic_policy
    assert elastic is not None
    assert (elastic.min_replicas, elastic.max_replicas) == (2, 2)


def test_an_elastic_job_needs_workers() -> None:
    job = make_framework_job(PADDLE, {"Master": 1}, elasticPolicy={})
    told = "spec.paddleReplicaSpecs: has no Worker, which elasticPolicy needs; write one"
    assert [str(problem) for problem in problems(PADDLE, job)] == [told]

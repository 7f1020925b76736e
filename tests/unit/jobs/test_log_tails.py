"""The end of the log is kept before a job that exceeds its backoff limit takes its pods with it."""

from datetime import timedelta
from typing import NamedTuple

import msgspec
import pytest

from gangline.api.core import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod
from gangline.api.in_place import IN_PLACE_ANNOTATION, IN_PLACE_REASON
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import Failure, JobStatus
from gangline.api.meta import Condition, Key
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.log_tails import LogTailCache
from gangline.jobs.plan.failures.records import last_restarted_failure
from gangline.jobs.site import Site
from gangline.testing.builders import make_member
from support.builders.observed_jobs import OBSERVED_AT, observed_job, with_status
from support.builders.teams import make_framework_job, make_gang

TORCH = PyTorch()
ENDED = ContainerState(terminated=ContainerStateTerminated(exit_code=4))


class Reader(NamedTuple):
    """Answers with what was asked for, and keeps it."""

    requests: list[tuple[str, bool]]

    async def tail(self, pod: Key, container: str, lines: int, *, previous: bool = False) -> tuple[str, ...]:
        self.requests.append((pod.name, previous))
        return (f"{pod.name} {container}",)


def restarted_pod(name: str, restarts: int, state: ContainerState) -> Pod:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1})
    gang = make_gang(TORCH, job, master_0="Running", worker_0="Running")
    pod = next(pod for pod in gang.pods.values() if pod.metadata.name == f"job-{name}")
    status = ContainerStatus(name="pytorch", restart_count=restarts, state=state, last_state=ENDED)
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, uid=name),
        status=msgspec.structs.replace(pod.status, container_statuses=(status,)),
    )


RUNNING = ContainerState(running=ContainerStateRunning())


@pytest.mark.parametrize(("state", "previous"), [(RUNNING, True), (ContainerState(), False)])
async def test_the_log_of_a_restarted_container_is_read_when_the_limit_is_near(
    state: ContainerState, previous: bool
) -> None:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1}, runPolicy={"backoffLimit": 2})
    reader = Reader([])
    cache = LogTailCache(reader, TORCH)
    observed = observed_job(TORCH, job, restarted_pod("worker-0", 2, state))
    assert await cache.read(observed) == {"worker-0": ("job-worker-0 pytorch",)}
    await cache.read(observed)
    assert reader.requests == [("job-worker-0", previous)], "once per restart"


@pytest.mark.parametrize(
    ("site", "names"), [(Site(), ["worker-0"]), (Site(shared_host=True), ["master-0", "worker-0"])]
)
async def test_on_one_machine_logs_of_replicas_that_run_are_read_when_another_has_failed(
    site: Site, names: list[str]
) -> None:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1})
    gang = make_gang(TORCH, job, master_0="Running", worker_0="Failed")
    reader = Reader([])
    await LogTailCache(reader, TORCH).read(observed_job(TORCH, job, *gang.pods.values(), site=site))
    assert sorted(reader.requests) == [(f"job-{name}", False) for name in names]


async def test_the_log_of_a_restarted_container_is_read_when_the_deadline_is_over() -> None:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1}, runPolicy={"activeDeadlineSeconds": 60})
    job = with_status(job, JobStatus(start_time=OBSERVED_AT))
    for seconds, requests in ((59, []), (61, [("job-worker-0", True)])):
        reader, after = Reader([]), timedelta(seconds=seconds)
        await LogTailCache(reader, TORCH).read(
            observed_job(TORCH, job, restarted_pod("worker-0", 1, RUNNING), after=after)
        )
        assert reader.requests == requests


async def test_the_log_of_a_replica_that_the_clean_up_deletes_is_read_before() -> None:
    """Its kubelet may not have reported its end, and its log goes with it."""
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1}, runPolicy={"cleanPodPolicy": "Running"})
    master = make_member("Master", of=PYTORCHJOB)
    worker = make_member("Worker", of=PYTORCHJOB, phase="Failed", exit_code=1)
    reader = Reader([])
    cache = LogTailCache(reader, TORCH)
    for _ in range(2):
        await cache.read(observed_job(TORCH, job, master, worker))
    assert sorted(reader.requests) == [("job-master-0", False), ("job-worker-0", False)]
    status = JobStatus(
        conditions=(Condition(type="Failed", status="True"),),
        completion_time=OBSERVED_AT,
        first_failure=Failure("worker-0"),
    )
    tails = await cache.read(observed_job(TORCH, with_status(job, status), worker, departed=(master,)))
    assert tails[master.metadata.uid] == ("job-master-0 pytorch",)
    assert len(reader.requests) == 2


@pytest.mark.parametrize("policy", [{}, {"backoffLimit": 3}])
async def test_no_log_is_read_while_the_limit_is_far(policy: dict[str, int]) -> None:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1}, runPolicy=policy)
    reader = Reader([])
    assert await LogTailCache(reader, TORCH).read(observed_job(TORCH, job, restarted_pod("worker-0", 2, RUNNING))) == {}
    assert reader.requests == []


def test_among_equals_the_failure_is_recorded_whose_log_is_known() -> None:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1})
    pods = (restarted_pod("master-0", 1, RUNNING), restarted_pod("worker-0", 1, RUNNING))
    gang = observed_job(TORCH, job, *pods).gang
    failure = last_restarted_failure(gang, "pytorch", {"master-0": ("bad data",)})
    assert failure is not None
    assert (failure.replica, failure.log) == ("master-0", ("bad data",))


async def test_a_pod_that_restarts_in_place_and_fails_again_is_read_again() -> None:
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1})
    reader = Reader([])
    cache = LogTailCache(reader, TORCH)
    for restarts in (0, 0, 1):
        pod = restarted_pod("worker-0", restarts, ENDED)
        metadata = msgspec.structs.replace(pod.metadata, annotations={IN_PLACE_ANNOTATION: str(restarts)})
        observed = observed_job(TORCH, job, msgspec.structs.replace(pod, metadata=metadata))
        assert observed.held == {"worker-0"}
        await cache.read(observed)
    assert reader.requests == [("job-worker-0", False)] * 2


def test_a_peer_that_its_node_stopped_is_not_the_first_failure() -> None:
    stopped = ContainerState(terminated=ContainerStateTerminated(exit_code=143, reason=IN_PLACE_REASON))
    job = make_framework_job(TORCH, {"Master": 1, "Worker": 1})
    master = restarted_pod("master-0", 1, RUNNING)
    (status,) = master.status.container_statuses
    statuses = (msgspec.structs.replace(status, last_state=stopped),)
    master = msgspec.structs.replace(master, status=msgspec.structs.replace(master.status, container_statuses=statuses))
    gang = observed_job(TORCH, job, master, restarted_pod("worker-0", 1, RUNNING)).gang
    failure = last_restarted_failure(gang, "pytorch", {})
    assert failure is not None
    assert failure.replica == "worker-0"

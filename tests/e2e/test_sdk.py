"""The Python SDK with no cluster at all: jobs are processes of this machine."""

import asyncio
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gangline import (
    AsyncTrainingClient,
    JobFailed,
    Replica,
    TrainingClient,
    TrainingError,
    jax_job,
    pytorch_job,
)
from gangline.sdk.logs import JobLogLine

pytestmark = pytest.mark.xdist_group("sdk")


@pytest.fixture(scope="module")
def client() -> Iterator[TrainingClient]:
    with TrainingClient(local=True) as running:
        yield running


def replica(code: str, count: int = 1, **more: Any) -> Replica:
    return Replica("none", ["python", "-c", code], replicas=count, **more)


HELLO = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
SLEEP = "import time; print('here', flush=True); time.sleep(600)"


def test_a_job_is_created_awaited_read_and_deleted(client: TrainingClient) -> None:
    states: list[str] = []
    made = client.create_job(pytorch_job("hello", master=replica(HELLO), worker=replica(HELLO, 2)))
    assert (made.metadata.name, made.kind) == ("hello", "PyTorchJob")
    done = client.wait_for_job_conditions("hello", callback=lambda job: states.append(job.state))
    assert done.status.replica_statuses["Master"].succeeded == 1
    assert states[-1] == "Succeeded"
    assert client.is_job_succeeded("hello")
    assert not client.is_job_failed(job=done)
    assert not client.is_job_suspended("hello")
    assert client.get_job_pod_names("hello", is_master=True) == ["hello-master-0"]
    assert client.get_job_pod_names("hello", replica_type="worker", replica_index=1) == ["hello-worker-1"]
    assert client.get_job_logs("hello") == ({"hello-master-0": "rank 0 of 3\n"}, {})
    deadline = time.monotonic() + 60
    told = ""
    # Events come when pods have been made.
    while "successfully completed" not in told and time.monotonic() < deadline:
        told = " ".join(client.get_job_logs("hello", verbose=True)[1].get("pytorchjob/hello", ()))
    assert "successfully completed" in told
    assert "hello" in [job.metadata.name for job in client.list_jobs()]
    client.delete_job("hello")
    with pytest.raises(TrainingError, match=r'pytorchjobs\.kubeflow\.org "hello" not found'):
        client.get_job("hello")


def test_a_function_is_trained_and_its_lines_followed(client: TrainingClient) -> None:
    def train(parameters: dict[str, Any]) -> None:
        for step in range(parameters["steps"]):
            print("step", step, "costs $5")

    client.create_job(
        name="function",
        train_func=train,
        parameters={"steps": 2},
        base_image="none",
        job_kind="JAXJob",
        num_workers=2,
    )
    lines = list(client.follow_logs("function", job_kind="JAXJob"))
    for pod in ("function-worker-0", "function-worker-1"):
        assert [line for line in lines if line.pod == pod] == [
            JobLogLine(pod, "step 0 costs $5"),
            JobLogLine(pod, "step 1 costs $5"),
        ]


def test_a_failure_says_who_and_why_explains_it(client: TrainingClient) -> None:
    client.create_job(pytorch_job("bad", master=replica("raise SystemExit('out of luck')")))
    with pytest.raises(JobFailed, match="PyTorchJob default/bad failed: master-0") as failed:
        client.wait_for_job_conditions("bad")
    assert failed.value.job.state == "Failed"
    assert client.is_job_failed("bad")
    report = client.why("bad")
    assert "out of luck" in " ".join(report.causes[0].evidence)


def test_a_job_is_suspended_resumed_scaled_and_restarted(client: TrainingClient) -> None:
    client.create_job(jax_job("long", worker=replica(SLEEP, 1, restart_policy="OnFailure")))
    running = {"expected_conditions": {"Running"}, "job_kind": "JAXJob"}
    client.wait_for_job_conditions("long", **running)  # type: ignore[arg-type]
    client.suspend_job("long", job_kind="JAXJob")
    client.wait_for_job_conditions("long", job_kind="JAXJob", expected_conditions={"Suspended"})
    client.resume_job("long", job_kind="JAXJob")
    client.wait_for_job_conditions("long", **running)  # type: ignore[arg-type]
    assert client.scale_job("long", 2, job_kind="JAXJob").replicas == {"Worker": 2}
    for job in client.watch_job("long", job_kind="JAXJob", wait_timeout=60):
        if job.status.replica_statuses.get("Worker") and job.status.replica_statuses["Worker"].active == 2:
            break
    before = {pod.metadata.name: pod.metadata.uid for pod in client.get_job_pods("long")}
    assert client.restart_job("long", job_kind="JAXJob", replica_type="worker", replica_index=1) == ["long-worker-1"]
    # By looking: of a pod that is made anew quickly enough the status of its job says nothing.
    now, deadline = before, time.monotonic() + 60
    while now.keys() != before.keys() or now["long-worker-1"] == before["long-worker-1"]:
        assert time.monotonic() < deadline, now
        now = {pod.metadata.name: pod.metadata.uid for pod in client.get_job_pods("long")}
    assert now["long-worker-0"] == before["long-worker-0"]
    client.delete_job("long", job_kind="JAXJob")


def test_bad_arguments_and_silence_are_told_apart(client: TrainingClient) -> None:
    with pytest.raises(ValueError, match="expected_conditions"):
        client.wait_for_job_conditions("x", expected_conditions={"Done"})
    with pytest.raises(ValueError, match="replica_type: is 'wurker'; write one of"):
        client.get_job_pods("x", replica_type="wurker")
    client.create_job(jax_job("never", worker=replica(SLEEP)))
    with pytest.raises(TimeoutError, match=r"job never: not Succeeded within 0\.5 seconds"):
        client.wait_for_job_conditions("never", job_kind="JAXJob", wait_timeout=0.5)
    client.delete_job("never", job_kind="JAXJob")


async def test_the_async_client_does_the_same() -> None:
    async with AsyncTrainingClient(local=True, job_kind="JAXJob") as client, asyncio.timeout(60):
        await client.create_job(jax_job("a", worker=replica("print('hi')")))
        assert (await client.wait_for_job_conditions("a")).state == "Succeeded"


def test_both_clients_have_the_same_surface() -> None:
    def surface(kind: type) -> dict[str, list[str]]:
        return {
            name: [str(parameter) for parameter in inspect.signature(found).parameters.values()]
            for name, found in inspect.getmembers(kind, callable)
            if not name.startswith("_")
        }

    assert surface(TrainingClient) == surface(AsyncTrainingClient)
    assert inspect.signature(TrainingClient) == inspect.signature(AsyncTrainingClient)


def test_a_program_that_is_killed_leaves_no_process_and_no_folder_behind(tmp_path: Path) -> None:
    code = (
        "from gangline import *; import sys;"
        f"c = TrainingClient(local=True); c.create_job(jax_job('x', worker=Replica('none', ['python', '-c', {SLEEP!r}])));"
        "c.wait_for_job_conditions('x', job_kind='JAXJob', expected_conditions={'Running'});"
        "print('running', flush=True); sys.stdin.read()"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    started = psutil.Process(program.pid).children(recursive=True)
    assert len(started) >= 2
    program.kill()
    program.communicate()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def test_where_no_cluster_is_configured_that_is_said(tmp_path: Any) -> None:
    code = "from gangline import TrainingClient\nwith TrainingClient() as c: print(c.list_jobs())"
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "GANGLINE_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert done.stderr == "gangline: no cluster is configured; jobs run on this machine while this program does\n"

"""`runPolicy.recovery` on real pods: programs that really fail, and what the cause decides."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.kubeflow.kinds import PyTorchJob, TFJob
from gangline.api.kubeflow.training import ConditionType, JobStatus
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose
from support.cases.why_faults import fault_job, python_command
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("recovery")]

NODE = NodeSettings(memory_period=timedelta(milliseconds=100))
FIRST_TIME = """
import os, pathlib, signal, sys, time
mark = pathlib.Path(sys.argv[1]) / sys.argv[2]
if mark.exists():
    sys.exit(0)
mark.touch()
"""
"""The beginning of a program that fails only once."""
HOLD_MEMORY = """
import time
held = bytearray(100 * 2**20)
for index in range(0, len(held), 4096):
    held[index] = 1
time.sleep(2)
"""


class RecoveryCase(NamedTuple):
    """A job, and what must become of it."""

    body: JSON
    state: ConditionType
    cause: str
    action: str
    restarts: int
    words: str = ""


def once(folder: Path, name: str, then: str) -> tuple[str, ...]:
    return (*python_command(FIRST_TIME + then), str(folder), name)


def cases(folder: Path) -> dict[str, RecoveryCase]:
    auto = {"recovery": "auto"}
    raised = {"rules": [{"when": {"causes": ["memory"]}, "then": "RaiseMemory", "upTo": "256Mi", "factor": 4}]}
    retried = {"rules": [{"when": {"causes": ["network"]}, "then": "Retry", "delay": "1s"}], "otherwise": "auto"}
    asked = {"rules": [{"when": {"exitCodes": [42]}, "then": "RestartReplica"}]}
    memory = {"resources": {"limits": {"memory": "48Mi"}}}
    no_route = 'raise OSError(113, "No route to host")'
    return {
        "bug": RecoveryCase(
            fault_job("bug", *python_command("raise ValueError('no')"), restart="OnFailure", run=auto),
            ConditionType.FAILED,
            "python-exception",
            "Fail",
            0,
            "a restart would end the same way",
        ),
        "module": RecoveryCase(
            fault_job("module", *python_command("import nothing_of_that_name"), restart="Always", run=auto),
            ConditionType.FAILED,
            "module-missing",
            "Fail",
            0,
        ),
        "killed": RecoveryCase(
            fault_job("killed", *once(folder, "killed", "os.kill(os.getpid(), signal.SIGKILL)"), run=auto),
            ConditionType.SUCCEEDED,
            "killed",
            "RestartElsewhere",
            1,
            "there is no other node to go to",
        ),
        "memory": RecoveryCase(
            fault_job("memory", *python_command(HOLD_MEMORY), run={"recovery": raised}, container=memory),
            ConditionType.SUCCEEDED,
            "oom-killed",
            "RaiseMemory",
            1,
            "restarted with 192Mi memory instead of 48Mi because",
        ),
        "network": RecoveryCase(
            fault_job("network", *once(folder, "network", no_route), run={"recovery": retried}),
            ConditionType.SUCCEEDED,
            "service-unavailable",
            "Retry",
            1,
            "waits 1s before it starts again (attempt 1 of 20) because",
        ),
        "asked": RecoveryCase(
            fault_job("asked", *once(folder, "asked", "sys.exit(42)"), run={"recovery": asked}),
            ConditionType.SUCCEEDED,
            "exit-code",
            "RestartReplica",
            1,
        ),
        "usage": RecoveryCase(
            fault_job(
                "usage", *python_command("import argparse; argparse.ArgumentParser().parse_args()"), "--no", run=auto
            ),
            ConditionType.FAILED,
            "usage",
            "Fail",
            0,
        ),
    }


NAMES = ("bug", "module", "killed", "memory", "network", "asked", "usage")


class Played(NamedTuple):
    """How a job ended, and what `why` says of it."""

    case: RecoveryCase
    status: JobStatus
    report: Any


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """All jobs, played at the same time on one plane."""
    return asyncio.run(play_all(tmp_path_factory.mktemp("plane"), tmp_path_factory.mktemp("files")))


async def play_all(folder: Path, files: Path) -> dict[str, Played]:
    settings = LocalSettings(folder=folder, logs=folder / "logs", node=NODE)
    played: dict[str, Played] = {}

    async def play(client: Client, name: str, case: RecoveryCase) -> None:
        key = Key("default", name)
        await client.create(TFJob, case.body, namespace="default")

        async def is_finished() -> bool:
            return (await client.get(TFJob, key)).status.finished

        await wait_until(is_finished, seconds=90)
        status = (await client.get(TFJob, key)).status
        report = diagnose(await collect(client, f"tfjob/{name}", "default", SystemClock()))
        played[name] = Played(case, status, report)

    async with embedded_plane(settings, SystemClock()) as plane, asyncio.TaskGroup() as group:
        for name, case in cases(files).items():
            group.create_task(play(plane.client, name, case))
    return played


@pytest.mark.parametrize("name", NAMES)
def test_the_cause_decides(outcomes: dict[str, Played], name: str) -> None:
    case, status, report = outcomes[name]
    assert status.holds(case.state), status.recovery
    assert status.recovery is not None
    assert (status.recovery.cause, status.recovery.action) == (case.cause, case.action)
    assert status.restarts == case.restarts
    assert case.words in status.recovery.message
    shown = [*report.notes, *report.evidence]
    assert any("its recovery policy" in line for line in shown)


async def test_a_whole_team_starts_again_after_one_was_killed(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    # In the first round the master would wait for ever: only a restart of the whole team ends it.
    dies = "while not (mark.parent / 'master').exists(): time.sleep(0.01)\nos.kill(os.getpid(), signal.SIGKILL)"
    worker, master = once(files, "worker", dies), once(files, "master", "time.sleep(600)")
    body = fault_job("team", *worker, kind="PyTorchJob", run={"recovery": "auto"}, Master=1, Worker=1)
    specs = body["spec"]["pytorchReplicaSpecs"]
    specs["Master"] = fault_job("x", *master, kind="PyTorchJob", Master=1)["spec"]["pytorchReplicaSpecs"]["Master"]
    async with embedded_plane(LocalSettings(folder=tmp_path, logs=tmp_path / "logs"), SystemClock()) as plane:
        await plane.client.create(PyTorchJob, body, namespace="default")

        async def has_succeeded() -> bool:
            return (await plane.client.get(PyTorchJob, Key("default", "team"))).status.holds(ConditionType.SUCCEEDED)

        await wait_until(has_succeeded, seconds=90)
        status = (await plane.client.get(PyTorchJob, Key("default", "team"))).status
    assert (status.restarts, status.ledger.round) == (1, 1)
    assert status.recovery is not None
    assert status.recovery.message.startswith("restarted because worker-0 (rank 1) was killed from outside (SIGKILL)")

"""A worker is killed and replaced, and the master complains: everybody names the worker, not the master."""

import sys
from pathlib import Path

import pytest

from gangline.api.codec.codec import to_json
from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.cli.follow.outcome import RunOutcome, plain_summary
from gangline.local.cluster import LocalSettings
from gangline.operator.assembly import embedded_plane
from gangline.sdk.errors import JobFailed
from gangline.sdk.job import Job
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose
from support.waiting import wait_until

# The master complains in words of its own when it may: when the worker was replaced, or when it is back.
MASTER = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / "master").touch()
while not (folder / sys.argv[2]).exists():
    time.sleep(0.01)
sys.exit("Rank 1 has gone away, giving up")
"""
WORKER = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
if (folder / "died").exists():
    (folder / "back").touch()
    while True:
        signal.pause()
while not (folder / "master").exists():
    time.sleep(0.01)
(folder / "died").touch()
os.kill(os.getpid(), signal.SIGKILL)
"""


def job(folder: Path, event: str) -> JSON:
    def replica(script: str, *arguments: str) -> JSON:
        command = [sys.executable, "-c", script, str(folder), *arguments]
        container = {"name": "pytorch", "image": "none", "command": command}
        template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
        return {"replicas": 1, "restartPolicy": "ExitCode", "template": template}

    return {
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica(MASTER, event), "Worker": replica(WORKER)}},
    }


@pytest.mark.parametrize("event", ["replaced", "back"])
async def test_the_replica_that_was_replaced_is_named_by_everybody(tmp_path: Path, event: str) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    key = Key("default", "team")
    async with embedded_plane(LocalSettings(folder=tmp_path, logs=tmp_path / "logs"), SystemClock()) as plane:
        await plane.client.create(PyTorchJob, job(folder, event))

        async def is_replaced() -> bool:
            return (await plane.client.get(PyTorchJob, key)).status.restarts == 1

        await wait_until(is_replaced)
        (folder / "replaced").touch()

        async def has_ended() -> bool:
            return (await plane.client.get(PyTorchJob, key)).status.finished

        await wait_until(has_ended)
        ended = await plane.client.get(PyTorchJob, key)
        report = diagnose(await collect(plane.client, "team", "default", SystemClock()))
    first = ended.status.first_failure
    assert first is not None
    assert (first.replica, first.exit_code) == ("worker-0", 137)
    assert report.causes[0].replicas == ("worker-0",)
    assert "worker-0" in str(JobFailed(Job({**to_json(ended), "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"})))
    screen = "\n".join("".join(span.text for span in line) for line in plain_summary(RunOutcome(ended, 1.0)))
    assert "first to fail: worker-0 with exit code 137" in screen

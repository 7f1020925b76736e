"""A team that restarts as a whole, with real processes: no process of the next round meets one of the last round."""

import os
import signal
import sys
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.api.kubeflow.training import ConditionType
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.operator.assembly import embedded_plane
from support.waiting import wait_until

# Holds a lock for as long as it or its child lives. In the next round, looks whose locks of the last one are held.
SCRIPT = """
import fcntl, os, pathlib, signal, subprocess, sys, time
folder, name = pathlib.Path(sys.argv[1]), os.environ["HOSTNAME"]
number = 2 if (folder / f"{name}.1.lock").exists() else 1
if number == 2:
    met = []
    for lock in sorted(folder.glob("*.1.lock")):
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                met.append(lock.name)
    (folder / f"{name}.met").write_text(" ".join(met))
    sys.exit()
lock = (folder / f"{name}.1.lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)

def save(*_):
    (folder / f"{name}.saving").touch()
    while name.endswith("worker-1") and not (folder / "saved").exists():
        time.sleep(0.01)
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", deaf], pass_fds=[lock.fileno()], stdout=subprocess.PIPE)
child.stdout.readline()
(folder / f"{name}.part").write_text(str(os.getpid()))
(folder / f"{name}.part").rename(folder / f"{name}.pid")
while True:
    signal.pause()
"""
KEY = Key("default", "team")


def job(folder: Path) -> JSON:
    container = {"name": "pytorch", "image": "none", "command": [sys.executable, "-c", SCRIPT, str(folder)]}
    worker = {
        "replicas": 3,
        "restartPolicy": "ExitCode",
        "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 120}},
    }
    return {
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"runPolicy": {"restartScope": "Job"}, "pytorchReplicaSpecs": {"Worker": worker}},
    }


async def pods(plane: LocalCluster) -> dict[str, Pod]:
    found = await plane.client.list(Pod, Selector(namespace=KEY.namespace))
    return {pod.metadata.name: pod for pod in found.items}


async def test_the_next_round_waits_for_a_rank_that_saves_its_state(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    folder.mkdir()
    names = [f"team-worker-{index}" for index in range(3)]
    async with embedded_plane(LocalSettings(folder=tmp_path, logs=tmp_path / "logs"), SystemClock()) as plane:
        await plane.client.create(PyTorchJob, job(folder))
        files = [folder / f"{name}.pid" for name in names]
        await wait_until(lambda: all(file.exists() for file in files))
        first = {pod.metadata.uid for pod in (await pods(plane)).values()}
        os.kill(int(files[0].read_text()), signal.SIGKILL)

        # Only the rank that saves is left of the first round.
        async def one_is_left() -> bool:
            old = [name for name, pod in (await pods(plane)).items() if pod.metadata.uid in first]
            return old == ["team-worker-1"] and (folder / "team-worker-1.saving").exists()

        await wait_until(one_is_left)
        # The operator has reconciled the job since then: it has observed this change.
        edited = await plane.client.patch(PyTorchJob, KEY, {"spec": {"runPolicy": {"backoffLimit": 9}}})

        async def observed() -> bool:
            status = (await plane.client.get(PyTorchJob, KEY)).status
            return status.observed_generation == edited.metadata.generation

        await wait_until(observed)
        assert [name for name, pod in (await pods(plane)).items() if pod.metadata.uid not in first] == []
        (folder / "saved").touch()

        async def has_ended() -> bool:
            return (await plane.client.get(PyTorchJob, KEY)).status.finished

        await wait_until(has_ended)
        status = (await plane.client.get(PyTorchJob, KEY)).status
    assert status.holds(ConditionType.SUCCEEDED)
    assert (status.restarts, status.ledger.round) == (1, 1)
    assert {file.name: file.read_text() for file in folder.glob("*.met")} == {f"{name}.met": "" for name in names}

"""Twenty faults on the embedded plane: each is recorded, and its bundle plays with the same first rank and the same rule."""

import asyncio
import base64
import os
import signal
import subprocess
import sys
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from gangline.api.kubeflow.training import DRILL_ANNOTATION
from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.cli.drill.timeline import is_running, last_report
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.replay.bundle import JobBundle
from gangline.replay.bundle_file import encode_bundle
from gangline.replay.recording import Recording, RecordRequest
from gangline.summary.job_state import is_finished
from gangline.summary.objects import PODS
from gangline.summary.replicas import list_replicas, replica_name
from gangline.why.diagnosis.case import JobSnapshot
from support.cases.replay_faults import CASES, LINKED, SECRET_NAME, SECRETS, ReplayCase
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800), pytest.mark.xdist_group("replay")]

CLOCK = SystemClock()
DEADLINE = 300.0
"""Long: the machine may be busy with other tests."""
AT_ONCE = 3
NEEDED = 18
NODE = NodeSettings(
    size_period=timedelta(milliseconds=100),
    memory_period=timedelta(milliseconds=100),
    progress_period=timedelta(milliseconds=100),
)


class Played(NamedTuple):
    """A recorded fault, its bundle, and what the replay printed."""

    bundle: JobBundle
    file: Path
    output: str

    @property
    def is_same(self) -> bool:
        return any(line.startswith("replayed:") and line.endswith("the same") for line in self.output.splitlines())


async def failed_job(client: Client, case: ReplayCase, folder: Path) -> None:
    """Create the job, make its fault, and wait until it has failed."""
    if case.is_file:
        (folder / f"{case.name}.py").write_text(case.program)
    command = [sys.executable, "-S", *([f"{case.name}.py"] if case.is_file else ["-c", case.program])]
    await client.create(
        client.unstructured(client.scheme.find("pytorchjobs.kubeflow.org")), case.body(command), namespace="default"
    )
    async with asyncio.timeout(DEADLINE):
        if case.fault is not None:
            await inject(client, case)
        while True:
            job = await find_job(client, "default", case.name)
            if is_finished(job.body):
                return
            await asyncio.sleep(0.1)


async def inject(client: Client, case: ReplayCase) -> None:
    while True:
        job = await find_job(client, "default", case.name)
        pods = {replica_name(job, pod): pod for pod in await list_replicas(client, job)}
        reports = "progress" in case.program
        if len(pods) == 3 and all(is_running(pod) and (last_report(pod) or not reports) for pod in pods.values()):
            break
        await asyncio.sleep(0.1)
    annotations = {DRILL_ANNOTATION: msgspec.json.encode(case.request()).decode()}
    victim = pods[case.replica]["metadata"]
    await client.patch(PODS, Key("default", victim["name"]), {"metadata": {"annotations": annotations}})


async def record(client: Client, case: ReplayCase, folder: Path) -> tuple[JobBundle, Path]:
    async def as_it_is(snapshot: JobSnapshot) -> JobSnapshot:
        return snapshot

    bundle = await Recording(client, RecordRequest(case.name, "default", "test"), CLOCK, as_it_is).bundle()
    file = folder / f"{case.name}.bundle"
    file.write_bytes(encode_bundle(bundle))
    return bundle, file


async def record_all(folder: Path) -> dict[str, tuple[JobBundle, Path]]:
    bundles: dict[str, tuple[JobBundle, Path]] = {}
    slots = asyncio.Semaphore(AT_ONCE)
    settings = LocalSettings(folder=folder, logs=folder / "pods", node=NODE)
    async with embedded_plane(settings, CLOCK) as plane:
        client = plane.client
        secret = {
            "metadata": {"name": SECRET_NAME},
            "data": {"key": base64.b64encode(SECRETS["secret"].encode()).decode()},
        }
        await client.create(client.unstructured(client.scheme.find("secrets")), secret, namespace="default")

        async def one(case: ReplayCase) -> None:
            async with slots:
                await failed_job(client, case, folder)
                bundles[case.name] = await record(client, case, folder)

        # A fault of the node is one of all jobs on it: these come alone.
        async with asyncio.TaskGroup() as group:
            for case in CASES:
                if not case.of_node:
                    group.create_task(one(case))
        for case in CASES:
            if case.of_node:
                await one(case)
    return bundles


async def play(file: Path, folder: Path) -> str:
    environ = {**os.environ, "GANGLINE_HOME": str(folder / "home"), "NO_COLOR": "1"}
    environ.pop("KUBECONFIG", None)
    words = [sys.executable, "-m", "gangline", "run", str(file), "--timeout", f"{DEADLINE:g}s", "--no-dashboard"]
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=folder / "elsewhere",
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return output.decode()


async def play_all(folder: Path) -> dict[str, Played]:
    bundles = await record_all(folder)
    for case in CASES:
        (folder / f"{case.name}.py").unlink(missing_ok=True)
    (folder / "elsewhere").mkdir()
    slots, played = asyncio.Semaphore(AT_ONCE), dict[str, Played]()

    async def one(name: str, bundle: JobBundle, file: Path) -> None:
        async with slots:
            played[name] = Played(bundle, file, await play(file, folder))

    async with asyncio.TaskGroup() as group:
        for name, (bundle, file) in bundles.items():
            group.create_task(one(name, bundle, file))
    return played


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    return asyncio.run(play_all(tmp_path_factory.mktemp("replay")))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_recording_names_who_failed_first(played: dict[str, Played], case: ReplayCase) -> None:
    bundle = played[case.name].bundle
    assert bundle.verdict.first_replica == case.first, bundle.verdict
    assert bundle.first_fault is not None
    assert bundle.first_fault.replica == case.first
    assert bundle.verdict.rule


def test_the_replays_go_as_the_recordings_did(played: dict[str, Played]) -> None:
    others = {name: one.output[-2000:] for name, one in played.items() if not one.is_same}
    assert len(played) == len(CASES) == 20
    assert len(played) - len(others) >= NEEDED, "\n\n".join(f"{name}:\n{text}" for name, text in others.items())


def test_a_program_that_fails_by_itself_needs_no_help(played: dict[str, Played]) -> None:
    for name in ("exception", "exit-three", "key-error", "linked-bug"):
        assert "did not fail by itself" not in played[name].output, played[name].output


def test_a_program_that_is_not_in_the_bundle_is_played_by_a_stand_in(played: dict[str, Played]) -> None:
    output = played["only-in-image"].output
    assert "played by a stand-in that trains nothing" in output
    assert "RuntimeError: broken weights" in output


def test_no_bundle_has_a_secret_value(played: dict[str, Played]) -> None:
    for one in played.values():
        with zipfile.ZipFile(one.file) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
        for value in SECRETS.values():
            assert value.encode() not in content
            assert base64.b64encode(value.encode()) not in content
        assert SECRET_NAME.encode() in content
        assert {"variable DB_PASSWORD of the job", f"Secret {SECRET_NAME} (key)"} <= {
            left.what for left in one.bundle.manifest.left_out
        }


def test_a_hang_is_noticed_recorded_and_played_again(tmp_path: Path) -> None:
    """As a person does it: a run in one terminal, the drill and the recording in another."""
    job = ReplayCase("hangs", LINKED.format(step=0, rank=0, fail="pass"), first="worker-1").body(
        [sys.executable, "-S", "-c", LINKED.format(step=0, rank=0, fail="pass")]
    )
    for spec in job["spec"]["pytorchReplicaSpecs"].values():
        spec["template"]["spec"]["containers"][0].pop("env", None)
    (tmp_path / "hangs.json").write_text(msgspec.json.encode(job).decode())
    environ = {**os.environ, "GANGLINE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "NO_COLOR": "1"}
    environ.pop("KUBECONFIG", None)

    def gangline(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=170, check=False
        )

    flags = ("--hung-after", "3s", "--no-dashboard")
    words = [sys.executable, "-m", "gangline", "run", "hangs.json", *flags]
    output = tmp_path / "output"
    with output.open("w") as file:
        run = subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until_blocking(lambda: "hangs  Running" in output.read_text(), seconds=60)
        drill = subprocess.Popen(
            [sys.executable, "-m", "gangline", "drill", "hangs", "--hang", "worker-1", "--for", "300s"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until_blocking(lambda: "Stalled" in gangline("describe", "hangs").stdout, seconds=120)
        recorded = gangline("record", "hangs")
        drill.send_signal(signal.SIGINT)
        drill.wait(30)
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(30)
    assert recorded.returncode == 0, recorded
    assert "fault:    worker-1: stands still at step " in recorded.stdout, recorded.stdout
    assert "why: stalled" in recorded.stdout
    played = gangline("run", "hangs.bundle", "--timeout", "150s", *flags)
    assert "the recorded hang has come again" in played.stdout, played
    assert "why: stalled, job Stalled · the same" in played.stdout, played

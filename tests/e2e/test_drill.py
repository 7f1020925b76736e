"""`gangline drill`: faults that are really provoked, what became of them, and whether `why` knows."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from gangline.api.drill import FaultKind, FaultRequest
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.drill.report import summary
from gangline.cli.drill.run import DrillRunner
from gangline.cli.drill.timeline import container_attempt, is_running, last_report
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.jobs.why import report_text
from gangline.cli.resources.lookup import find_job
from gangline.jobs.plan.recovery.classes import CauseClass, cause_class
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.summary.job_rows import progress_text
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import list_replicas
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import Diagnosis
from support.cases.why_faults import fault_job, python_command
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("drill")]

CLOCK = SystemClock()
DEADLINE = 45.0
NODE = NodeSettings(
    size_period=timedelta(milliseconds=100),
    memory_period=timedelta(milliseconds=100),
    progress_period=timedelta(milliseconds=100),
)
LASTING = python_command("import time; time.sleep(600)")
STEPS = """
import os, time
file = os.environ["CHECKPOINT"] + os.environ.get("RANK", str(os.getpid()))
step = int(open(file).read()) if os.path.exists(file) else 0
while True:
    step += 1
    with open(file + ".new", "w") as kept:
        kept.write(str(step))
    os.replace(file + ".new", file)
    print('{"progress": {"step": %d, "total": 100000}}' % step, flush=True)
    time.sleep(0.02)
"""
STRAGGLER = ("straggler", ("worker-2",))
LISTENS = """
import os, socket, time
if os.environ["RANK"] == "0":
    server = socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))
time.sleep(600)
"""
SIZED: dict[str, Any] = {
    "pod": {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]},
    "container": {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
}


class Case(NamedTuple):
    """A job, a fault, and what must come of it: the verdict, the words of it, the rule of `why`."""

    body: JSON
    fault: FaultKind
    whom: str
    code: int
    says: tuple[str, ...]
    rule: str = ""
    # Whether it reports how far it is: before the fault, and for so many seconds all must be well after it.
    reports: bool = False
    hold: float = 0.5
    seconds: float = 10.0


class Outcome(NamedTuple):
    """How a drill ended, and what `why` says then."""

    code: int
    said: str
    report: Diagnosis
    body: JSON


def torch(name: str, program: tuple[str, ...], restart: str, **more: Any) -> JSON:
    return fault_job(name, *program, kind="PyTorchJob", restart=restart, Master=1, Worker=2, **more)


def cases(folder: Path) -> list[Case]:
    checkpoint = {"env": [{"name": "CHECKPOINT", "value": f"{folder}/kept-"}]}
    return [
        Case(
            torch("killed", LASTING, "Never"),
            FaultKind.KILL,
            "worker-1",
            FAILED,
            ("worker-1 killed (", "not restarted", "job Failed", "training did not survive"),
            "killed",
        ),
        Case(
            torch("starved", LASTING, "Never"),
            FaultKind.OOM,
            "worker/0",
            FAILED,
            ("worker-0 out of memory (OOMKilled",),
            "oom-killed",
        ),
        Case(
            torch("filled", LASTING, "Never", **SIZED),
            FaultKind.DISK,
            "",
            FAILED,
            ("worker-1 out of disk (Evicted",),
            "volume-full",
        ),
        Case(
            torch("evicted", LASTING, "Never"),
            FaultKind.DISK,
            "",
            FAILED,
            ("worker-1 out of disk (Evicted",),
            "evicted",
        ),
        Case(
            torch("thrown-out", LASTING, "Never"),
            FaultKind.EVICT,
            "worker-0",
            FAILED,
            ("worker-0 evicted (Evicted", "job Failed"),
            "evicted",
        ),
        Case(
            torch("left", LASTING, "Never"),
            FaultKind.EXIT,
            "worker-1",
            FAILED,
            ("worker-1 ended (exit 1)",),
            "exit-code",
        ),
        Case(
            torch("stopped", LASTING, "OnFailure"),
            FaultKind.HANG,
            "",
            SUCCEEDED,
            ("worker-1 stood still (for 1 s)", "job Running", "training survived"),
            seconds=1.0,
        ),
        Case(
            torch("healed", python_command(STEPS), "OnFailure", container=checkpoint),
            FaultKind.KILL,
            "worker-1",
            SUCCEEDED,
            (
                "worker-1 killed (exit 137)",
                "restarted after",
                "went on at step",
                "job Running",
                "training survived",
            ),
            reports=True,
            hold=3.0,  # and twice as long until the new process has said where it is
        ),
        Case(
            torch("replaced", LASTING, "ExitCode"),
            FaultKind.OOM,
            "",
            SUCCEEDED,
            ("worker-1 out of memory (OOMKilled, exit 137)", "restarted after", "training survived"),
        ),
        Case(
            torch("clashed", python_command(LISTENS), "OnFailure"),
            FaultKind.PORT,
            "master-0",
            SUCCEEDED,
            ("master-0 killed, its port taken (exit 137, then PortClash, exit 1)", "2 others restarted too"),
        ),
    ]


async def running(client: Client, body: JSON, *, reporting: bool = False) -> ServerJob:
    """The job once all of it runs, and has said how far it is."""
    name = body["metadata"]["name"]
    async with asyncio.timeout(DEADLINE):
        while True:
            found = await find_job(client, "default", name)
            pods = await list_replicas(client, found)
            if len(pods) == 3 and all(map(is_running, pods)) and (not reporting or all(map(last_report, pods))):
                return found
            await asyncio.sleep(0.1)


async def created(client: Client, body: JSON) -> None:
    plural = f"{body['kind'].lower()}s"
    await client.create(client.unstructured(client.scheme.find(f"{plural}.kubeflow.org")), body, namespace="default")


class World(msgspec.Struct):
    """What was seen, by the name of the job."""

    outcomes: dict[str, Outcome] = {}
    refused: dict[str, str] = {}
    dry_runs: dict[str, int] = {}
    wide: str = ""
    straggler: list[tuple[str, tuple[str, ...]]] = []


class Quiet(DrillRunner):
    """A drill whose outcome is kept instead of printed."""

    said = ""

    def _print_outcome(self, job: ServerJob, story: Any, code: int) -> int:
        self.said = summary(story.outcome(code, CLOCK.monotonic()))
        return code


async def drilled(client: Client, case: Case, seconds: float = 10.0) -> Outcome:
    found = await running(client, case.body, reporting=case.reports)
    drill = Quiet(client, CLOCK, timedelta(seconds=case.hold), timedelta(seconds=DEADLINE), as_json=False)
    order = FaultRequest(id=f"drill-{found.key.name}", fault=case.fault, seconds=seconds)
    code = await drill.run(found, order, case.whom)
    report = diagnose(await collect(client, found.key.name, "default", CLOCK))
    after = await find_job(client, "default", found.key.name)
    return Outcome(code, drill.said, report, after.body)


async def play(folder: Path, world: World) -> None:
    settings = LocalSettings(folder=folder, logs=folder / "pods", node=NODE)
    async with embedded_plane(settings, CLOCK) as plane:
        client = plane.client
        await _lose(client, world)
        wanted = cases(folder)
        async with asyncio.TaskGroup() as group:
            for case in wanted:
                await created(client, case.body)
                group.create_task(_case(client, case, world))
            group.create_task(_slow(client, folder, world))
        world.wide = progress_text((await find_job(client, "default", "healed")).body)
        await _refuse(client, world)


async def _case(client: Client, case: Case, world: World) -> None:
    name = case.body["metadata"]["name"]
    world.outcomes[name] = await drilled(client, case, seconds=case.seconds)


async def _refuse(client: Client, world: World) -> None:
    """A node that is not ours is left alone, and so is a job that has ended."""
    nodes = client.unstructured(client.scheme.find("nodes"))
    info = {"status": {"nodeInfo": {"kubeletVersion": "v1.34.0"}}}
    await client.patch(nodes, Key("", "local"), info, subresource="status")
    drill = Quiet(client, CLOCK, timedelta(), timedelta(seconds=5), as_json=False)
    for name, fault in (("healed", FaultKind.KILL), ("replaced", FaultKind.BAD_NODE), ("killed", FaultKind.KILL)):
        found = await find_job(client, "default", name)
        before = [container_attempt(pod) for pod in await list_replicas(client, found)]
        try:
            world.dry_runs[name] = await drill.run(found, FaultRequest(id="refused", fault=fault), "master-0")
        except InputError as error:
            world.refused[name] = str(error)
        assert before == [container_attempt(pod) for pod in await list_replicas(client, found)]


async def _lose(client: Client, world: World) -> None:
    """First and alone: a lost node is lost to everybody."""
    lost, bad = FaultKind.NODE_LOST, FaultKind.BAD_NODE
    for name, fault, restart, whom in (
        ("lost", lost, "Never", "worker-1"),
        ("moved", lost, "OnFailure", ""),
        ("spoilt", bad, "Never", "worker-1"),
    ):
        case = Case(torch(name, LASTING, restart), fault, whom, FAILED, ())
        await created(client, case.body)
        world.outcomes[name] = await drilled(client, case, seconds=0.5)


async def _slow(client: Client, folder: Path, world: World) -> None:
    """One of three workers falls behind, and `why` sees that while it does. They begin when the drill does."""
    env = {"env": [{"name": "CHECKPOINT", "value": f"{folder}/slow-"}, {"name": "GO", "value": f"{folder}/go"}]}
    wait = "import os, time\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.01)\n"
    program = python_command(wait + STEPS)
    body = fault_job("slow", *program, kind="PyTorchJob", restart="OnFailure", container=env, Worker=3)
    await created(client, body)
    found = await running(client, body)
    drill = Quiet(client, CLOCK, timedelta(), timedelta(seconds=DEADLINE), as_json=False)
    async with asyncio.TaskGroup() as group:
        # Longer than it takes: how long that is depends on the machine.
        order = FaultRequest(id="slow", fault=FaultKind.SLOW, seconds=DEADLINE, pause=1.5)
        task = group.create_task(drill.run(found, order, "worker-2"))
        # At first another one may be behind: who was given no turn.
        while world.straggler != [STRAGGLER] and not task.done():
            report = diagnose(await collect(client, "slow", "default", CLOCK))
            world.straggler = [(cause.rule, cause.replicas) for cause in report.causes]
            if drill.answers:
                (folder / "go").touch()
            await asyncio.sleep(0.2)
        task.cancel()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World()
    asyncio.run(play(tmp_path_factory.mktemp("drill"), found))
    return found


CASES = {case.body["metadata"]["name"]: case for case in cases(Path("/"))}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_provoked_and_its_outcome_told(world: World, name: str) -> None:
    case, outcome = CASES[name], world.outcomes[name]
    assert outcome.code == case.code, outcome.said
    for words in case.says:
        assert words in outcome.said


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.rule])
def test_why_names_the_fault(world: World, name: str) -> None:
    report = world.outcomes[name].report
    assert [cause.rule for cause in report.causes] == [CASES[name].rule], report_text(report)


def test_a_taken_port_is_what_the_job_remembers(world: World) -> None:
    outcome = world.outcomes["clashed"]
    assert outcome.body["status"]["firstFailure"]["reason"] == "PortClash"
    assert "PortClash" in " ".join(outcome.report.notes)


def test_a_lost_node_is_named_and_a_job_that_may_restart_comes_back(world: World) -> None:
    lost, moved = world.outcomes["lost"], world.outcomes["moved"]
    assert lost.code == FAILED, lost.said
    assert [cause.rule for cause in lost.report.causes] == ["node-lost"], report_text(lost.report)
    assert "worker-1 lost with its node (NodeLost" in lost.said
    assert moved.code == SUCCEEDED, moved.said
    assert "3 replicas lost with their node (NodeLost" in moved.said


def test_a_bad_node_fails_what_is_on_it_by_a_cause_of_the_infrastructure(world: World) -> None:
    spoilt = world.outcomes["spoilt"]
    assert spoilt.code == FAILED, spoilt.said
    assert "worker-1 failed by its node (UnexpectedAdmissionError" in spoilt.said
    assert [cause.rule for cause in spoilt.report.causes] == ["pod-rejected"], report_text(spoilt.report)
    assert cause_class("pod-rejected", None) is CauseClass.INFRASTRUCTURE


def test_a_slow_replica_is_a_straggler(world: World) -> None:
    assert world.straggler == [STRAGGLER]


def test_progress_is_in_the_status_of_the_job(world: World) -> None:
    found = world.outcomes["healed"].body["status"]["progress"]
    assert (found["replica"], found["total"]) == ("master-0", 100000)
    assert world.wide.startswith("step ")
    assert "progress" not in world.outcomes["killed"].body["status"]


def test_what_is_not_on_a_node_of_ours_or_has_ended_is_left_alone(world: World) -> None:
    assert world.dry_runs == {"healed": SUCCEEDED}
    assert "--bad-node: would fail pods of everybody on that node" in world.refused["replaced"]
    assert "has ended (Failed)" in world.refused["killed"]


# As a person types it


def gangline(*words: str | Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


def test_a_run_in_another_terminal_is_found_and_drilled(tmp_path: Path) -> None:
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir()
    env = {
        **os.environ,
        "GANGLINE_HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "KUBECONFIG": "",
        "HOME": str(tmp_path),
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(torch("toy", LASTING, "OnFailure")))
    output = (tmp_path / "out").open("w")
    command = [sys.executable, "-m", "gangline", "run", str(file)]
    with output, subprocess.Popen(command, stdout=output, stderr=output, env=env) as process:
        try:
            wait_until_blocking(lambda: (tmp_path / "out").read_text().count("running") >= 3, seconds=DEADLINE)
            seen = gangline("get", "jobs", "--no-headers", env=env)
            used = gangline("top", "toy", "--no-headers", env=env)
            done = gangline("drill", "pytorchjob/toy", "--kill", "--hold", "300ms", "-o", "json", env=env)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
    assert seen.stdout.split()[:2] == ["PyTorchJob", "toy"]
    assert seen.stderr == "no server is running; using the run in progress\n"
    assert len(used.stdout.splitlines()) == 3, used
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["replicas"], told["ends"]) == (
        "survived",
        ["worker-1"],
        {"worker-1": ["exit 137"]},
    )
    assert "worker-1: SIGKILL to process group" in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


def test_without_a_job_the_demo_job_is_started_drilled_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    env = {
        **os.environ,
        "GANGLINE_HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "KUBECONFIG": "",
        "HOME": str(tmp_path),
    }
    done = gangline("drill", "--kill", "worker-1", "--hold", "300ms", "-o", "json", env=env)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["job"], report["verdict"], report["replicas"]) == ("linear", "survived", ["worker-1"])
    assert done.stderr.startswith("no job is named; starting the demo job, tfjob/linear\n")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_who_deletes_the_job_of_a_run_ends_it_with_103_and_those_who_watched_it(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    env = {
        **os.environ,
        "GANGLINE_HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "tmp"),
        "KUBECONFIG": "",
        "HOME": str(tmp_path),
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(torch("toy", LASTING, "OnFailure")))
    command = [sys.executable, "-m", "gangline"]
    with (
        (tmp_path / "out").open("w") as output,
        (tmp_path / "seen").open("w") as seen,
        subprocess.Popen([*command, "run", str(file)], stdout=output, stderr=output, env=env) as process,
    ):
        try:
            wait_until_blocking(lambda: (tmp_path / "out").read_text().count("running") >= 3, seconds=DEADLINE)
            with subprocess.Popen([*command, "get", "jobs", "-w"], stdout=seen, stderr=seen, env=env) as watching:
                wait_until_blocking(lambda: "Running" in (tmp_path / "seen").read_text(), seconds=DEADLINE)
                deleted = gangline("delete", "toy", env=env)
                assert process.wait(timeout=DEADLINE) == 103, (tmp_path / "out").read_text()
                assert watching.wait(timeout=DEADLINE) == 0
        finally:
            process.kill()
    assert deleted.returncode == 0, deleted.stderr
    assert (
        (tmp_path / "out")
        .read_text()
        .endswith("pytorchjob/toy  Stopped\npytorchjob/toy was deleted before it had ended\n")
    )
    assert (tmp_path / "seen").read_text().endswith("the run has ended\n")
    left = gangline("get", "jobs", "--no-headers", env=env)
    assert "the job was deleted before it had ended" in left.stdout

"""`why` on real faults: programs that really do what goes wrong, on the embedded node, all at the same time."""

import asyncio
import re
import socket
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import ServerTarget
from gangline.cli.jobs.why import report_text, with_cpu_usage, with_stacks
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.local.plane import PlaneSettings
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.testing.cluster import local_cluster
from gangline.why.collect import JobNotFound, collect
from gangline.why.diagnosis.case import DiagnosisTimeouts, JobSnapshot
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import Diagnosis
from gangline.why.diagnosis.rules.no_progress import is_silent
from gangline.why.kinds import BATCH_JOBS, PODS, WORKLOAD_KINDS
from support.cases.why_faults import (
    FAULTS_BY_NAME,
    ProvokedFault,
    can_mount,
    fault_job,
    healthy_jobs,
    provoked_faults,
)
from support.servers.real import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("why")]

DEADLINE = 90.0
CLOCK = SystemClock()
PLURALS = {one.resource.kind: one.resource for one in WORKLOAD_KINDS if one.job_kind is not None}


COMMAND = "import sys; from gangline.cli.jobs.why import why; sys.exit(why.main(sys.argv[1:], standalone_mode=False))"
TOKEN = "of-this-test"


class Typed(NamedTuple):
    """What a person sees who types `gangline why`."""

    code: int
    out: str
    err: str


class World(msgspec.Struct):
    """What was seen, by the name of the job."""

    typed: dict[str, Typed] = {}

    reports: dict[str, Diagnosis] = {}
    cases: dict[str, JobSnapshot] = {}


async def come(
    client: Client, name: str, until: Callable[[JobSnapshot], bool], patience: DiagnosisTimeouts | None = None
) -> JobSnapshot:
    """The case of a job once it has come so far; as it is, after a long wait: the tests say what is wrong with it."""
    case = await collect(client, name, "default", CLOCK, patience)
    with suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE):
            while not until(case):
                await asyncio.sleep(0.3)
                case = await collect(client, name, "default", CLOCK, patience)
    return case


async def create(client: Client, body: JSON) -> None:
    kinds: dict[str, Any] = {**PLURALS, "Pod": PODS, "ConfigMap": ConfigMap, "Job": BATCH_JOBS}
    await client.create(kinds[body["kind"]], body, namespace="default")


async def play(folder: Path, world: World) -> None:
    """Provoke everything, and look at each when it has come so far."""
    settings = LocalSettings(
        folder=folder,
        logs=folder / "pods",
        plane=PlaneSettings(token=TOKEN),
        node=NodeSettings(size_period=timedelta(milliseconds=500)),
    )
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        wrong = provoked_faults(taken, free_ports(1)[0])
        well = [(_placed(body, folder), until) for body, until, _ in healthy_jobs()]
        async with embedded_plane(settings, CLOCK) as plane, asyncio.TaskGroup() as group:
            for fault in wrong:
                for body in fault.prerequisites:
                    await create(plane.client, body)
            for body in (*(fault.body for fault in wrong), *(body for body, _ in well)):
                await create(plane.client, body)
            for name, until in (
                *((one.name, one.is_ready) for one in wrong),
                *((b["metadata"]["name"], u) for b, u in well),
            ):
                group.create_task(_look(plane.client, name, until, world))
            group.create_task(_type(plane.client, plane.access, folder, world))
            group.create_task(_hang(plane, folder, world))
            group.create_task(_owned(plane.client, world))


async def _look(client: Client, name: str, until: Callable[[JobSnapshot], bool], world: World) -> None:
    world.cases[name] = await come(client, name, until)
    world.reports[name] = diagnose(world.cases[name])


async def _type(client: Client, access: PlaneAccess, folder: Path, world: World) -> None:
    """The command itself, on a job that failed, one that runs, and one that is not there."""
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(access.kubeconfig()))
    await come(client, "oom", lambda case: case.job.state == "Failed")
    await come(client, "runs", lambda case: case.job.state == "Running" and all(one.is_up for one in case.replicas))
    for words in ("oom", "tfjob/oom -o json", "runs", "nobody", "deployment/oom"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", COMMAND, *words.split(), "--kubeconfig", str(file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        world.typed[words] = Typed(process.returncode or 0, out.decode(), err.decode())


async def _hang(plane: LocalCluster, folder: Path, world: World) -> None:
    """It says something, then waits for what never comes. Its CPU is measured, as the command does on this machine."""
    code = "import threading; print('waiting', flush=True); threading.Event().wait()"
    busy = "print('working', flush=True)\nwhile True: pass"
    await create(plane.client, fault_job("hangs", sys.executable, "-S", "-c", code, Worker=2))
    await create(plane.client, fault_job("works", sys.executable, "-S", "-c", busy))
    patience = DiagnosisTimeouts(hung_after=timedelta(seconds=2))
    for name in ("hangs", "works"):
        case = await come(plane.client, name, is_silent, patience)
        place = ServerTarget(plane.connection, "default", folder)
        measured = await with_stacks(place, await with_cpu_usage(plane.client, place, case))
        world.reports[name] = diagnose(measured)
        if name == "hangs":
            world.reports["unmetered"] = diagnose(case)
        else:
            await plane.client.delete(PLURALS["TFJob"], Key("default", name))


async def _owned(client: Client, world: World) -> None:
    """A Job of Kubernetes' own, found by the owner chain."""
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "command": ["sh", "-c", "exit 7"]}],
        }
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "convert"},
        "spec": {"template": template},
    }
    made: JSON = await client.create(BATCH_JOBS, body, namespace="default")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "convert",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    labels = {"batch.kubernetes.io/job-name": "convert", "job-name": "convert"}
    metadata = {"name": "convert-x7k2p", "labels": labels, "ownerReferences": [owner]}
    await create(client, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template})
    status = {"status": {"startTime": "2026-01-01T00:00:00Z", "active": 1}}
    await client.patch(BATCH_JOBS, Key("default", "convert"), status, subresource="status")
    case = await come(
        client,
        "job.batch/convert",
        lambda case: any(one.pod.status.phase == "Failed" for one in case.replicas),
    )
    world.reports["convert"] = diagnose(case)


def _placed(body: JSON, folder: Path) -> JSON:
    text = msgspec.json.encode(body).decode().replace("{folder}", str(folder))
    placed: JSON = msgspec.json.decode(text)
    return placed


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World()
    asyncio.run(play(tmp_path_factory.mktemp("why"), found))
    return found


@pytest.mark.parametrize("name", FAULTS_BY_NAME)
def test_fault_is_found(world: World, name: str) -> None:
    fault: ProvokedFault = FAULTS_BY_NAME[name]
    report = world.reports[name]
    told = report_text(report)
    assert report.causes, told
    assert report.causes[0].rule == fault.rule, told
    assert sorted(report.causes[0].replicas) == sorted(fault.replicas), told
    for words in fault.expected_words:
        assert words in told
    assert report.next, "there is always a next step"
    assert len(report.causes) == 1, told


@pytest.mark.parametrize(("name", "note"), [(body["metadata"]["name"], note) for body, _, note in healthy_jobs()])
def test_nothing_is_found_in_a_healthy_job(world: World, name: str, note: str) -> None:
    report = world.reports[name]
    told = report_text(report)
    assert report.healthy, told
    assert "Nothing is wrong" in told
    assert note in " ".join(report.notes)


def test_hang_is_found_where_cpu_can_be_read(world: World) -> None:
    report = world.reports["hangs"]
    assert [cause.rule for cause in report.causes] == ["hung"]
    assert report.evidence[0] == "both replicas wait for a lock (<string>:1)"
    assert report.next[0] == "see where every rank stands: gangline stacks hangs"


def test_silent_program_that_computes_does_not_hang(world: World) -> None:
    assert world.reports["works"].healthy


def test_silence_alone_is_no_hang(world: World) -> None:
    assert world.reports["unmetered"].healthy


def test_job_of_kubernetes_itself_is_explained_by_the_owner_chain(world: World) -> None:
    report = world.reports["convert"]
    assert (report.kind, report.causes[0].rule) == ("Job", "exit-code")
    assert "exit code 7" in report.cause


def test_command_says_one_cause_first_and_exits_0(world: World) -> None:
    typed = world.typed["oom"]
    assert (typed.code, typed.err) == (0, "")
    # The same, and what is to be typed next reaches this server.
    assert re.sub(r"(?<=delete )--kubeconfig \S+ ", "", typed.out) == report_text(world.reports["oom"])
    assert re.search(r"gangline delete --kubeconfig \S+ tfjob/oom$", typed.out, re.MULTILINE)
    lines = typed.out.splitlines()
    assert lines[0] == "TFJob default/oom is Failed."
    assert lines[2].startswith("Cause     worker-0 was killed for using too much memory")


def test_command_speaks_json_to_programs(world: World) -> None:
    typed = world.typed["tfjob/oom -o json"]
    found = msgspec.json.decode(typed.out)
    assert found["cause"] == found["causes"][0]["cause"] == world.reports["oom"].cause
    assert found["causes"][0]["rule"] == "oom-killed"
    assert found["evidence"]
    assert found["next"]
    assert found["healthy"] is False


def test_command_exits_3_where_nothing_is_wrong_102_where_nothing_is_and_1_for_bad_input(
    world: World,
) -> None:
    assert world.typed["runs"].code == 3
    assert "Nothing is wrong." in world.typed["runs"].out
    nobody = world.typed["nobody"]
    assert (nobody.code, nobody.out) == (102, "")
    assert nobody.err.startswith("error: there is no job nobody of any kind in namespace default")
    assert world.typed["deployment/oom"].code == 1


def test_all_faults_could_be_provoked_here() -> None:
    assert len(FAULTS_BY_NAME) >= 25
    if not can_mount():
        pytest.skip("mounts of one's own are not permitted here: disk-full and read-only were not provoked")


# Nobody looks after jobs


async def test_job_that_nobody_looks_after_says_whether_it_is_the_spec_or_the_operator() -> None:
    async with local_cluster() as plane:
        await _lenient_definition(plane.client)
        wrong = fault_job("wrong", "true")
        wrong["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["name"] = "trainer"
        for body in (wrong, fault_job("alone", "true")):
            await plane.client.create(PLURALS["TFJob"], body, namespace="default")
        impatient = DiagnosisTimeouts(unnoticed_after=timedelta())
        invalid = diagnose(await collect(plane.client, "wrong", "default", CLOCK, impatient))
        unattended = diagnose(await collect(plane.client, "tfjob/alone", "default", CLOCK, impatient))
        fresh = diagnose(await collect(plane.client, "alone", "default", CLOCK))
        with pytest.raises(JobNotFound, match="job nobody"):
            await collect(plane.client, "nobody", "default", CLOCK)
        assert not (await plane.client.list(Pod, Selector(namespace="default"))).items
    assert [cause.rule for cause in invalid.causes] == ["spec-invalid"]
    assert 'no container named "tensorflow"' in invalid.cause
    assert [cause.rule for cause in unattended.causes] == ["no-operator"]
    assert fresh.healthy
    assert "nobody has looked at it yet" in fresh.notes[0]


async def _lenient_definition(client: Client) -> None:
    """As in clusters whose definitions check nothing."""
    from gangline.operator.definitions import CRDS

    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": schema,
        "subresources": {"status": {}},
    }
    names = {"kind": "TFJob", "listKind": "TFJobList", "plural": "tfjobs", "singular": "tfjob"}
    body = {
        "metadata": {"name": "tfjobs.kubeflow.org"},
        "spec": {"group": "kubeflow.org", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    await client.create(CRDS, body)
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await client.list(PLURALS["TFJob"], Selector(namespace="default"))
            except Exception:
                await asyncio.sleep(0.05)
            else:
                return

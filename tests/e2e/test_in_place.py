"""Restart in place on our own node: real processes, whose pods and addresses stay."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.core import Event, Pod, Service
from gangline.api.in_place import IN_PLACE_ANNOTATION, IN_PLACE_REASON
from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, ConditionType, JobStatus
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.node.options import check_network
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose
from support.cases.why_faults import fault_job, python_command
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("recovery")]

SIZE = 4
TEAM = """
import os, pathlib, socket, sys, time
folder, rank, size = pathlib.Path(sys.argv[1]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
first = not (folder / f"{rank}.1").exists()
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
        for peer in peers:
            peer.sendall(b"go")
else:
    while True:
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.02)
    assert peer.recv(2) == b"go"
part = folder / f"{rank}.part"
part.write_text(f"{os.getpid()} {address[0]}:{address[1]} {time.time()}")
part.rename(folder / f"{rank}.{1 if first else 2}")
if first:
    while rank != 2 or not (folder / "fail").exists():
        time.sleep(0.02)
    (folder / "failed").write_text(str(time.time()))
    sys.exit(42)
"""
"""Ranks that meet at the master. In the first team rank 2 fails, and its peers would never notice."""
RULE = {"when": {"exitCodes": [42]}, "then": "RestartJob"}


class Start(NamedTuple):
    """One process of a rank, once its team had met."""

    pid: int
    address: str
    time: float


class Played(NamedTuple):
    """A job that has ended: its pods and addresses before the failure and at the end."""

    status: JobStatus
    before: Mapping[str, Pod]
    after: Mapping[str, Pod]
    addresses_before: Mapping[str, str]
    addresses_after: Mapping[str, str]
    starts: tuple[tuple[Start, ...], tuple[Start, ...]]
    failed_at: float
    events: tuple[Event, ...]
    report: Any

    @property
    def seconds(self) -> float:
        """From the failure to the moment when the last rank had met its new team."""
        return max(start.time for start in self.starts[1]) - self.failed_at


def team_job(name: str, folder: Path, recovery: JSON) -> JSON:
    command = (*python_command(TEAM), str(folder))
    return fault_job(name, *command, kind="PyTorchJob", run={"recovery": recovery}, Master=1, Worker=SIZE - 1)


async def pods_of(client: Client, job: str) -> dict[str, Pod]:
    pods = (await client.list(Pod, Selector("default"))).items
    return {pod.metadata.name: pod for pod in pods if pod.metadata.name.startswith(f"{job}-")}


async def addresses_of(client: Client, job: str) -> dict[str, str]:
    services = (await client.list(Service, Selector("default"))).items
    mine = [service for service in services if service.metadata.name.startswith(f"{job}-")]
    return {service.metadata.name: service.metadata.annotations[ADDRESSES_ANNOTATION] for service in mine}


def read_starts(folder: Path, number: int) -> tuple[Start, ...]:
    texts = [(folder / f"{rank}.{number}").read_text().split() for rank in range(SIZE)]
    return tuple(Start(int(pid), address, float(time)) for pid, address, time in texts)


async def play(client: Client, name: str, folder: Path, recovery: JSON) -> Played:
    key = Key("default", name)
    await client.create(PyTorchJob, team_job(name, folder, recovery), namespace="default")
    await wait_until(lambda: all((folder / f"{rank}.1").exists() for rank in range(SIZE)))
    before, addresses_before = await pods_of(client, name), await addresses_of(client, name)
    (folder / "fail").touch()

    async def has_ended() -> bool:
        return (await client.get(PyTorchJob, key)).status.finished

    await wait_until(has_ended, seconds=90)
    status = (await client.get(PyTorchJob, key)).status
    await wait_until(lambda: all((folder / f"{rank}.2").exists() for rank in range(SIZE)))

    async def events_of() -> tuple[Event, ...]:
        events = (await client.list(Event, Selector("default"))).items
        mine = tuple(event for event in events if event.regarding.name == name)
        return mine if any(event.reason == "PyTorchJobSucceeded" for event in mine) else ()

    events = await wait_until(events_of)
    return Played(
        status,
        before,
        await pods_of(client, name),
        addresses_before,
        await addresses_of(client, name),
        (read_starts(folder, 1), read_starts(folder, 2)),
        float((folder / "failed").read_text()),
        events,
        diagnose(await collect(client, f"pytorchjob/{name}", "default", SystemClock())),
    )


async def play_both(folder: Path) -> dict[str, Played]:
    settings = LocalSettings(folder=folder, logs=folder / "logs")
    policies: dict[str, JSON] = {
        "same": {"inPlace": True, "rules": [RULE]},
        "anew": {"rules": [RULE]},
    }
    for name in policies:
        (folder / name).mkdir()
    async with embedded_plane(settings, SystemClock()) as plane, asyncio.TaskGroup() as group:
        teams = {
            name: group.create_task(play(plane.client, name, folder / name, policy))
            for name, policy in policies.items()
        }
    return {name: team.result() for name, team in teams.items()}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """A team that restarts in place, and one that gets new pods, at the same time on one plane."""
    return asyncio.run(play_both(tmp_path_factory.mktemp("plane")))


def test_pods_and_addresses_stay_and_every_process_is_new(played: dict[str, Played]) -> None:
    team = played["same"]
    assert team.status.holds(ConditionType.SUCCEEDED), team.status
    assert {name: pod.metadata.uid for name, pod in team.after.items()} == {
        name: pod.metadata.uid for name, pod in team.before.items()
    }
    assert [pod.status.pod_ip for pod in team.after.values()] == [pod.status.pod_ip for pod in team.before.values()]
    assert len(team.addresses_before) == SIZE
    assert team.addresses_after == team.addresses_before
    first, second = team.starts
    assert {start.address for start in first} == {start.address for start in second}
    assert not {start.pid for start in first} & {start.pid for start in second}
    assert {pod.metadata.annotations[IN_PLACE_ANNOTATION] for pod in team.before.values()} == {"0"}
    for pod in team.after.values():
        (container,) = pod.status.container_statuses
        assert container.restart_count == 1
        assert IN_PLACE_ANNOTATION not in pod.metadata.annotations, "the job has ended"


def test_the_node_ends_the_peers_before_the_first_one_starts_again(played: dict[str, Played]) -> None:
    ends, starts = [], []
    for name, pod in played["same"].after.items():
        (container,) = pod.status.container_statuses
        end, again = container.last_state.terminated, container.state.terminated or container.state.running
        assert end is not None
        assert again is not None
        assert end.reason == ("Error" if name == "same-worker-1" else IN_PLACE_REASON)
        assert end.finished_at is not None
        assert again.started_at is not None
        ends.append(end.finished_at)
        starts.append(again.started_at)
    assert max(ends) <= min(starts)


def test_it_is_one_restart_and_the_first_failing_rank_is_right(played: dict[str, Played]) -> None:
    for team, restarts in ((played["same"], 0), (played["anew"], 1)):
        status = team.status
        assert (status.restarts, status.ledger.round, status.ledger.in_place) == (1, restarts, 0)
        assert status.ledger.restarting_in_place is None
        assert status.first_failure is not None
        assert (status.first_failure.replica, status.first_failure.rank, status.first_failure.exit_code) == (
            "worker-1",
            2,
            42,
        )


def test_status_events_and_why_say_so(played: dict[str, Played]) -> None:
    team = played["same"]
    assert team.status.recovery is not None
    message = team.status.recovery.message
    assert message.startswith("restarted in place because worker-1 (rank 2)"), message
    events = {event.reason: event.note for event in team.events}
    assert events["PyTorchJobRestarting"] == f"job same {message}"
    assert "all 4 replicas run again in the same pods" in events["RestartedInPlace"]
    assert any("restarted in place because" in line for line in [*team.report.notes, *team.report.evidence])
    assert "in place" not in (played["anew"].status.recovery or team.status.recovery).message


def test_without_the_field_the_team_gets_new_pods(played: dict[str, Played]) -> None:
    team = played["anew"]
    assert team.status.holds(ConditionType.SUCCEEDED)
    assert not {pod.metadata.uid for pod in team.before.values()} & {pod.metadata.uid for pod in team.after.values()}
    assert not any(IN_PLACE_ANNOTATION in pod.metadata.annotations for pod in team.before.values())


def test_how_long_it_takes(played: dict[str, Played], capsys: pytest.CaptureFixture[str]) -> None:
    """Prints both; both include the 3 s in which a verdict waits for an earlier failure."""
    with capsys.disabled():
        print(f"\nin place: {played['same'].seconds:.2f} s, new pods: {played['anew'].seconds:.2f} s")
    assert played["same"].seconds > 0


def test_the_ledger_sums_to_the_time_of_all_replicas(played: dict[str, Played]) -> None:
    goodput = played["same"].status.goodput
    assert goodput is not None
    elapsed = (goodput.until - goodput.since).total_seconds()
    assert sum(goodput.seconds.values()) == SIZE * elapsed


async def test_pods_with_networks_of_their_own_keep_their_addresses(tmp_path: Path) -> None:
    try:
        check_network()
    except InputError as error:
        pytest.skip(str(error))
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "logs", node=NodeSettings(network="isolated"))
    files = tmp_path / "files"
    files.mkdir()
    async with embedded_plane(settings, SystemClock()) as plane:
        team = await play(plane.client, "alone", files, {"inPlace": True, "rules": [RULE]})
    assert team.status.holds(ConditionType.SUCCEEDED)
    before = {name: (pod.metadata.uid, pod.status.pod_ip) for name, pod in team.before.items()}
    assert {name: (pod.metadata.uid, pod.status.pod_ip) for name, pod in team.after.items()} == before
    assert len({address for _, address in before.values()}) == SIZE

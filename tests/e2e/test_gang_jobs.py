"""Jobs whose gang is placed by our own scheduler: the operator's part, on an embedded API server.

The test plays the scheduler and the kubelets: it says which pods run and whether there is room, and writes what the
state machine makes of that.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gangline.api.codec.codec import to_json
from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import MPIJOB, MPIJob
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheduling import QUEUES, PodGroup, PodGroupState
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.errors import Invalid, NotFound
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import create_crds
from gangline.operator.engine import enabled_frameworks, scheme_of
from gangline.operator.settings import OperatorSettings
from gangline.scheduler.gangs.phase import (
    GangObservation,
    LostMember,
    MemberStatus,
    PlacementAttempt,
    next_state,
    podgroup_status,
)
from support.waiting import wait_until

CLOCK = SystemClock()
KEY = Key("default", "job")
SETTINGS = OperatorSettings(kinds=("MPIJob",), site=Site(gang_scheduler=GanglineScheduler()), workers=1)


@asynccontextmanager
async def plane() -> AsyncIterator[Client]:
    """A server with our kinds and the operator, and nobody who runs pods."""
    wanted = enabled_frameworks(SETTINGS)
    async with (
        Store() as store,
        control_plane(store, PlaneSettings(), CLOCK) as server,
        HttpTransport(server.connection) as transport,
        asyncio.TaskGroup() as group,
    ):
        client = Client(transport, scheme=scheme_of(wanted))
        await create_crds(client, CLOCK, [MPIJOB])
        running = group.create_task(run_engine(client, SETTINGS, wanted, CLOCK))
        yield client
        running.cancel()


def mpi_job() -> JSON:
    def role(count: int) -> JSON:
        container = {"name": "mpi", "image": "none", "command": ["true"]}
        return {"replicas": count, "template": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": KEY.name, "namespace": KEY.namespace},
        "spec": {"mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(2)}},
    }


class Play:
    """The scheduler and the kubelets, one step at a time."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.phases: list[str] = []
        self._known: dict[str, MemberStatus] = {}

    async def pods(self) -> dict[str, Pod]:
        found = await self.client.list(Pod, Selector(namespace=KEY.namespace))
        return {pod.metadata.name: pod for pod in found.items}

    async def group(self) -> PodGroup | None:
        try:
            return await self.client.get(PodGroup, KEY)
        except NotFound:
            return None

    async def all_made(self, but: frozenset[str] = frozenset()) -> dict[str, Pod]:
        """All three pods, none of which is one of these."""

        async def made() -> dict[str, Pod] | None:
            pods = await self.pods()
            fresh = not but & {pod.metadata.uid for pod in pods.values()}
            return pods if len(pods) == 3 and fresh else None

        found: dict[str, Pod] = await wait_until(made)
        return found

    async def run(self, *names: str) -> None:
        for name in names:
            body = {"status": {"phase": "Running"}}
            await self.client.patch(Pod, Key(KEY.namespace, name), body, subresource="status")

    async def probe(self, attempt: PlacementAttempt | None = None) -> PodGroupState:
        """Look until the state is at rest, and write it down."""
        pods, group = await self.pods(), await self.group()
        assert group is not None
        here = {name: _facts(pod) for name, pod in pods.items()}
        gone = tuple(
            LostMember(name, before.role, before.index) for name, before in self._known.items() if name not in here
        )
        state, before = group.status.state, None
        while state is not before:
            before = state
            seen = GangObservation(
                state=state,
                min_members=group.spec.min_member,
                members=tuple(here.values()),
                lost_members=gone,
                last_attempt=attempt,
                now=CLOCK.now(),
            )
            state = next_state(seen)
            if state.phase != before.phase:
                self.phases.append(state.phase)
            body = {"status": to_json(podgroup_status(seen, state))}
            await self.client.patch(PodGroup, KEY, body, subresource="status")
        self._known = {**self._known, **here}
        return state


def _facts(pod: Pod) -> MemberStatus:
    labels = pod.metadata.labels
    return MemberStatus(
        uid=pod.metadata.uid,
        name=pod.metadata.name,
        role=labels[REPLICA_TYPE],
        index=int(labels.get(REPLICA_INDEX, "0")),
        phase=pod.status.phase,
        # Whoever runs has a node; when it got it is not told.
        node="node" if pod.status.phase == "Running" else "",
    )


async def test_an_mpi_job_goes_through_all_phases_and_starts_anew_without_room() -> None:
    async with plane() as client:
        play = Play(client)
        await client.create(MPIJob, mpi_job())
        pods = await play.all_made()
        group = await play.group()
        assert group is not None
        assert group.spec.min_member == 3
        assert {pod.spec.scheduler_name for pod in pods.values()} == {"gangline"}
        assert all(int(group.metadata.resource_version) < int(pod.metadata.resource_version) for pod in pods.values())
        await play.run(*pods)
        assert (await play.probe()).phase == "Running"

        # A member is killed; the operator makes another, for which there is no room.
        await client.delete(Pod, Key(KEY.namespace, "job-worker-1"))
        await play.probe()
        again = await play.all_made(frozenset({pods["job-worker-1"].metadata.uid}))
        no_room = PlacementAttempt(failed=True, message="0/2 nodes: 2 lack cpu")
        assert (await play.probe(no_room)).reason == "NotEnoughResources"

        # All start anew, once, and nobody is blamed.
        fresh = await play.all_made(frozenset(pod.metadata.uid for pod in again.values()))
        assert (await play.probe(no_room)).phase == "Pending"
        await play.run(*fresh)
        assert (await play.probe()).phase == "Running"
        assert {pod.metadata.uid for pod in (await play.pods()).values()} == {
            pod.metadata.uid for pod in fresh.values()
        }
        assert play.phases == ["Pending", "Running", "Recovering", "Unschedulable", "Pending", "Running"]

        async def counted_rounds() -> MPIJob | None:
            found = await client.get(MPIJob, KEY)
            return found if found.status.ledger.round else None

        # Pods are made before the status of their job is written.
        job = await wait_until(counted_rounds)
        assert (job.status.restarts, job.status.ledger.round) == (0, 1)


async def test_a_job_that_is_suspended_and_resumed_has_a_new_group() -> None:
    async with plane() as client:
        play = Play(client)
        await client.create(MPIJob, mpi_job())
        first = await play.all_made()
        before = await play.group()
        await play.run(*first)
        await play.probe()
        assert before is not None

        async def idle() -> bool:
            return not await play.pods() and await play.group() is None

        await client.patch(MPIJob, KEY, {"spec": {"runPolicy": {"suspend": True}}})
        await wait_until(idle)
        await client.patch(MPIJob, KEY, {"spec": {"runPolicy": {"suspend": False}}})
        await play.all_made()
        after = await play.group()
        assert after is not None
        assert after.metadata.uid != before.metadata.uid
        assert after.status.state == PodGroupState()
        assert (await play.probe()).phase == "Pending"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"kind": "PodGroup", "spec": {"minMember": 0}},
            "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1",
        ),
        (
            {"kind": "Queue", "spec": {"weight": 0}},
            "spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1",
        ),
    ],
    ids=["group", "queue"],
)
async def test_a_group_or_queue_that_cannot_be_meant_is_refused(body: JSON, told: str) -> None:
    async with plane() as client:
        kind = client.unstructured(client.scheme.of(PodGroup) if body["kind"] == "PodGroup" else QUEUES)
        with pytest.raises(Invalid, match="should be greater than or equal to 1") as refused:
            await client.create(
                kind, {**body, "metadata": {"name": "g"}}, namespace="default" if kind.namespaced else ""
            )
        assert told in str(refused.value)


async def test_users_see_phase_and_counts_in_a_table() -> None:
    async with plane() as client:
        play = Play(client)
        await client.create(MPIJob, mpi_job())
        await play.run(*await play.all_made())
        await play.probe()
        table = await _table(client)
        shown = {
            column["name"]: cell
            for column, cell in zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)
        }
        assert (shown["Phase"], shown["Min"], shown["Running"]) == ("Running", 3, 3)


async def _table(client: Client) -> JSON:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    path = "/apis/scheduling.gangline.dev/v1alpha1/namespaces/default/podgroups"
    return await client.requests.call_typed(Request("GET", path, accept=accept), dict[str, Any])

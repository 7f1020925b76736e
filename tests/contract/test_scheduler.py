"""The running scheduler end to end, on a real kube-apiserver and on ours: places, the life cycle, faults."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.api.scheduler_views import Node, Pod
from gangline.api.scheduling import PodGroup, Queue
from gangline.base.tracing import AttributeValue, set_tracer
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import Unreachable
from gangline.kube.pods import PodSubresources
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.scheduler.scheduler import SCHEME
from gangline.scheduler.types.cycle import SchedulerPolicy
from support.cluster.scheduler_env import (
    WAIT_SECONDS,
    InterceptedTransport,
    SchedulerEnv,
    error_response,
    is_binding,
    scheduler_env,
)


@pytest.fixture
async def town(server: Connection) -> AsyncIterator[SchedulerEnv]:
    async with scheduler_env(server) as town:
        yield town


@pytest.fixture
async def transport(server: Connection) -> AsyncIterator[InterceptedTransport]:
    async with InterceptedTransport(server) as transport:
        yield transport


@pytest.fixture
def meddled(transport: InterceptedTransport) -> Client:
    """A client of the same server whose requests can be meddled with."""
    return Client(transport, scheme=SCHEME)


# The life cycle


async def test_a_gang_goes_through_all_rows_of_the_table(town: SchedulerEnv) -> None:
    node = await town.create_node("a", cpu="4")
    async with town.run_scheduler():
        # T0
        await town.create_group("g", 4)
        first = await town.wait.phase("g", "Pending", "NotEnoughTasks")
        state = first.status.state
        assert state.last_probe_time == state.last_transition_time
        # T1
        names = [f"g-{number}" for number in range(4)]
        for number, name in enumerate(names):
            await town.create_pod(name, "g", role="worker", index=number)
        await town.pods.run_when_bound(names)
        running = await town.wait.phase("g", "Running", "")
        assert running.status.state.message == "4/4 members running"
        assert running.status.running == 4
        # T3
        await town.pods.set_phase("g-2", "Failed", exit_code=137)
        broken = await town.wait.phase("g", "Recovering", "PodFailed")
        assert broken.status.state.message.startswith("3/4 members running, worker-2 failed (exit 137)")
        # T4
        await town.pods.delete_now("g-2")
        await town.create_pod("g-2", "g", role="worker", index=2)
        await town.pods.run_when_bound(["g-2"])
        await town.wait.phase("g", "Running", "")
        # T5: nobody may use the node any more.
        await town.pods.delete_now("g-1")
        await town.wait.phase("g", "Recovering")
        await town.client.patch(Node, Key("", node), {"spec": {"unschedulable": True}})
        await town.create_pod("g-1", "g", role="worker", index=1)
        stuck = await town.wait.phase("g", "Unschedulable", "NotEnoughResources")
        assert "nodes: " in stuck.status.state.message
        # T6
        for name in names:
            await town.pods.delete_now(name)
        again = await town.wait.phase("g", "Pending")
        assert again.status.state.reason in ("PodDeleted", "NotEnoughTasks")
        # T1 once more
        await town.client.patch(Node, Key("", node), {"spec": {"unschedulable": False}})
        for number, name in enumerate(names):
            await town.create_pod(name, "g", role="worker", index=number)
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
        for reason, kind in (("Recovering", "Warning"), ("Unschedulable", "Warning"), ("Running", "Normal")):
            assert {event.type for event in await town.wait.events(reason)} == {kind}


async def test_an_unschedulable_gang_runs_again_when_a_place_is_free(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        names = await town.create_gang("g", 2)
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
        await town.pods.delete_now("g-1")
        await town.wait.phase("g", "Recovering")
        # Somebody else is faster, and leaves later.
        thief = await town.create_pod("thief", cpu="1")
        await town.wait.bound("thief")
        await town.create_pod("g-1", "g", role="worker", index=1)
        await town.wait.phase("g", "Unschedulable", "NotEnoughResources")
        await town.pods.delete_now(thief.metadata.name)
        await town.pods.run_when_bound(["g-1"])
        await town.wait.phase("g", "Running", "")


async def test_a_kubelets_refusal_of_a_member_is_named_and_one_pod_replaces_it(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        names = await town.create_gang("g", 2)
        for name in names:
            await town.wait.bound(name)
        await town.pods.set_phase("g-0")
        await town.pods.set_phase("g-1", "Failed", reason="OutOfcpu")
        broken = await town.wait.phase("g", "Recovering", "PodFailed")
        assert f"g-1 rejected on {town.namespace}-a (OutOfcpu)" in broken.status.state.message
        await town.pods.delete_now("g-1")
        await town.create_pod("g-1", "g", role="worker", index=1)
        await town.pods.run_when_bound(["g-1"])
        await town.wait.phase("g", "Running", "")


async def test_while_the_killed_member_terminates_on_the_only_place_the_gang_recovers(
    town: SchedulerEnv,
) -> None:
    await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        names = await town.create_gang("g", 2)
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
        # Its node has not answered: it stays, with a deletion timestamp.
        await town.client.delete(Pod, town.key("g-1"), grace=timedelta(seconds=30))
        await town.create_pod("g-1b", "g", role="worker", index=1)
        group = await town.wait.until(PodGroup, "g", lambda found: "terminating" in found.status.state.message)
        assert group.status.state.phase == "Recovering"
        await town.pods.delete_now("g-1")
        await town.pods.run_when_bound(["g-1b"])
        await town.wait.phase("g", "Running")
        phases = {event.reason for event in await town.wait.events("Running")}
        assert not await town.read.events("Unschedulable"), phases


# Places


async def test_a_gang_that_does_not_fit_is_not_begun_and_starts_when_a_slot_appears(
    town: SchedulerEnv,
) -> None:
    node = await town.create_node("a", cpu="3")
    async with town.run_scheduler():
        names = await town.create_gang("g", 4)
        await town.wait.phase("g", "Pending", "NotEnoughResources")
        for name in names:
            pod = await town.wait.until(Pod, name, lambda found: bool(found.status.conditions))
            condition = pod.status.conditions[0]
            assert (condition.status, condition.reason) == ("False", "Unschedulable")
        assert await town.read.all_unbound(names)
        await town.set_allocatable(node, cpu="4")
        for name in names:
            await town.wait.bound(name)
        # One Event for all of them.
        (event,) = await town.wait.events("Scheduled")
        assert event.note.startswith("4 members placed on ")


async def test_nothing_is_bound_until_all_members_exist(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="8")
    async with town.run_scheduler():
        await town.create_group("g", 4)
        for number in range(3):
            await town.create_pod(f"g-{number}", "g")
        waiting = await town.wait.until(PodGroup, "g", lambda found: "3 of 4 exist" in found.status.state.message)
        assert waiting.status.state.reason == "NotEnoughTasks"
        assert await town.read.all_unbound([f"g-{number}" for number in range(3)])
        await town.create_pod("g-3", "g")
        for number in range(4):
            await town.wait.bound(f"g-{number}")


async def test_of_two_gangs_that_fit_alone_one_is_whole_and_one_has_nothing(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="6")
    gangs = {name: await town.create_gang(name, 4) for name in ("one", "two")}
    async with town.run_scheduler():
        (event,) = await town.wait.events("Scheduled")
        whole = event.regarding.name
        for name in gangs.pop(whole):
            await town.wait.bound(name)
        ((other, names),) = gangs.items()
        await town.wait.phase(other, "Pending", "NotEnoughResources")
        assert await town.read.all_unbound(names)


async def test_a_loser_lacks_room_even_while_somebody_elsewhere_is_about_to_leave(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="6")
    elsewhere = await town.create_node("b", cpu="1")
    await town.create_pod("slow", cpu="1", schedulerName="somebody-else")
    await PodSubresources(town.client).bind(town.key("slow"), elsewhere)
    await town.client.patch(Pod, town.key("slow"), {"metadata": {"finalizers": ["gangline.dev/test"]}})
    await town.client.delete(Pod, town.key("slow"))
    gangs = {name: await town.create_gang(name, 4) for name in ("one", "two")}
    try:
        async with town.run_scheduler():
            (event,) = await town.wait.events("Scheduled")
            del gangs[event.regarding.name]
            ((other, names),) = gangs.items()
            await town.wait.phase(other, "Pending", "NotEnoughResources")
            assert await town.read.all_unbound(names)
    finally:
        await town.client.patch(Pod, town.key("slow"), {"metadata": {"finalizers": None}})


async def test_a_gang_whose_least_starts_again_is_not_unschedulable_for_want_of_one_more(
    town: SchedulerEnv,
) -> None:
    node = await town.create_node("a", cpu="3")
    async with town.run_scheduler():
        names = await town.create_gang("g", 3, least=2)
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
        await town.set_allocatable(node, cpu="2")
        for name in names[1:]:
            await town.pods.delete_now(name)
        await town.wait.phase("g", "Recovering")
        for number in (1, 2):
            await town.create_pod(f"g-{number}", "g", role="worker", index=number)
        # One is bound and has yet to start; for the other there is no room.
        group = await town.wait.until(PodGroup, "g", lambda found: "lack cpu" in found.status.state.message)
        (bound,) = [name for name in names[1:] if (await town.read.pod(name)).spec.node_name]
        assert group.status.state.phase == "Recovering"
        await town.pods.set_phase(bound)
        await town.wait.phase("g", "Running")
        assert not await town.read.events("Unschedulable")


async def test_the_broken_gang_gets_the_slot_before_a_newcomer(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        names = await town.create_gang("old", 2)
        await town.pods.run_when_bound(names)
        await town.wait.phase("old", "Running")
        await town.pods.delete_now("old-1")
        await town.create_pod("thief")
        await town.wait.bound("thief")
        # The newcomer has waited longer than the replacement.
        await town.create_pod("new")
        await town.wait.until(Pod, "new", lambda found: bool(found.status.conditions))
        await town.create_pod("old-1", "old", role="worker", index=1)
        await town.wait.phase("old", "Unschedulable")
        await town.pods.delete_now("thief")
        await town.pods.run_when_bound(["old-1"])
        await town.wait.phase("old", "Running")
        assert await town.read.all_unbound(["new"])


async def test_pods_of_another_scheduler_are_left_alone_and_count(town: SchedulerEnv) -> None:
    node = await town.create_node("a", cpu="2")
    await town.create_pod("theirs", schedulerName="somebody-else")
    async with town.run_scheduler():
        await town.create_pod("ours", cpu="2")
        await town.wait.bound("ours")
        assert await town.read.all_unbound(["theirs"])
        await town.pods.delete_now("ours")
        await PodSubresources(town.client).bind(town.key("theirs"), node)
        await town.create_pod("late", cpu="2")
        found = await town.wait.until(Pod, "late", lambda found: bool(found.status.conditions))
        assert found.status.conditions[0].reason == "Unschedulable"


async def test_a_queue_at_its_cap_keeps_a_gang_waiting_without_a_word_to_autoscalers(
    town: SchedulerEnv,
) -> None:
    await town.create_node("a", cpu="4")
    queue = town.namespace
    await town.client.create(Queue, {"metadata": {"name": queue}, "spec": {"weight": 1, "capability": {"cpu": "1"}}})
    try:
        async with town.run_scheduler():
            await town.create_group("g", 2, queue=queue)
            for number in range(2):
                await town.create_pod(f"g-{number}", "g")
            waiting = await town.wait.until(PodGroup, "g", lambda found: "queue" in found.status.state.message)
            assert waiting.status.state.phase == "Pending"
            pods = [await town.read.pod(f"g-{number}") for number in range(2)]
            assert not any(pod.status.conditions for pod in pods)
            await town.wait.until(Queue, queue, lambda found: found.status.pending == 1, namespaced=False)
    finally:
        await town.client.delete(Queue, Key("", queue))


async def test_a_more_important_gang_makes_a_whole_gang_leave(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="4")
    async with town.run_scheduler():
        low = await town.create_gang("low", 2)
        other = await town.create_gang("other", 2)
        await town.pods.run_when_bound([*low, *other])
        await town.wait.phase("low", "Running")
        await town.wait.phase("other", "Running")
        names = await town.create_gang("high", 2, priorityClassName="system-cluster-critical")
        victims = await town.wait.events("Preempted")
        assert len(victims) == 1
        ended = victims[0].regarding.name
        for number in range(2):
            await town.pods.finish_deletion(f"{ended}-{number}")
        for name in names:
            await town.wait.bound(name)
        kept = "other" if ended == "low" else "low"
        for number in range(2):
            assert (await town.read.pod(f"{kept}-{number}")).metadata.deletion_timestamp is None


async def test_without_preemption_nobody_leaves(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="1")
    async with town.run_scheduler(policy=SchedulerPolicy(preemption=False)):
        await town.create_pod("low")
        await town.wait.bound("low")
        await town.create_pod("high", priorityClassName="system-cluster-critical")
        await town.wait.until(Pod, "high", lambda found: bool(found.status.conditions))
        assert (await town.read.pod("low")).metadata.deletion_timestamp is None


async def test_a_budget_that_is_used_up_protects(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="1")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {
            "minAvailable": 1,
            "selector": {"matchLabels": {"training.kubeflow.org/replica-type": "kept"}},
        },
    }
    path = f"/apis/policy/v1/namespaces/{town.namespace}/poddisruptionbudgets"
    body = msgspec.json.encode(budget)
    await town.client.requests.call(Request("POST", path, body=body, content_type="application/json"))
    async with town.run_scheduler():
        await town.create_pod("low", role="kept")
        await town.pods.run_when_bound(["low"])
        await town.create_pod("high", priorityClassName="system-cluster-critical")
        pod = await town.wait.until(Pod, "high", lambda found: bool(found.status.conditions))
        assert pod.status.conditions[0].reason == "Unschedulable"
        assert (await town.read.pod("low")).metadata.deletion_timestamp is None


async def test_gated_pods_are_let_go_with_the_node_they_are_to_go_to(town: SchedulerEnv) -> None:
    node = await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        names = await town.create_gang("g", 2, gated=True)
        for name in names:
            pod = await town.wait.until(Pod, name, lambda found: not found.spec.scheduling_gates)
            assert pod.spec.node_selector["kubernetes.io/hostname"] == node
            assert not pod.spec.node_name
        # Their places are used although nobody has bound them yet.
        await town.create_pod("late")
        await town.wait.until(Pod, "late", lambda found: bool(found.status.conditions))
        await PodSubresources(town.client).bind(town.key("g-0"), node)
        assert await town.read.all_unbound(["late"])


async def test_a_pin_counts_after_a_restart_too(town: SchedulerEnv) -> None:
    node = await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        for name in await town.create_gang("g", 2, gated=True):
            await town.wait.until(Pod, name, lambda found: not found.spec.scheduling_gates)
    async with town.run_scheduler():
        await town.create_pod("late")
        await town.wait.until(Pod, "late", lambda found: bool(found.status.conditions))
        for name in ("g-0", "g-1"):
            await PodSubresources(town.client).bind(town.key(name), node)
            await town.pods.set_phase(name)
        await town.wait.phase("g", "Running")
        assert await town.read.all_unbound(["late"])


async def test_a_gang_with_a_gated_member_waits_for_it(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="2")
    async with town.run_scheduler():
        await town.create_group("g", 2)
        await town.create_pod("g-0", "g")
        await town.create_pod("g-1", "g", schedulingGates=[{"name": "example.com/wait"}])
        await town.wait.phase("g", "Pending")
        await town.create_pod("alone", cpu="1")
        await town.wait.bound("alone")
        assert await town.read.all_unbound(["g-0"])
        await town.pods.delete_now("alone")
        await town.client.patch(Pod, town.key("g-1"), {"spec": {"schedulingGates": []}})
        for name in ("g-0", "g-1"):
            await town.wait.bound(name)


# Faults


async def test_a_bind_that_fails_with_500_is_tried_again_and_nothing_is_deleted(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="4")
    seen: list[str] = []

    async def third_fails(request: Request) -> Response | None:
        if is_binding(request):
            seen.append(request.path)
        return error_response() if is_binding(request) and len(seen) == 3 else None

    transport.intercept = third_fails
    async with town.run_scheduler(meddled):
        names = await town.create_gang("g", 4)
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
    assert len(seen) == 5
    assert not await town.read.events("Undone")


async def test_a_bind_whose_answer_was_lost_counts_as_bound(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="2")
    lost: list[str] = []

    async def answer_is_lost(request: Request) -> Response | None:
        if is_binding(request) and not lost:
            lost.append(request.path)
            await HttpTransport.send(transport, request)
            raise Unreachable("the answer was lost")
        return None

    transport.intercept = answer_is_lost
    async with town.run_scheduler(meddled):
        names = await town.create_gang("g", 2)
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
        (event,) = await town.wait.events("Scheduled")
        assert event.note.startswith("2 members placed")


async def test_a_pod_made_again_under_its_name_is_not_bound_in_its_place(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="1")
    await town.create_node("b", cpu="1")
    answers: list[int] = []

    async def recreated_first(request: Request) -> Response | None:
        if not is_binding(request) or answers:
            return None
        answers.append(0)
        await town.pods.delete_now("p")
        await town.create_pod("p", cpu="2")
        response = await HttpTransport.send(transport, request)
        answers[0] = response.status
        return response

    transport.intercept = recreated_first
    async with town.run_scheduler(meddled):
        await town.create_pod("p")
        pod = await town.wait.until(Pod, "p", lambda found: bool(found.status.conditions))
        assert pod.status.conditions[0].reason == "Unschedulable"
    assert answers == [409]


async def test_a_scheduler_killed_after_two_of_four_binds_finishes_that_gang_first(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="4")
    bound: list[str] = []
    stuck, killed = asyncio.Event(), asyncio.Event()

    async def only_two(request: Request) -> Response | None:
        if not is_binding(request):
            return None
        bound.append(request.path)
        if len(bound) > 2:
            stuck.set()
            await killed.wait()
            raise Unreachable("the process is gone")
        return None

    transport.intercept = only_two
    async with town.run_scheduler(meddled, concurrency=1):
        names = await town.create_gang("g", 4)
        async with asyncio.timeout(WAIT_SECONDS):
            await stuck.wait()
        killed.set()
    # Meanwhile an older one of the same size came: its time is before, its turn is after.
    assert sum([bool((await town.read.pod(name)).spec.node_name) for name in names]) == 2
    rival = await town.create_gang("a", 2)
    async with town.run_scheduler():
        await town.pods.run_when_bound(names)
        await town.wait.phase("g", "Running")
        assert await town.read.all_unbound(rival)


async def test_a_start_left_half_bound_is_undone_and_a_smaller_gang_has_the_room(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="4")

    async def last_never_succeeds(request: Request) -> Response | None:
        return error_response(503) if is_binding(request) and request.path.endswith("/g-3/binding") else None

    transport.intercept = last_never_succeeds
    bystander = await town.create_gang("small", 1)
    async with town.run_scheduler(meddled):
        await town.pods.run_when_bound(bystander)
        await town.pods.delete_now("small-0")
        await town.create_group("g", 4, scheduleTimeoutSeconds=1)
        names = [f"g-{number}" for number in range(4)]
        for number, name in enumerate(names):
            await town.create_pod(name, "g", role="worker", index=number)
        for name in names[:3]:
            await town.wait.bound(name)
        # The place of the fourth is kept for it.
        late = await town.create_pod("late", cpu="2")
        await town.wait.until(Pod, "late", lambda found: bool(found.status.conditions))
        (event,) = await town.wait.events("Undone")
        assert event.note.startswith("only 3 of 4 members could be placed in 1 s")
        for name in names[:3]:
            await town.pods.finish_deletion(name)
        await town.wait.bound(late.metadata.name)
        assert (await town.read.group("g")).status.state.phase == "Pending"
        assert not (await town.read.pod("g-3")).metadata.deletion_timestamp


async def test_told_not_to_it_undoes_nothing(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="2")

    async def last_never_succeeds(request: Request) -> Response | None:
        return error_response(503) if is_binding(request) and request.path.endswith("/g-1/binding") else None

    transport.intercept = last_never_succeeds
    async with town.run_scheduler(meddled, roll_back=False, start_timeout=timedelta(seconds=1)):
        await town.create_gang("g", 2)
        await town.wait.bound("g-0")
        # One that waits is told after the same time, so the time has passed.
        await town.create_gang("other", 1)
        await town.wait.events("ScheduleTimeout")
        assert not await town.read.events("Undone")
        assert (await town.read.pod("g-0")).metadata.deletion_timestamp is None


async def test_a_gang_that_waits_too_long_is_told_once(town: SchedulerEnv) -> None:
    await town.create_node("a", cpu="1")
    async with town.run_scheduler():
        await town.create_group("g", 2, scheduleTimeoutSeconds=1)
        for number in range(2):
            await town.create_pod(f"g-{number}", "g")
        (event,) = await town.wait.events("ScheduleTimeout")
        assert event.note.startswith("not placed in 1 s: ")
        assert event.type == "Warning"
        assert await town.read.all_unbound(["g-0", "g-1"])


async def test_no_status_is_written_over_what_somebody_else_wrote(
    town: SchedulerEnv, meddled: Client, transport: InterceptedTransport
) -> None:
    await town.create_node("a", cpu="1")
    conflicts: list[int] = []

    async def somebody_is_faster(request: Request) -> Response | None:
        if request.method != "PATCH" or not request.path.endswith("/g/status") or conflicts:
            return None
        conflicts.append(0)
        await town.client.patch(PodGroup, town.key("g"), {"metadata": {"labels": {"touched": "yes"}}})
        response = await HttpTransport.send(transport, request)
        conflicts[0] = response.status
        return response

    transport.intercept = somebody_is_faster
    async with town.run_scheduler(meddled):
        await town.create_group("g", 1)
        group = await town.wait.phase("g", "Pending")
    assert conflicts == [409]
    assert group.metadata.labels == {"touched": "yes"}


# Traces


class RecordingTracer:
    """Notes the name, the depth and the attributes of every span."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, int, dict[str, AttributeValue]]] = []
        self._depth = 0

    @contextmanager
    def start_span(
        self, name: str, attributes: Mapping[str, AttributeValue], *, is_request: bool
    ) -> Iterator["RecordingTracer"]:
        self.spans.append((name, self._depth, dict(attributes)))
        self._depth += 1
        try:
            yield self
        finally:
            self._depth -= 1

    def set_attribute(self, name: str, value: AttributeValue) -> None:
        self.spans[-1][2][name] = value

    def trace_parent(self) -> str:
        return ""


async def test_a_cycle_is_a_span_with_one_for_every_gang_it_decides_on(town: SchedulerEnv) -> None:
    tracer = RecordingTracer()
    set_tracer(tracer)
    try:
        await town.create_node("a", cpu="4")
        async with town.run_scheduler():
            names = await town.create_gang("g", 2, cpu="1")
            for name in names:
                await town.wait.bound(name)
    finally:
        set_tracer(None)
    cycles = [attributes for name, depth, attributes in tracer.spans if (name, depth) == ("scheduling cycle", 0)]
    placements = [attributes for name, depth, attributes in tracer.spans if (name, depth) == ("gang placement", 1)]
    assert any(attributes["gangline.gangs"] for attributes in cycles)
    placed = next(attributes for attributes in placements if attributes["gangline.result"] == "bind")
    assert placed["k8s.namespace.name"] == town.namespace
    assert (placed["gangline.name"], placed["gangline.members"], placed["gangline.queue"]) == ("g", 2, "default")

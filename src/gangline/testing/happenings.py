"""What may happen to a job, as values that print well: a list of them is a history."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias

from gangline.api.kubeflow.training import JOB_NAME, REPLICA_INDEX
from gangline.api.meta import JSON
from gangline.jobs.pods.replicas import member_name
from gangline.testing.faults import Fault
from gangline.testing.world.invariants import expected_members
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World


class Kubelets(NamedTuple):
    """A pod moves: the one of that number, modulo how many there are."""

    does: str
    pod: int

    async def happen(self, world: World) -> None:
        found = world.pods()
        if not found:
            return
        pod, kubelet = found[self.pod % len(found)], Kubelet(world)
        verb, _, code = self.does.partition(" ")
        match verb:
            case "fail":
                kubelet.fail(pod, int(code))
            case "echo":
                kubelet.fail(pod, 1, log="RuntimeError: Connection closed by peer")
            case _:
                getattr(kubelet, verb)(pod)


class AllStart(NamedTuple):
    """Every pod that waits starts."""

    async def happen(self, world: World) -> None:
        for pod in world.pods():
            Kubelet(world).start(pod)


class AllSucceed(NamedTuple):
    """Every pod that runs succeeds."""

    async def happen(self, world: World) -> None:
        for pod in world.pods():
            Kubelet(world).succeed(pod)


class Users(NamedTuple):
    """Somebody edits something; `which` is a number of one, modulo how many there are."""

    does: str
    which: int = 0

    async def happen(self, world: World) -> None:
        EDITS[self.does](world, self.which)


class Delivers(NamedTuple):
    """One cache shows its next changes, or all of them."""

    view: int
    most: int | None

    async def happen(self, world: World) -> None:
        names = list(world.views)
        world.deliver(names[self.view % len(names)], self.most)


class Relists(NamedTuple):
    """One cache was cut off for a while, and begins anew."""

    view: int

    async def happen(self, world: World) -> None:
        names = list(world.views)
        world.relist(names[self.view % len(names)])


class Passes(NamedTuple):
    """The operator looks, if anything makes it look."""

    async def happen(self, world: World) -> None:
        if world.due:
            await world.look()


class Looks(NamedTuple):
    """All caches are up to date and the operator looks."""

    async def happen(self, world: World) -> None:
        world.node()
        world.deliver()
        if world.due:
            await world.look()


class Crashes(NamedTuple):
    """The operator's process ends, and another one begins."""

    async def happen(self, world: World) -> None:
        world.crash()


class Troubles(NamedTuple):
    """The operator's call of that number from now on goes wrong."""

    after: int
    what: int | str

    async def happen(self, world: World) -> None:
        world.faults.add(Fault(self.after, self.what))


class Waits(NamedTuple):
    """Time goes by."""

    seconds: int

    async def happen(self, world: World) -> None:
        world.advance(timedelta(seconds=self.seconds))


class Collects(NamedTuple):
    """The garbage collector comes by."""

    async def happen(self, world: World) -> None:
        world.server.collect_garbage()


class Happening(Protocol):
    """One thing that happens."""

    async def happen(self, world: World) -> None: ...


History: TypeAlias = list[Happening]


# What users do


def _nth_child(world: World, resource: str, which: int) -> JSON | None:
    found = [each for kind, each in world.owned() if kind == resource]
    return found[which % len(found)] if found else None


def _scale(world: World, which: int) -> None:
    """The last type of which there may be several; never to none of those that the job cannot do without."""
    if world.body is None:
        return
    facts, replicas = world.framework.facts, world.framework.replicas(world.job)
    kind = next((kind for kind in reversed(list(replicas)) if kind not in facts.single), None)
    if kind is None:
        return
    least = 1 if len(replicas) == 1 or kind in (facts.needed, facts.types[0]) else 0
    change = {facts.replicas: {kind: {"replicas": least + which % (4 - least)}}}
    world.server.patch(world.plural, world.key.name, {"spec": change})


def _edit_run_policy(**change: Any) -> Callable[[World, int], None]:
    def edit(world: World, which: int) -> None:
        if world.body is not None:
            world.server.patch(world.plural, world.key.name, {"spec": {"runPolicy": change}})

    return edit


def _edit_child(resource: str, change: JSON, *, loses: bool = False) -> Callable[[World, int], None]:
    """`loses`: a team may take it for a loss."""

    def edit(world: World, which: int) -> None:
        found = _nth_child(world, resource, which)
        if found is not None:
            world.incidents += loses
            world.server.patch(resource, found["metadata"]["name"], change)

    return edit


def _delete_child(resource: str) -> Callable[[World, int], None]:
    def delete(world: World, which: int) -> None:
        found = _nth_child(world, resource, which)
        if found is not None:
            world.incidents += 1
            world.server.delete(resource, found["metadata"]["name"])

    return delete


def _take_name(resource: str) -> Callable[[World, int], None]:
    """Somebody else takes a name that the job will want."""

    def squat(world: World, which: int) -> None:
        if world.body is None:
            return
        names = [member_name(world.key.name, seat) for seat in expected_members(world.framework, world.job)]
        if not names:
            return
        name = names[which % len(names)]
        if world.server.find(resource, name) is None:
            body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never"}}
            world.strangers.add(world.server.create(resource, body)["metadata"]["uid"])

    return squat


def _replace_with_stranger(resource: str) -> Callable[[World, int], None]:
    """Somebody puts an object of their own in the place of one of the job's, in one breath."""

    def usurp(world: World, which: int) -> None:
        found = _nth_child(world, resource, which)
        if found is not None:
            world.incidents += 1
            world.server.remove(resource, found["metadata"]["name"])
            body = {"metadata": {"name": found["metadata"]["name"]}, "spec": {"restartPolicy": "Never"}}
            world.strangers.add(world.server.create(resource, body)["metadata"]["uid"])

    return usurp


def _remove_squatters(world: World, which: int) -> None:
    """Squatters go."""
    for (resource, name), found in list(world.server.objects.items()):
        if not found["metadata"].get("ownerReferences") and resource in ("pods", "services"):
            world.server.remove(resource, name)


def _delete_job(world: World, which: int) -> None:
    if world.body is not None:
        world.server.delete(world.plural, world.key.name)


def _recreate_job(world: World, which: int) -> None:
    _delete_job(world, which)
    world.incidents += 1
    world.server.create(world.plural, world.manifest)


EDITS: dict[str, Callable[[World, int], None]] = {
    "scale": _scale,
    "suspend": _edit_run_policy(suspend=True),
    "resume": _edit_run_policy(suspend=False),
    "delete pod": _delete_child("pods"),
    "delete service": _delete_child("services"),
    "delete config map": _delete_child("configmaps"),
    "edit config map": _edit_child("configmaps", {"data": {"hostfile": "mine"}}),
    "orphan pod": _edit_child("pods", {"metadata": {"ownerReferences": None}}, loses=True),
    "orphan service": _edit_child("services", {"metadata": {"ownerReferences": None}}),
    "take job label off pod": _edit_child("pods", {"metadata": {"labels": {JOB_NAME: None}}}, loses=True),
    "take index off pod": _edit_child("pods", {"metadata": {"labels": {REPLICA_INDEX: None}}}),
    "squat pod": _take_name("pods"),
    "squat service": _take_name("services"),
    "usurp pod": _replace_with_stranger("pods"),
    "usurp service": _replace_with_stranger("services"),
    "squatters leave": _remove_squatters,
    "delete job": _delete_job,
    "make job anew": _recreate_job,
}

POD_MOVES = ("start", "succeed", "fail 1", "fail 137", "fail 137", "echo", "evict", "clash", "vanish")
"""What a kubelet may do to a pod; what is there twice happens more often, here and below."""
STEADY_EDITS = ("resume", *(name for name in EDITS if name != "make job anew"))
"""What people do to one and the same job."""
STORY_FAULTS: tuple[int | str, ...] = ("dies", "dies after", "lost", 403, 409, 429, 500, "dies", "dies after")
WAIT_SECONDS = (1, 5, 30, 60, 700)

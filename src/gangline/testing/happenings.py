"""What can happen to a job in a `World`, as values that print well. A list of them is a history."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, TypeAlias

from gangline.api.kubeflow.training import JOB_NAME, REPLICA_INDEX
from gangline.api.meta import JSON
from gangline.jobs.pods.replicas import job_members, member_name
from gangline.testing.faults import Fault
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World


class Kubelets(NamedTuple):
    """The kubelet does something with a pod: the one with that index, modulo the number of pods."""

    does: str
    pod: int

    async def happen(self, world: World) -> None:
        pods = world.pods()
        if not pods:
            return
        pod, kubelet = pods[self.pod % len(pods)], Kubelet(world)
        verb, _, code = self.does.partition(" ")
        match verb:
            case "fail":
                kubelet.fail(pod, int(code))
            case "echo":
                kubelet.fail(pod, 1, log="RuntimeError: Connection closed by peer")
            case _:
                getattr(kubelet, verb)(pod)


class AllStart(NamedTuple):
    """Every pending pod starts."""

    async def happen(self, world: World) -> None:
        for pod in world.pods():
            Kubelet(world).start(pod)


class AllSucceed(NamedTuple):
    """Every running pod succeeds."""

    async def happen(self, world: World) -> None:
        for pod in world.pods():
            Kubelet(world).succeed(pod)


class Users(NamedTuple):
    """A user makes one of the `EDITS`; `which` selects the object, modulo the number of objects."""

    does: str
    which: int = 0

    async def happen(self, world: World) -> None:
        EDITS[self.does](world, self.which)


class Delivers(NamedTuple):
    """One cache receives its next `most` events; None: all of them."""

    view: int
    most: int | None

    async def happen(self, world: World) -> None:
        names = list(world.views)
        world.deliver(names[self.view % len(names)], self.most)


class Relists(NamedTuple):
    """One cache has missed events, and lists its objects anew."""

    view: int

    async def happen(self, world: World) -> None:
        names = list(world.views)
        world.relist(names[self.view % len(names)])


class Passes(NamedTuple):
    """The operator reconciles if a reconcile is due."""

    async def happen(self, world: World) -> None:
        if world.due:
            await world.look()


class Looks(NamedTuple):
    """All caches receive all events, and the operator reconciles if that is due."""

    async def happen(self, world: World) -> None:
        world.node()
        world.deliver()
        if world.due:
            await world.look()


class Crashes(NamedTuple):
    """The operator's process is replaced by a new one."""

    async def happen(self, world: World) -> None:
        world.crash()


class Troubles(NamedTuple):
    """A request of the operator fails, after `after` other ones."""

    after: int
    what: int | str

    async def happen(self, world: World) -> None:
        world.faults.add(Fault(self.after, self.what))


class Waits(NamedTuple):
    """Time passes."""

    seconds: int

    async def happen(self, world: World) -> None:
        world.advance(timedelta(seconds=self.seconds))


class Collects(NamedTuple):
    """The garbage collector runs."""

    async def happen(self, world: World) -> None:
        world.server.collect_garbage()


class Happening(Protocol):
    """One thing that happens to a job."""

    async def happen(self, world: World) -> None: ...


History: TypeAlias = list[Happening]


# The edits of users


def _nth_child(world: World, resource: str, which: int) -> JSON | None:
    children = [body for kind, body in world.owned() if kind == resource]
    return children[which % len(children)] if children else None


def _scale(world: World, which: int) -> None:
    """Scale the last replica type that may have several replicas; not to 0 if the job needs the type."""
    if world.body is None:
        return
    job_kind, replicas = world.framework.facts, world.framework.replicas(world.job)
    kind = next((kind for kind in reversed(list(replicas)) if kind not in job_kind.single), None)
    if kind is None:
        return
    least = 1 if len(replicas) == 1 or kind in (job_kind.needed, job_kind.types[0]) else 0
    change = {job_kind.replicas: {kind: {"replicas": least + which % (4 - least)}}}
    world.server.patch(world.plural, world.key.name, {"spec": change})


def _edit_run_policy(**change: Any) -> Callable[[World, int], None]:
    def edit(world: World, which: int) -> None:
        if world.body is not None:
            world.server.patch(world.plural, world.key.name, {"spec": {"runPolicy": change}})

    return edit


def _suspend(world: World, which: int) -> None:
    """Suspend the job. The replicas of a resumed job are a new team."""
    world.incidents += 1
    _edit_run_policy(suspend=True)(world, which)


def _edit_child(resource: str, change: JSON, *, loses: bool = False) -> Callable[[World, int], None]:
    """`loses`: the operator may take the edit for the loss of a pod."""
    return _act_on_child(resource, lambda world, name: world.server.patch(resource, name, change), incidents=loses)


def _delete_child(resource: str) -> Callable[[World, int], None]:
    return _act_on_child(resource, lambda world, name: world.server.delete(resource, name))


def _act_on_child(
    resource: str, act: Callable[[World, str], object], *, incidents: int = 1
) -> Callable[[World, int], None]:
    """Do something to one of the job's objects, given by name."""

    def happen(world: World, which: int) -> None:
        child = _nth_child(world, resource, which)
        if child is not None:
            world.incidents += incidents
            act(world, child["metadata"]["name"])

    return happen


def _take_name(resource: str) -> Callable[[World, int], None]:
    """Create an object that is not the job's, with a name that the job needs."""

    def squat(world: World, which: int) -> None:
        if world.body is None:
            return
        names = [member_name(world.key.name, member) for member in job_members(world.framework.replicas(world.job))]
        if not names:
            return
        name = names[which % len(names)]
        if world.server.find(resource, name) is None:
            _create_stranger(world, resource, name)

    return squat


def _replace_with_stranger(resource: str) -> Callable[[World, int], None]:
    """Replace one of the job's objects by one of the same name that is not the job's."""

    def usurp(world: World, name: str) -> None:
        world.server.remove(resource, name)
        _create_stranger(world, resource, name)

    return _act_on_child(resource, usurp)


def _create_stranger(world: World, resource: str, name: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never"}}
    world.strangers.add(world.server.create(resource, body)["metadata"]["uid"])


def _remove_squatters(world: World, which: int) -> None:
    """Remove all pods and services without an owner."""
    for (resource, name), body in list(world.server.objects.items()):
        if not body["metadata"].get("ownerReferences") and resource in ("pods", "services"):
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
    "suspend": _suspend,
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
"""What a kubelet can do with a pod. Repeated entries are drawn more often, here and below."""
STEADY_EDITS = ("resume", *(name for name in EDITS if name != "make job anew"))
"""The edits that do not replace the job."""
STORY_FAULTS: tuple[int | str, ...] = ("dies", "dies after", "lost", 403, 409, 429, 500, "dies", "dies after")
WAIT_SECONDS = (1, 5, 30, 60, 700)
# The names of these until 0.2.0; removed in 0.4.0.
MOVES, STEADY, WRONG, SECONDS = POD_MOVES, STEADY_EDITS, STORY_FAULTS, WAIT_SECONDS

"""Histories: what may happen to a job, as values that print and shrink well."""

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from gangline.api.meta import JSON
from gangline.api.training import JOB_NAME, REPLICA_INDEX
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.jobs.gang import seat_name
from gangline.jobs.site import Services, Site
from jobkubelet import Kubelet
from jobrules import Rules, seats
from jobserver import Trouble
from jobworld import JOB, World, manifest

FRAMEWORKS: dict[str, Framework[Any]] = {
    "TFJob": TensorFlow(),
    "PyTorchJob": PyTorch(),
    "XGBoostJob": XGBoost(),
    "MPIJob": Mpi(),
    "PaddleJob": Paddle(),
    "JAXJob": Jax(),
}
TEAMS: dict[str, tuple[dict[str, int], ...]] = {
    "TFJob": (
        {"Worker": 2},
        {"PS": 1, "Worker": 2},
        {"Chief": 1, "Worker": 1},
        {"Worker": 1, "Evaluator": 1},
    ),
    "PyTorchJob": ({"Master": 1, "Worker": 2}, {"Worker": 2}, {"Master": 1}),
    "XGBoostJob": ({"Master": 1, "Worker": 1}, {"Master": 1, "Worker": 2}),
    "MPIJob": ({"Launcher": 1, "Worker": 2}, {"Launcher": 1}),
    "PaddleJob": ({"Worker": 2}, {"Master": 1, "Worker": 1}),
    "JAXJob": ({"Worker": 2}, {"Worker": 3}),
}
SITES = {
    "cluster": Site(),
    "one service per job": Site(services=Services.PER_JOB),
    "one machine": Site(shared_host=True),
}


def histories(usual: int) -> int:
    """How many to try: the usual number, times GANGLINE_JOB_HISTORIES where more time is at hand."""
    return usual * int(os.environ.get("GANGLINE_JOB_HISTORIES", "1"))


class Team(NamedTuple):
    """A job, and where it runs."""

    kind: str
    replicas: dict[str, int]
    restart: dict[str, str]
    policy: JSON
    spec: JSON = {}
    site: str = "cluster"
    # Pods that are deleted never go at once.
    slow: bool = False

    def world(self, rules: Rules | None = None) -> World:
        framework = FRAMEWORKS[self.kind]
        replicas = {
            kind: {"replicas": count, "restartPolicy": self.restart[kind]}
            for kind, count in self.replicas.items()
        }
        body = manifest(framework, replicas, self.policy, self.spec)
        judge = (rules or Rules()).judge
        world = World(framework, body, SITES[self.site], judge)
        world.server.finalizers = self.slow
        return world


@st.composite
def teams(draw: Callable[[Any], Any], scopes: tuple[str, ...] = ("", "Replica", "Job")) -> Team:
    kind = draw(st.sampled_from(list(FRAMEWORKS)))
    replicas = draw(st.sampled_from(TEAMS[kind]))
    policies = st.sampled_from(["Never", "ExitCode", "OnFailure", "Always"])
    restart = {name: draw(policies) for name in replicas}
    policy = {
        "backoffLimit": draw(st.sampled_from([None, 0, 1, 2, 3])),
        "cleanPodPolicy": draw(st.sampled_from(["", "None", "Running", "All"])),
        "activeDeadlineSeconds": draw(st.sampled_from([None, None, None, 100])),
        "ttlSecondsAfterFinished": draw(st.sampled_from([None, None, 0, 50])),
        "suspend": draw(st.sampled_from([None, None, None, None, None, True])),
        "restartScope": draw(st.sampled_from(scopes)),
    }
    kept = {name: value for name, value in policy.items() if value is not None and value != ""}
    spec: JSON = {}
    if kind == "TFJob":
        spec = draw(st.sampled_from([{}, {}, {"successPolicy": "AllWorkers"}, {"enableDynamicWorker": True}]))
    if kind == "PyTorchJob" and "Worker" in replicas:
        metrics = [{"type": "Resource"}]
        spec = draw(
            st.sampled_from(
                [{}, {}, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}}]
            )
        )
    site = "cluster" if kind == "MPIJob" else draw(st.sampled_from(list(SITES)))
    return Team(kind, replicas, restart, kept, spec, site, draw(st.booleans()))


# What may happen


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
        world.trouble(Trouble(self.after, self.what))


class Waits(NamedTuple):
    """Time goes by."""

    seconds: int

    async def happen(self, world: World) -> None:
        world.advance(timedelta(seconds=self.seconds))


class Collects(NamedTuple):
    """The garbage collector comes by."""

    async def happen(self, world: World) -> None:
        world.server.collect()


Happening: TypeAlias = (
    Kubelets | AllStart | Users | Delivers | Relists | Passes | Looks | Crashes | Troubles | Waits | Collects
)
History: TypeAlias = list[Happening]


# What users do


def _children(world: World, resource: str, which: int) -> JSON | None:
    found = [each for kind, each in world.owned() if kind == resource]
    return found[which % len(found)] if found else None


def _scale(world: World, which: int) -> None:
    if world.body is None:
        return
    replicas = world.framework.replicas(world.job)
    if "Worker" not in replicas:
        return
    least = 0 if len(replicas) > 1 else 1
    change = {world.framework.facts.replicas: {"Worker": {"replicas": least + which % (4 - least)}}}
    world.server.patch(world.plural, JOB.name, {"spec": change})


def _policy(**change: Any) -> Callable[[World, int], None]:
    def edit(world: World, which: int) -> None:
        if world.body is not None:
            world.server.patch(world.plural, JOB.name, {"spec": {"runPolicy": change}})

    return edit


def _edit(resource: str, change: JSON, *, loses: bool = False) -> Callable[[World, int], None]:
    """`loses`: a team may take it for a loss."""

    def edit(world: World, which: int) -> None:
        found = _children(world, resource, which)
        if found is not None:
            world.incidents += loses
            world.server.patch(resource, found["metadata"]["name"], change)

    return edit


def _delete(resource: str) -> Callable[[World, int], None]:
    def delete(world: World, which: int) -> None:
        found = _children(world, resource, which)
        if found is not None:
            world.incidents += 1
            world.server.delete(resource, found["metadata"]["name"])

    return delete


def _squat(resource: str) -> Callable[[World, int], None]:
    """Somebody else takes a name that the job will want."""

    def squat(world: World, which: int) -> None:
        if world.body is None:
            return
        names = [seat_name(JOB.name, seat) for seat in seats(world.framework, world.job)]
        if not names:
            return
        name = names[which % len(names)]
        if world.server.find(resource, name) is None:
            body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never"}}
            world.strangers.add(world.server.create(resource, body)["metadata"]["uid"])

    return squat


def _usurp(resource: str) -> Callable[[World, int], None]:
    """Somebody puts an object of their own in the place of one of the job's, in one breath."""

    def usurp(world: World, which: int) -> None:
        found = _children(world, resource, which)
        if found is not None:
            world.incidents += 1
            world.server.end(resource, found["metadata"]["name"])
            body = {"metadata": {"name": found["metadata"]["name"]}, "spec": {"restartPolicy": "Never"}}
            world.strangers.add(world.server.create(resource, body)["metadata"]["uid"])

    return usurp


def _leave(world: World, which: int) -> None:
    """Squatters go."""
    for (resource, name), found in list(world.server.objects.items()):
        if not found["metadata"].get("ownerReferences") and resource in ("pods", "services"):
            world.server.end(resource, name)


def _delete_job(world: World, which: int) -> None:
    if world.body is not None:
        world.server.delete(world.plural, JOB.name)


def _make_job_anew(world: World, which: int) -> None:
    _delete_job(world, which)
    world.incidents += 1
    world.server.create(world.plural, world.manifest)


EDITS: dict[str, Callable[[World, int], None]] = {
    "scale": _scale,
    "suspend": _policy(suspend=True),
    "resume": _policy(suspend=False),
    "delete pod": _delete("pods"),
    "delete service": _delete("services"),
    "delete config map": _delete("configmaps"),
    "edit config map": _edit("configmaps", {"data": {"hostfile": "mine"}}),
    "orphan pod": _edit("pods", {"metadata": {"ownerReferences": None}}, loses=True),
    "orphan service": _edit("services", {"metadata": {"ownerReferences": None}}),
    "take job label off pod": _edit("pods", {"metadata": {"labels": {JOB_NAME: None}}}, loses=True),
    "take index off pod": _edit("pods", {"metadata": {"labels": {REPLICA_INDEX: None}}}),
    "squat pod": _squat("pods"),
    "squat service": _squat("services"),
    "usurp pod": _usurp("pods"),
    "usurp service": _usurp("services"),
    "squatters leave": _leave,
    "delete job": _delete_job,
    "make job anew": _make_job_anew,
}

PICKS = st.integers(0, 5)
KUBELETS: st.SearchStrategy[Happening] = st.one_of(
    st.just(AllStart()),
    st.builds(
        Kubelets,
        st.sampled_from(
            ["start", "succeed", "fail 1", "fail 137", "fail 137", "echo", "evict", "clash", "vanish"]
        ),
        PICKS,
    ),
)
USERS = st.builds(
    Users,
    st.sampled_from(["resume", *(name for name in EDITS if name != "make job anew")]),
    PICKS,
)
WRONG: st.SearchStrategy[int | str] = st.sampled_from(
    ["dies", "dies after", "lost", 403, 409, 429, 500, "dies", "dies after"]
)
TROUBLES = st.builds(Troubles, st.integers(0, 6), WRONG)
LOOKS = st.just(Looks())
WAITS = st.builds(Waits, st.sampled_from([1, 5, 30, 60, 700]))

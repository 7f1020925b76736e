"""The engine's properties hold for frameworks that nobody has thought of yet.

A framework is drawn: its replica types, which of them there may be one of and which it cannot do without, its wiring,
when its jobs have succeeded, whose failures it tolerates, what it needs beside pods. Then a job of it, and what happens
to that. The same must hold as of the six kinds: a job comes to the same end whatever happens to the operator, every
write is right, and in the end nothing is left to do.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gangline.api.meta import JSON
from gangline.operator import (
    Addresses,
    ApiStruct,
    Companion,
    Gang,
    JobKind,
    JobOutcome,
    Member,
    PodEdits,
    Port,
    ReplicaSpec,
    RestartPolicy,
    RunPolicy,
    TeamFramework,
    TrainingJob,
    Verdict,
    variables,
)
from gangline.testing import assert_converges, assert_survives, strategies
from gangline.testing.converge import Step
from gangline.testing.happenings import History
from support.property.job_histories import SITES, example_count, job_manifest, run_policies

NAMES = ("Boss", "Hand", "Scribe", "Cook")


class ToyJobSpec(ApiStruct, frozen=True):
    toy_specs: dict[str, ReplicaSpec]
    run_policy: RunPolicy = RunPolicy()


class ToyJob(TrainingJob, frozen=True, kw_only=True):
    API_VERSION: ClassVar[str] = "toys.example.com/v1alpha1"
    KIND: ClassVar[str] = "ToyJob"
    spec: ToyJobSpec


class Shape(NamedTuple):
    """All that is special about a framework, as a value."""

    types: tuple[str, ...]
    single: tuple[str, ...] = ()
    needed: str = ""
    restart: RestartPolicy = RestartPolicy.NEVER
    port: bool = True
    # The type whose replicas decide, and how many of them must have succeeded.
    decides: str = ""
    rule: str = "all"
    tolerated: tuple[str, ...] = ()
    wiring: str = "everybody"
    book: bool = False

    def framework(self) -> "Toy":
        return ToyWithBook(self) if self.book else Toy(self)


class Toy(TeamFramework[ToyJob]):
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.facts = JobKind(
            model=ToyJob,
            plural="toyjobs",
            replicas="toySpecs",
            attribute="toy_specs",
            types=shape.types,
            container="toy",
            port=Port("toy-port", 4000) if shape.port else None,
            restart_policy=shape.restart,
            single=shape.single,
            needed=shape.needed,
        )

    def wiring(self, job: ToyJob, member: Member, addresses: Addresses) -> PodEdits:
        match self._shape.wiring if self._shape.port else "labels":
            case "everybody":
                known = ",".join(map(str, addresses.known.values()))
                return PodEdits(env=variables(TEAM=known, ME=str(member)))
            case "myself":
                return PodEdits(env=variables(PORT=str(addresses.of(member).port)), labels={"toy": "yes"})
            case _:
                waits = {"name": "waits", "image": "busybox:1"}
                volume = {"name": "box", "emptyDir": {}}
                return PodEdits(labels={"toy": member.type}, init_containers=(waits,), volumes=(volume,))

    def verdict(self, job: ToyJob, gang: Gang) -> Verdict:
        counts = gang.counts.get(self._shape.decides)
        size = sum(seat.type == self._shape.decides for seat in gang.seats)
        if counts is None or not size:
            return Verdict(JobOutcome.PENDING)
        enough = {"all": size, "one": 1, "half": (size + 1) // 2}[self._shape.rule]
        if counts.succeeded >= enough:
            return Verdict(JobOutcome.SUCCEEDED, "enough")
        return Verdict(JobOutcome.RUNNING if counts.active else JobOutcome.PENDING)

    def tolerates(self, job: ToyJob, kind: str) -> bool:
        return kind in self._shape.tolerated


class ToyWithBook(Toy):
    """Keeps a list of the members in a ConfigMap."""

    resources = ("configmaps",)

    def companions(self, job: ToyJob, gang: Gang) -> tuple[Companion, ...]:
        body = {
            "metadata": {"name": f"{job.metadata.name}-book"},
            "data": {"members": ",".join(map(str, gang.seats))},
        }
        return (Companion("configmaps", body, parts=("data",), first=True),)


class Toys(NamedTuple):
    """A framework, a job of it, and where it runs."""

    shape: Shape
    replicas: dict[str, JSON]
    policy: JSON
    site: str

    @property
    def body(self) -> JSON:
        return job_manifest(self.shape.framework(), self.replicas, self.policy)


@st.composite
def shapes(draw: Callable[[Any], Any]) -> Shape:
    types = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)))
    one, some = st.sampled_from(types), st.lists(st.sampled_from(types), max_size=2, unique=True).map(tuple)
    return Shape(
        types=types,
        single=draw(some),
        needed=draw(st.sampled_from(["", types[0], types[-1]])),
        restart=draw(st.sampled_from(list(RestartPolicy))),
        port=draw(st.sampled_from([True, True, False])),
        decides=draw(one),
        rule=draw(st.sampled_from(["all", "one", "half"])),
        tolerated=draw(some),
        wiring=draw(st.sampled_from(["everybody", "myself", "labels"])),
        book=draw(st.booleans()),
    )


@st.composite
def toys(draw: Callable[[Any], Any]) -> Toys:
    shape: Shape = draw(shapes())
    restart = st.sampled_from([None, *RestartPolicy])
    replicas: dict[str, JSON] = {}
    for kind in shape.types:
        most = 1 if kind in shape.single else 3
        entry = {"replicas": draw(st.integers(1, most)), "restartPolicy": draw(restart)}
        replicas[kind] = {name: value for name, value in entry.items() if value is not None}
    return Toys(shape, replicas, draw(run_policies()), draw(st.sampled_from(list(SITES))))


SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "report_multiple_bugs": False,
}


@settings(max_examples=example_count(40), **SETTINGS)
@given(toys(), strategies.stories())
def test_a_job_of_any_framework_comes_to_the_same_end(toy: Toys, story: list[Step]) -> None:
    assert_converges(toy.shape.framework(), toy.body, story=story, site=SITES[toy.site])


@settings(max_examples=example_count(60), **SETTINGS)
@given(toys(), strategies.histories())
def test_what_must_hold_of_a_job_holds_for_any_framework(toy: Toys, history: History) -> None:
    assert_survives(toy.shape.framework(), toy.body, history, site=SITES[toy.site])


@pytest.mark.parametrize("rule", ["all", "one", "half"])
def test_a_rule_that_looks_at_more_than_the_job_is_found_out(rule: str) -> None:
    class Moody(Toy):
        """Forgets what it has said: after a restart of the operator it says something else."""

        asked = 0

        def verdict(self, job: ToyJob, gang: Gang) -> Verdict:
            self.asked += 1
            found = super().verdict(job, gang)
            return Verdict(found.outcome, f"{found.message} {self.asked}")

    shape = Shape(types=("Boss",), decides="Boss", rule=rule)
    job = job_manifest(Moody(shape), {"Boss": {"replicas": 2}}, {})
    with pytest.raises(AssertionError, match="the worlds differ"):
        assert_converges(Moody(shape), job)

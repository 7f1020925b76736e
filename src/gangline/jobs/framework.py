"""All a framework must say about its kind. Values in, values out."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from gangline.api.core import Pod
from gangline.api.training import ReplicaSpec, RunPolicy, TrainingJob

J = TypeVar("J", bound=TrainingJob)


class Member(msgspec.Struct, frozen=True, order=True):
    """One seat of the team: replica type and index."""

    type: str
    index: int

    def __str__(self) -> str:
        return f"{self.type.lower()}-{self.index}"


class PodEdits(msgspec.Struct, frozen=True):
    """What a framework adds to one member's template."""

    env: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Addresses(msgspec.Struct, frozen=True):
    """Where the members listen: host:port by seat."""

    hosts: Mapping[Member, str]

    def of(self, member: Member) -> str:
        return self.hosts[member]

    def covers(self, members: Iterable[Member]) -> bool:
        return all(member in self.hosts for member in members)


class Outcome(StrEnum):
    RUNNING = "Running"
    PENDING = "Pending"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Verdict(msgspec.Struct, frozen=True):
    """How the job stands, by its framework's own rule."""

    outcome: Outcome
    message: str = ""


class Port(NamedTuple):
    """The port through which members find each other, unless the template says otherwise."""

    name: str
    number: int


class Framework(Protocol[J]):
    """Values in, values out: no client, no template to mutate, no status to write."""

    @property
    def kind(self) -> type[J]: ...
    @property
    def container(self) -> str:
        """The container that trains."""
        ...

    @property
    def port(self) -> Port: ...
    def default(self, job: J) -> J: ...
    def replicas(self, job: J) -> Mapping[str, ReplicaSpec]: ...
    def run_policy(self, job: J) -> RunPolicy: ...
    def wiring(self, job: J, member: Member, addresses: Addresses) -> PodEdits: ...
    def verdict(self, job: J, pods: Mapping[Member, Pod]) -> Verdict: ...

"""All a framework must say about its kind. Values in, values out.

A framework is a small class: the facts of its kind (`JobKind`), how one member is wired to the others, and when the
job runs, has succeeded or has failed. What is true of every kind of job is the engine's business.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from gangline.api.kubeflow.training import JobKind, ReplicaSpec, RunPolicy, TrainingJob
from gangline.api.meta import JSON
from gangline.jobs.pods.replicas import Gang, Member

J = TypeVar("J", bound=TrainingJob)


class Address(msgspec.Struct, frozen=True):
    """Where one member is found: by its bare name within the namespace, by its full name, at a port."""

    name: str
    full: str
    port: int

    def __str__(self) -> str:
        return f"{self.full}:{self.port}"


class Addresses(msgspec.Struct, frozen=True):
    """Where the members are found, by seat."""

    known: Mapping[Member, Address] = {}
    # On one machine: every member has a port of its own, and is told those of all the others.
    shared_host: bool = False

    def of(self, member: Member) -> Address:
        return self.known[member]

    def covers(self, members: Iterable[Member]) -> bool:
        return all(member in self.known for member in members)


class EnvTarget(StrEnum):
    """Which containers of a pod get the variables."""

    DEFAULT = "default"
    EVERY = "every"
    FIRST = "first"


class PodEdits(msgspec.Struct, frozen=True):
    """What a framework adds to one member's template."""

    # As Kubernetes writes them: name and value, or name and valueFrom. Appended, in this order.
    env: tuple[JSON, ...] = ()
    into: EnvTarget = EnvTarget.DEFAULT
    labels: Mapping[str, str] = {}
    init_containers: tuple[JSON, ...] = ()
    volumes: tuple[JSON, ...] = ()
    # Of the first container.
    mounts: tuple[JSON, ...] = ()
    # Of the first container, if the template gives it no command.
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    # If the template names none.
    service_account: str = ""


def variables(**values: str) -> tuple[JSON, ...]:
    """Environment variables in the order given."""
    return tuple({"name": name, "value": value} for name, value in values.items())


class JobOutcome(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"


class Verdict(msgspec.Struct, frozen=True):
    """How the job stands, by its framework's own rule. Failures are judged by the engine."""

    outcome: JobOutcome
    message: str = ""


class ConditionText(msgspec.Struct, frozen=True):
    """A condition's reason and message."""

    reason: str
    message: str


class Problem(msgspec.Struct, frozen=True):
    """Why a job cannot run: the field, and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Framework(Protocol[J]):
    """Values in, values out: no client, no template to mutate, no status to write."""

    @property
    def facts(self) -> JobKind: ...
    def default(self, job: J) -> J:
        """The job with everything filled in that may be left out."""
        ...

    def validate(self, job: J) -> Iterable[Problem]:
        """What of this kind makes the (defaulted) job impossible to run."""
        ...

    def replicas(self, job: J) -> Mapping[str, ReplicaSpec]: ...
    def run_policy(self, job: J) -> RunPolicy: ...
    def wiring(self, job: J, member: Member, addresses: Addresses) -> PodEdits:
        """What one member's pod needs to find the others."""
        ...

    def verdict(self, job: J, gang: Gang) -> Verdict: ...
    def failure(self, job: J, kind: str, count: int) -> ConditionText:
        """How to say that so many replicas of a type failed for good."""
        ...

    def tolerates(self, job: J, kind: str) -> bool:
        """Whether replicas of a type may fail for good without failing the job."""
        ...


class Companion(msgspec.Struct, frozen=True):
    """An object that a job needs beside its pods and services."""

    # As kubectl names it: "configmaps", "horizontalpodautoscalers.autoscaling".
    resource: str
    body: JSON
    # The parts that are kept as the framework says; the rest is left to whoever wrote it.
    parts: tuple[str, ...] = ()
    # Goes when the job is suspended or has ended.
    only_active: bool = False
    # Somebody else's of that name will do as well.
    anyones: bool = False
    # Is there before all others.
    first: bool = False

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


@runtime_checkable
class NeedsCompanions(Protocol):
    """A framework whose jobs have more objects than pods and services."""

    # What to watch for them.
    resources: tuple[str, ...]

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]: ...


@runtime_checkable
class Elastic(Protocol):
    """A framework some of whose jobs can go on with fewer replicas."""

    def min_members(self, job: Any) -> int | None:
        """With how many, of all types together; None: of this job with all only."""
        ...


@runtime_checkable
class AllOrNothing(Protocol):
    """A framework whose teams cannot go on without any one of their members: collectives of a fixed size.

    If there is no room to replace one, all start anew.
    """

    all_or_nothing: bool


@runtime_checkable
class ResetsReplicaCounts(Protocol):
    """A framework that forgets the counters of some replica types once the job has ended."""

    def reset_types(self, job: Any, gang: Gang) -> Iterable[str]: ...


@runtime_checkable
class RunningBeforeEnd(Protocol):
    """A framework whose jobs are said to have run before they succeed or fail, even if nobody saw them run."""

    def running_text(self, job: Any) -> ConditionText:
        """The condition Running."""
        ...


@runtime_checkable
class RestartMessage(Protocol):
    """A framework whose condition Restarting says how many replicas failed, in the words of its kind."""

    def restart_message(self, job: Any, kind: str, count: int) -> str: ...


@runtime_checkable
class IgnoresFields(Protocol):
    """A framework whose kind has fields on which nothing acts, as in v1."""

    def ignored_fields(self, job: Any) -> Iterable[Problem]: ...

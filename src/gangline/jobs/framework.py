"""What a framework defines about its kind of job. Values in, values out.

A framework is a small class: the facts of its kind (`JobKind`), how a replica is wired to the others, and when the job
runs and has succeeded. Everything that holds for all kinds of jobs is in the engine.
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
    """Where a replica is reached: its name within the namespace, its full name, and its port."""

    name: str
    full: str
    port: int

    def __str__(self) -> str:
        return f"{self.full}:{self.port}"


class Addresses(msgspec.Struct, frozen=True):
    """The addresses of a job's replicas, as far as they are known."""

    known: Mapping[Member, Address] = {}
    # All replicas run on one machine: each has its own port, and is given the ports of all others.
    shared_host: bool = False

    def of(self, member: Member) -> Address:
        """The address of a replica. Raises `KeyError` if it is not known."""
        return self.known[member]

    def covers(self, members: Iterable[Member]) -> bool:
        """Whether the addresses of all these replicas are known."""
        return all(member in self.known for member in members)


class EnvTarget(StrEnum):
    """Which containers of a pod get the environment variables."""

    DEFAULT = "default"
    EVERY = "every"
    FIRST = "first"


class PodEdits(msgspec.Struct, frozen=True):
    """What a framework adds to the pod template of a replica."""

    # As in a container spec: name and value, or name and valueFrom. Appended in this order.
    env: tuple[JSON, ...] = ()
    into: EnvTarget = EnvTarget.DEFAULT
    labels: Mapping[str, str] = {}
    init_containers: tuple[JSON, ...] = ()
    volumes: tuple[JSON, ...] = ()
    # Volume mounts of the first container.
    mounts: tuple[JSON, ...] = ()
    # Command and arguments of the first container, if the template gives it no command.
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    # Used if the template names none.
    service_account: str = ""


def variables(**values: str) -> tuple[JSON, ...]:
    """Environment variables in the order of the arguments."""
    return tuple({"name": name, "value": value} for name, value in values.items())


class JobOutcome(StrEnum):
    """How far a job is, by its framework's rule."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a job by its framework's rule, and the message of its condition. The engine judges failures."""

    outcome: JobOutcome
    message: str = ""


class ConditionText(msgspec.Struct, frozen=True):
    """The reason and the message of a condition."""

    reason: str
    message: str


class Problem(msgspec.Struct, frozen=True):
    """Why a job cannot run: the field, and what to write instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Framework(Protocol[J]):
    """A kind of job. Values in, values out: no client, no template to change, no status to write."""

    @property
    def facts(self) -> JobKind: ...
    def default(self, job: J) -> J:
        """The job with all fields filled in that may be left out."""
        ...

    def validate(self, job: J) -> Iterable[Problem]:
        """Why a job of this kind, with its defaults, cannot run."""
        ...

    def replicas(self, job: J) -> Mapping[str, ReplicaSpec]: ...
    def run_policy(self, job: J) -> RunPolicy: ...
    def wiring(self, job: J, member: Member, addresses: Addresses) -> PodEdits:
        """What the pod of a replica needs to find the other replicas."""
        ...

    def verdict(self, job: J, gang: Gang) -> Verdict: ...
    def failure(self, job: J, kind: str, count: int) -> ConditionText:
        """The condition Failed of a job of which `count` replicas of a type failed permanently."""
        ...

    def tolerates(self, job: J, kind: str) -> bool:
        """Whether replicas of a type may fail permanently without failing the job."""
        ...


class Companion(msgspec.Struct, frozen=True):
    """An object that a job needs beside its pods and services."""

    # As in kubectl: "configmaps", "horizontalpodautoscalers.autoscaling".
    resource: str
    body: JSON
    # The top-level fields that are kept as in `body`. All others are left to other writers.
    parts: tuple[str, ...] = ()
    # Deleted when the job is suspended or has finished.
    only_active: bool = False
    # An object of that name that the job does not own is used as it is.
    anyones: bool = False
    # Created before all others.
    first: bool = False

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


@runtime_checkable
class NeedsCompanions(Protocol):
    """A framework whose jobs need more objects than pods and services."""

    # The resources of these objects, which are watched.
    resources: tuple[str, ...]

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]: ...


BATCH_JOBS = "jobs.batch"
"""The resource of Kubernetes' own Jobs."""


@runtime_checkable
class PlansByLauncherJob(Protocol):
    """A framework whose launcher is a Job of Kubernetes, which restarts and ends it. Such a framework plans its jobs itself."""

    def launcher_job(self, job: Any) -> str:
        """The name of that Job."""
        ...

    def pod_spec(self, job: Any, kind: str) -> JSON:
        """The spec of the pod of the first replica of a type."""
        ...

    def plan(self, observed: Any) -> Any:
        """The `JobPlan` for an `ObservedJob`. The same input gives the same plan."""
        ...


@runtime_checkable
class Elastic(Protocol):
    """A framework some of whose jobs can train with fewer replicas."""

    def min_members(self, job: Any) -> int | None:
        """The least number of replicas of all types together; None if this job needs all of them."""
        ...


@runtime_checkable
class CreatesInSteps(Protocol):
    """A framework some of whose jobs create replicas only when others are ready. These cannot wait for their whole gang."""

    def first_members(self, job: Any) -> int | None:
        """The number of replicas that are created at first; None if that is all."""
        ...


@runtime_checkable
class AllOrNothing(Protocol):
    """A framework whose jobs cannot go on without any one of their replicas: collectives of a fixed size.

    If there is no room to replace one replica, all restart.
    """

    all_or_nothing: bool


@runtime_checkable
class Collective(Protocol):
    """A framework whose replicas train by collectives of a fixed size: none goes on when another one is replaced.

    Under a recovery policy all of them restart, unless the job says otherwise.
    """

    collective: bool


@runtime_checkable
class ResetsReplicaCounts(Protocol):
    """A framework that resets the counters of some replica types when the job has finished."""

    def reset_types(self, job: Any, gang: Gang) -> Iterable[str]: ...


@runtime_checkable
class RunningBeforeEnd(Protocol):
    """A framework whose jobs get condition Running before they succeed or fail, even if they were not seen running."""

    def running_text(self, job: Any) -> ConditionText:
        """The text of condition Running."""
        ...


@runtime_checkable
class RestartMessage(Protocol):
    """A framework whose condition Restarting says how many replicas failed, in the wording of its kind."""

    def restart_message(self, job: Any, kind: str, count: int) -> str: ...


@runtime_checkable
class Ranked(Protocol):
    """A framework that numbers its processes."""

    def rank(self, job: Any, member: Member) -> int | None:
        """The number of a replica; None if it has none, has several, or the program decides it."""
        ...


@runtime_checkable
class IgnoresFields(Protocol):
    """A framework whose kind has fields without effect, as in v1."""

    def ignored_fields(self, job: Any) -> Iterable[Problem]: ...

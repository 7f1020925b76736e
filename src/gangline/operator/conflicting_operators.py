"""Detects another operator that serves the same jobs: two of them would act twice on each job.

There is no sure sign, so three are checked: a Lease that is being renewed, a Deployment or a pod that looks like an
operator, and a status that another program wrote a moment ago. Resources that may not be read are skipped: an operator
with few rights sees less, and relies on the other signs. The jobs themselves must be readable: without that right the
operator cannot act yet, and would act unchecked if it got the right later.

If only some namespaces are served, only these are checked. An operator elsewhere may serve other namespaces; one that
serves these too is detected by what it writes.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from gangline.api.core import Lease, Pod
from gangline.api.kubeflow.kinds import MPIJOB_V2
from gangline.api.kubeflow.training import JobKind, RunPolicy
from gangline.api.meta import ApiStruct, Key, Object, ObjectMeta, Selector, Time
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.jobs.defaults import is_managed_here
from gangline.kube.client import Client, Kind, T
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.operator.settings import KUBEFLOW_LEASE, MPI_OPERATOR_LEASE

log = logging.getLogger(__name__)

ROLE_LABEL = "control-plane"
KUBEFLOW_ROLE, GANGLINE_ROLE = "kubeflow-training-operator", "gangline-operator"
"""Values of `ROLE_LABEL` on the pods of the two operators."""

RECENT_WRITE = timedelta(minutes=3)
"""A status that another program wrote within this time shows that the program is still running."""
POLL_INTERVAL = timedelta(seconds=2)
"""How often to check whether jobs may be read by now."""
CLOCK_SKEW = timedelta(seconds=5)
"""By how much clocks may differ."""
_OPERATOR_IMAGE = re.compile(r"(?:.*/)?training-operator(?:[:@].*)?")
_MPI_OPERATOR_IMAGE = re.compile(r"(?:.*/)?mpi-operator(?:[:@].*)?")
# Field managers of command-line tools, which are no operators.
_HUMAN_MANAGERS = ("kubectl", "gangline")


class OperatorConflict(GanglineError):
    """Another operator serves the same jobs."""


class ConflictingOperator(NamedTuple):
    """A sign of another operator, and how to stop that operator."""

    description: str
    remedy: str


class OperatorIdentity(msgspec.Struct, frozen=True):
    """How an operator recognizes its own pod, writes and Lease."""

    # The pod in which it runs, if it does.
    pod: Key
    field_manager: str
    # The Lease for which it competes. Other operators that compete for it act only when this one does not.
    lease: Key | None = None


class ConflictCheck:
    """Looks for other operators in namespaces, as soon as their jobs may be read."""

    def __init__(self, client: Client, kinds: Sequence[JobKind], me: OperatorIdentity, clock: Clock) -> None:
        self._client, self._kinds, self._me, self._clock = client, kinds, me, clock
        self._logged_errors: set[str] = set()

    async def wait_for_any(self, namespaces: Sequence[str]) -> tuple[str, ...]:
        """Return when at least one namespace could be checked, and no other operator is detected in those that could.

        Returns the others, whose jobs may not be read. An empty name is all namespaces. Raises `OperatorConflict` with a
        message of one line.
        """
        while len(refused := [name for name in namespaces if not await self._is_checked(name)]) == len(namespaces):
            await self._clock.sleep(POLL_INTERVAL)
        return tuple(refused)

    async def _is_checked(self, namespace: str) -> bool:
        """Whether the jobs may be read. Raises `OperatorConflict`."""
        try:
            await check_conflicts(self._client, self._kinds, namespace, self._me, self._clock)
        except Forbidden as error:
            if str(error) not in self._logged_errors:
                log.warning("jobs may not be read, waiting for the right", extra={"error": str(error)})
            self._logged_errors.add(str(error))
            return False
        return True


async def check_conflicts(
    client: Client, kinds: Iterable[JobKind], namespace: str, me: OperatorIdentity, clock: Clock
) -> None:
    """Raise `OperatorConflict` if another operator is detected, and `Forbidden` if the jobs may not be read."""
    for conflict in await find_conflicts(client, kinds, namespace, me, clock.now()):
        raise OperatorConflict(
            f"another operator serves these jobs: {conflict.description}; two would act twice on each:"
            f" {conflict.remedy}, or start this one with --take-over"
        )


async def find_conflicts(
    client: Client, kinds: Iterable[JobKind], namespace: str, me: OperatorIdentity, now: datetime
) -> list[ConflictingOperator]:
    """All signs of other operators, the surest first. Raises `Forbidden` if the jobs may not be read."""
    everything = Selector(namespace=namespace)
    operators = Selector(namespace=namespace, labels=f"{ROLE_LABEL} in ({KUBEFLOW_ROLE},{GANGLINE_ROLE})")
    conflicts: list[ConflictingOperator] = []
    kinds = tuple(kinds)
    with_mpi_operator = MPIJOB_V2 in kinds
    leases = {KUBEFLOW_LEASE, *((MPI_OPERATOR_LEASE,) if with_mpi_operator else ())}
    for name in leases | ({me.lease.name} if me.lease else set()):
        named = Selector(namespace=namespace, fields=f"metadata.name={name}")
        for lease in await _list_readable(client, Lease, named):
            conflicts.extend(lease_conflicts(lease, me, now))
    for deployment in await _list_readable(client, DEPLOYMENTS, everything):
        conflicts.extend(deployment_conflicts(deployment, me))
        if with_mpi_operator:
            conflicts.extend(mpi_operator_conflicts(deployment, me))
    for pod in await _list_readable(client, Pod, operators):
        conflicts.extend(pod_conflicts(pod, me))
    since = await _leader_since(client, me)
    for kind in kinds:
        for job in await _list_readable(client, _managed_resource(kind), everything, ignored=(NotFound,)):
            conflicts.extend(status_writer_conflicts(kind, job, me, now, since))
    return conflicts


async def _leader_since(client: Client, me: OperatorIdentity) -> datetime | None:
    """When our Lease was last acquired: who did it made sure, or was told, that no other operator acts.

    A Lease that was released counts, too: between two leaders nobody holds it.
    """
    if me.lease is None:
        return None
    try:
        return (await client.get(Lease, me.lease)).spec.acquire_time
    except (Forbidden, NotFound):
        return None


async def _list_readable(
    client: Client, kind: Kind[T], selector: Selector, ignored: tuple[type[ApiError], ...] = (Forbidden, NotFound)
) -> list[T]:
    """All objects that are selected; empty if the server answers with one of the ignored errors."""
    try:
        return [item async for item in client.iterate(kind, selector)]
    except ignored as error:
        log.debug("cannot look for other operators", extra={"error": str(error)})
        return []


# Signs


def lease_conflicts(lease: Lease, me: OperatorIdentity, now: datetime) -> Iterator[ConflictingOperator]:
    """A Lease that another operator holds and renews."""
    key, spec = lease.metadata.key, lease.spec
    if key == me.lease or not spec.holder_identity or spec.renew_time is None:
        return
    if now - spec.renew_time < timedelta(seconds=spec.lease_duration_seconds) + CLOCK_SKEW:
        description = f"{spec.holder_identity} holds lease {key}"
        yield ConflictingOperator(description, "stop that operator, or start both with --leader-elect in one namespace")


def deployment_conflicts(deployment: "Deployment", me: OperatorIdentity) -> Iterator[ConflictingOperator]:
    """A Deployment that runs the Kubeflow operator."""
    if is_kubeflow_operator(deployment):
        yield from _running_deployment(deployment, me, kubeflow_images(deployment))


def mpi_operator_conflicts(deployment: "Deployment", me: OperatorIdentity) -> Iterator[ConflictingOperator]:
    """A Deployment that runs mpi-operator."""
    images = _images(deployment, _MPI_OPERATOR_IMAGE)
    if images:
        yield from _running_deployment(deployment, me, images)


def _running_deployment(
    deployment: "Deployment", me: OperatorIdentity, images: Sequence[str]
) -> Iterator[ConflictingOperator]:
    metadata = deployment.metadata
    if not deployment.spec.replicas or _runs_in(me, metadata.key):
        return
    description = f"deployment {metadata.key}" + (f" with image {images[0]}" if images else "")
    remedy = f"kubectl -n {metadata.namespace} scale deployment {metadata.name} --replicas=0"
    yield ConflictingOperator(description, remedy)


def is_kubeflow_operator(deployment: "Deployment") -> bool:
    """Whether a Deployment runs the Kubeflow operator, by its image or its label."""
    labels = deployment.spec.template.metadata.labels
    return bool(kubeflow_images(deployment)) or labels.get(ROLE_LABEL) == KUBEFLOW_ROLE


def kubeflow_images(deployment: "Deployment") -> list[str]:
    """The images of the Kubeflow operator among those of a Deployment."""
    return _images(deployment, _OPERATOR_IMAGE)


def _images(deployment: "Deployment", pattern: re.Pattern[str]) -> list[str]:
    images = [container.image for container in deployment.spec.template.spec.containers]
    return [image for image in images if pattern.fullmatch(image)]


def _runs_in(me: OperatorIdentity, deployment: Key) -> bool:
    """Whether this operator is a pod of the Deployment: its image was put into the Deployment of the other operator."""
    return me.pod.namespace == deployment.namespace and me.pod.name.startswith(f"{deployment.name}-")


def pod_conflicts(pod: Pod, me: OperatorIdentity) -> Iterator[ConflictingOperator]:
    """A pod of either operator that has not ended."""
    metadata = pod.metadata
    ended = pod.status.phase in ("Succeeded", "Failed")
    shares_lease = metadata.labels.get(ROLE_LABEL) == GANGLINE_ROLE and me.lease is not None
    if ended or shares_lease or metadata.key == me.pod:
        return
    yield ConflictingOperator(f"pod {metadata.key}", f"kubectl -n {metadata.namespace} delete pod {metadata.name}")


def status_writer_conflicts(
    kind: JobKind, job: "ManagedJob", me: OperatorIdentity, now: datetime, since: datetime | None = None
) -> Iterator[ConflictingOperator]:
    """A status that another program wrote just now, of a job that no other controller manages.

    What was written before `since`, when an operator with our Lease took over, does not count.
    """
    if not is_managed_here(RunPolicy(managed_by=job.spec.run_policy.managed_by)):
        return
    if kind.kind == MPIJOB_V2.kind and bool(job.spec.mpi_implementation) != (kind is MPIJOB_V2):
        # A job of the other API of this kind, which another operator may serve.
        return
    for entry in job.metadata.managed_fields:
        if entry.subresource != "status" or entry.time is None or now - entry.time > RECENT_WRITE:
            continue
        if since is not None and entry.time <= since:
            continue
        if entry.manager != me.field_manager and not entry.manager.startswith(_HUMAN_MANAGERS):
            ago = max(0, int((now - entry.time).total_seconds()))
            key = Key(job.metadata.namespace, job.metadata.name)
            description = f"{entry.manager or 'somebody'} wrote the status of {kind.kind} {key} {ago} s ago"
            yield ConflictingOperator(description, f"stop it and wait {int(RECENT_WRITE.total_seconds())} s")


# The parts of objects that are read


class _LabelledMeta(ApiStruct, frozen=True):
    labels: dict[str, str] = {}


class _ImageContainer(ApiStruct, frozen=True):
    image: str = ""


class _ImagePodSpec(ApiStruct, frozen=True):
    containers: tuple[_ImageContainer, ...] = ()


class _ImageTemplate(ApiStruct, frozen=True):
    metadata: _LabelledMeta = _LabelledMeta()
    spec: _ImagePodSpec = _ImagePodSpec()


class _DeploymentSpec(ApiStruct, frozen=True):
    replicas: int = 1
    template: _ImageTemplate = _ImageTemplate()


class Deployment(Object, frozen=True):
    """The replicas of a Deployment, and the images of its pods."""

    spec: _DeploymentSpec = _DeploymentSpec()


class ManagerEntry(ApiStruct, frozen=True):
    manager: str = ""
    subresource: str = ""
    time: Time | None = None


class ManagedMeta(ObjectMeta, frozen=True):
    managed_fields: tuple[ManagerEntry, ...] = ()


class _ManagedByPolicy(ApiStruct, frozen=True):
    managed_by: str | None = None


class _ManagedBySpec(ApiStruct, frozen=True):
    run_policy: _ManagedByPolicy = _ManagedByPolicy()
    mpi_implementation: str = ""


class ManagedJob(ApiStruct, frozen=True):
    """The part of a job that tells who wrote it and which controller manages it."""

    metadata: ManagedMeta = ManagedMeta()
    spec: _ManagedBySpec = _ManagedBySpec()


DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", Deployment)


def _managed_resource(kind: JobKind) -> Resource[ManagedJob]:
    resource = kind.resource
    return Resource(resource.group, resource.version, resource.kind, resource.plural, ManagedJob)

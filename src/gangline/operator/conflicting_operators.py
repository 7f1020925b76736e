"""Is there another operator for the same jobs? Two of them would act twice on each.

There is no sure sign, so three are looked for: a Lease that somebody keeps renewing, a Deployment or a pod that looks
like an operator, and a status that somebody else wrote a moment ago. Of these what may not be read is passed over: an
operator with few rights sees less, and the others tell. The jobs themselves must be readable: who cannot see them yet
cannot act yet, and would act unasked if the rights came later.

In namespaced mode only that namespace is looked at. An operator elsewhere may serve other namespaces; one that serves
this one too shows itself by what it writes.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Lease, Pod
from gangline.api.kubeflow.training import JobKind, RunPolicy
from gangline.api.meta import ApiStruct, Key, Object, Selector, Time
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.jobs.defaults import is_managed_here
from gangline.kube.client import Client, Kind, T
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.operator.settings import KUBEFLOW_LEASE

log = logging.getLogger(__name__)

ROLE_LABEL = "control-plane"
KUBEFLOW_ROLE, GANGLINE_ROLE = "kubeflow-training-operator", "gangline-operator"
"""Values of that label on the pods of the two operators."""

RECENT_WRITE = timedelta(minutes=3)
"""A status that somebody else wrote so recently says that they are still there."""
POLL_INTERVAL = timedelta(seconds=2)
"""How often to look whether jobs may be read by now."""
CLOCK_SKEW = timedelta(seconds=5)
"""By how much clocks may differ."""
_OPERATOR_IMAGE = re.compile(r"(?:.*/)?training-operator(?:[:@].*)?")
# They write for a person, not in place of an operator.
_HUMAN_MANAGERS = ("kubectl", "gangline")


class OperatorConflict(GanglineError):
    """Another operator acts on the same jobs."""


class ConflictingOperator(msgspec.Struct, frozen=True):
    """What was found, and how to end it."""

    description: str
    remedy: str


class OperatorIdentity(msgspec.Struct, frozen=True):
    """By what an operator knows itself among what it finds."""

    # The pod it runs in, if it does.
    pod: Key
    field_manager: str
    # The Lease it competes for: whoever else does so acts only when we do not.
    lease: Key | None = None


async def ensure_no_conflict(
    client: Client, kinds: Iterable[JobKind], namespace: str, me: OperatorIdentity, clock: Clock
) -> None:
    """Return if nobody else acts on these jobs, as far as can be seen; waits for the right to read them.

    Raises `OperatorConflict`, in one line.
    """
    told = ""
    while True:
        try:
            await check_conflicts(client, kinds, namespace, me, clock)
        except Forbidden as error:
            if str(error) != told:
                log.warning("jobs may not be read, waiting for the right", extra={"error": str(error)})
            told = str(error)
            await clock.sleep(POLL_INTERVAL)
        else:
            return


async def check_conflicts(
    client: Client, kinds: Iterable[JobKind], namespace: str, me: OperatorIdentity, clock: Clock
) -> None:
    """Raise `OperatorConflict`, in one line, if another operator is found; `Forbidden` if even jobs may not be read."""
    for rival in await _conflicts(client, kinds, namespace, me, clock.now()):
        raise OperatorConflict(
            f"another operator serves these jobs: {rival.description}; two would act twice on each:"
            f" {rival.remedy}, or start this one with --take-over"
        )


async def _conflicts(
    client: Client, kinds: Iterable[JobKind], namespace: str, me: OperatorIdentity, now: datetime
) -> list[ConflictingOperator]:
    """The surest signs first."""
    here = Selector(namespace=namespace)
    operators = Selector(namespace=namespace, labels=f"{ROLE_LABEL} in ({KUBEFLOW_ROLE},{GANGLINE_ROLE})")
    found: list[ConflictingOperator] = []
    for name in {KUBEFLOW_LEASE, me.lease.name if me.lease else KUBEFLOW_LEASE}:
        named = Selector(namespace=namespace, fields=f"metadata.name={name}")
        found += [
            rival for lease in await _list_readable(client, Lease, named) for rival in lease_conflicts(lease, me, now)
        ]
    found += [
        rival for one in await _list_readable(client, DEPLOYMENTS, here) for rival in deployment_conflicts(one, me)
    ]
    found += [rival for pod in await _list_readable(client, Pod, operators) for rival in pod_conflicts(pod, me)]
    for kind in kinds:
        jobs = await _list_readable(client, _managed_resource(kind), here, unseen=(NotFound,))
        found += [rival for job in jobs for rival in status_writer_conflicts(kind, job, me, now)]
    return found


async def _list_readable(
    client: Client,
    kind: Kind[T],
    where: Selector,
    unseen: tuple[type[ApiError], ...] = (Forbidden, NotFound),
) -> list[T]:
    """All there are; none if the server says one of these."""
    try:
        return [found async for found in client.iterate(kind, where)]
    except unseen as error:
        log.debug("cannot look for other operators", extra={"error": str(error)})
        return []


# Signs


def lease_conflicts(lease: Lease, me: OperatorIdentity, now: datetime) -> Iterator[ConflictingOperator]:
    """A Lease that somebody holds and renews."""
    key, spec = lease.metadata.key, lease.spec
    if key == me.lease or not spec.holder_identity or spec.renew_time is None:
        return
    if now - spec.renew_time < timedelta(seconds=spec.lease_duration_seconds) + CLOCK_SKEW:
        what = f"{spec.holder_identity} holds lease {key}"
        yield ConflictingOperator(what, "stop that operator, or start both with --leader-elect in one namespace")


def deployment_conflicts(found: "Deployment", me: OperatorIdentity) -> Iterator[ConflictingOperator]:
    """A Deployment that runs the Kubeflow operator."""
    metadata, spec = found.metadata, found.spec
    template = spec.template
    images = [one.image for one in template.spec.containers if _OPERATOR_IMAGE.fullmatch(one.image)]
    labelled = template.metadata.labels.get(ROLE_LABEL) == KUBEFLOW_ROLE
    if not spec.replicas or not (images or labelled) or _runs_in(me, metadata.key):
        return
    what = f"deployment {metadata.key}" + (f" with image {images[0]}" if images else "")
    yield ConflictingOperator(what, f"kubectl -n {metadata.namespace} scale deployment {metadata.name} --replicas=0")


def _runs_in(me: OperatorIdentity, deployment: Key) -> bool:
    """Whether we are one of its pods: somebody has put our image into the Deployment that was there."""
    return me.pod.namespace == deployment.namespace and me.pod.name.startswith(f"{deployment.name}-")


def pod_conflicts(found: Pod, me: OperatorIdentity) -> Iterator[ConflictingOperator]:
    """A pod of either operator that runs, or will."""
    metadata = found.metadata
    over = found.status.phase in ("Succeeded", "Failed")
    allied = metadata.labels.get(ROLE_LABEL) == GANGLINE_ROLE and me.lease is not None
    if over or allied or metadata.key == me.pod:
        return
    yield ConflictingOperator(f"pod {metadata.key}", f"kubectl -n {metadata.namespace} delete pod {metadata.name}")


def status_writer_conflicts(
    kind: JobKind, found: "ManagedJob", me: OperatorIdentity, now: datetime
) -> Iterator[ConflictingOperator]:
    """A status that somebody else wrote just now, of a job that is ours to run: of others it is theirs to write."""
    if not is_managed_here(RunPolicy(managed_by=found.spec.run_policy.managed_by)):
        return
    for entry in found.metadata.managed_fields:
        if entry.subresource != "status" or entry.time is None or now - entry.time > RECENT_WRITE:
            continue
        if entry.manager != me.field_manager and not entry.manager.startswith(_HUMAN_MANAGERS):
            ago = max(0, int((now - entry.time).total_seconds()))
            key = Key(found.metadata.namespace, found.metadata.name)
            what = f"{entry.manager or 'somebody'} wrote the status of {kind.kind} {key} {ago} s ago"
            yield ConflictingOperator(what, f"stop it and wait {int(RECENT_WRITE.total_seconds())} s")


# What is read: only what decides


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
    """What runs in it, and how often."""

    spec: _DeploymentSpec = _DeploymentSpec()


class ManagerEntry(ApiStruct, frozen=True):
    manager: str = ""
    subresource: str = ""
    time: Time | None = None


class ManagedMeta(ApiStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    managed_fields: tuple[ManagerEntry, ...] = ()


class _ManagedByPolicy(ApiStruct, frozen=True):
    managed_by: str | None = None


class _ManagedBySpec(ApiStruct, frozen=True):
    run_policy: _ManagedByPolicy = _ManagedByPolicy()


class ManagedJob(ApiStruct, frozen=True):
    """A job, as far as who wrote it and who runs it."""

    metadata: ManagedMeta = ManagedMeta()
    spec: _ManagedBySpec = _ManagedBySpec()


DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", Deployment)


def _managed_resource(kind: JobKind) -> Resource[ManagedJob]:
    known = kind.resource
    return Resource(known.group, known.version, known.kind, known.plural, ManagedJob)

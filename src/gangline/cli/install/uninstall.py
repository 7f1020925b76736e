"""Removes an installation. Jobs and CRDs stay, unless their deletion is asked for and confirmed."""

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import click
import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.invocation import with_own_command
from gangline.cli.exit_codes import SUCCEEDED
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.plan import CRD_KIND, ChangeAction
from gangline.cli.install.record import HANDOVER_NAME, InstallationRecord, ObjectRef, record_ref
from gangline.cli.install.screen import InstallScreen, names_text
from gangline.cli.install.waiting import Waiter
from gangline.cli.resources.lookup import DEPLOYMENTS
from gangline.kube.client import Client
from gangline.kube.discovery import server_resources
from gangline.kube.errors import Conflict, Forbidden, KubeError, NotFound
from gangline.operator.conflicting_operators import Deployment, is_kubeflow_operator
from gangline.operator.settings import KUBEFLOW_LEASE
from gangline.scheduler.settings import LEASE_NAME as SCHEDULER_LEASE
from gangline.summary.job_state import is_finished
from gangline.summary.objects import JOB_KINDS, NAMESPACES, object_key

DEFAULT_CONTENT = {("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")}
"""What every namespace has."""
PASSING_KINDS = ("Event", "Endpoints", "EndpointSlice", "Lease", "Pod", "ReplicaSet", "ControllerRevision")
"""Kinds of objects that go by themselves when their owner has gone, or that nobody misses."""


class UninstallRequest(NamedTuple):
    """What to remove. With `confirmed`, no question is asked."""

    namespace: str
    delete_crds: bool = False
    confirmed: bool = False
    dry_run: bool = False
    timeout: timedelta = timedelta(minutes=5)


async def uninstall(client: Client, request: UninstallRequest, screen: InstallScreen, clock: Clock) -> int:
    """Remove what was installed in a namespace. Returns the exit code."""
    objects = ClusterObjects(client)
    waiter = Waiter(objects, screen, clock, request.timeout)
    record = await objects.read_record(request.namespace)
    if record is None:
        raise InputError(
            f"nothing is installed in namespace {request.namespace} by gangline install; name the namespace with"
            " --namespace, and remove a Helm release with helm uninstall"
        )
    # With the CRDs all jobs go; without, those that were served are without an operator.
    served = () if request.delete_crds else record.values.get("watchNamespaces") or ()
    jobs = await list_jobs(objects, served)
    crds = [ref for ref in record.objects if ref.kind == CRD_KIND]
    if request.delete_crds and not request.dry_run:
        confirm_deletion(crds, jobs, confirmed=request.confirmed)
    refs = [*removal_order(record), *leases(record, request.namespace), record_ref(request.namespace)]
    if request.dry_run:
        for ref in [*refs, *(crds if request.delete_crds else [])]:
            screen.show_change(ref, f"{ChangeAction.DELETED} (dry run)")
        return SUCCEEDED
    with screen:
        await _delete_all(objects, waiter, refs, screen)
        if request.delete_crds:
            for ref in crds:
                if await objects.delete(ref):
                    screen.show_change(ref, ChangeAction.DELETED)
        namespace_text = await _delete_namespace(client, record, request.namespace, screen)
        is_served = await has_kubeflow_operator(objects)
    kept_crds, kept_jobs = ([], []) if request.delete_crds else (crds, jobs)
    remaining = kept_text(kept_crds, kept_jobs, is_served=is_served)
    screen.say(*(line for line in (remaining, namespace_text) if line))
    return SUCCEEDED


async def list_jobs(objects: ClusterObjects, namespaces: Sequence[str] = ()) -> list[JSON]:
    """The jobs of some namespaces, or of the whole cluster, as far as they may be read."""
    places = [Selector(namespace) for namespace in namespaces] or [Selector()]
    return [job for kind in JOB_KINDS for place in places for job in await objects.list_readable(kind, place)]


def removal_order(record: InstallationRecord) -> list[ObjectRef]:
    """The objects to delete: the last first, but Deployments before all others, so that nothing acts without rights."""
    refs = [ref for ref in reversed(record.objects) if ref.kind not in (CRD_KIND, "Namespace")]
    return sorted(refs, key=lambda ref: ref.kind != "Deployment")


def leases(record: InstallationRecord, namespace: str) -> list[ObjectRef]:
    """The Leases that the components made themselves. Another version may have recorded values that we do not know."""
    election = record.values.get("leaderElection") or {}
    names = (election.get("leaseName") or KUBEFLOW_LEASE, SCHEDULER_LEASE)
    return [ObjectRef("coordination.k8s.io/v1", "Lease", namespace, name) for name in names]


async def _delete_all(
    objects: ClusterObjects, waiter: Waiter, refs: Sequence[ObjectRef], screen: InstallScreen
) -> None:
    stopped: list[JSON] = []
    for ref in refs:
        if stopped and ref.kind != "Deployment":
            # Pods that end give their Lease back, and need their rights for it.
            await waiter.wait_until_no_pods(stopped)
            stopped = []
        if ref.kind == "Deployment" and (body := await objects.read(ref)) is not None:
            stopped.append(body)
        if await objects.delete(ref):
            screen.show_change(ref, ChangeAction.DELETED)


def confirm_deletion(crds: Sequence[ObjectRef], jobs: Sequence[JSON], *, confirmed: bool) -> None:
    """Ask whether the CRDs are to be deleted with all jobs. Raises `InputError` where nobody can answer, or says no."""
    running = sum(not is_finished(job) for job in jobs)
    text = f"{len(crds)} definitions (CRDs) and with them {len(jobs)} jobs, of which {running} have not ended"
    if confirmed:
        return
    if not sys.stdin.isatty():
        raise InputError(f"--delete-crds deletes {text}; to do it without a question, add --yes")
    if not click.confirm(f"Delete {text}?", default=False, err=True):
        raise InputError("nothing was deleted")


async def has_kubeflow_operator(objects: ClusterObjects) -> bool:
    """Whether the Kubeflow operator runs, to which a handover may have given the jobs back."""
    deployments = msgspec.convert(await objects.list_readable(DEPLOYMENTS, Selector()), list[Deployment])
    return any(body.spec.replicas and is_kubeflow_operator(body) for body in deployments)


def kept_text(crds: Sequence[ObjectRef], jobs: Sequence[JSON], *, is_served: bool = False) -> str:
    """What stays in the cluster, in one line; empty if nothing does. `is_served`: another operator has the jobs."""
    if not crds and not jobs:
        return ""
    running = 0 if is_served else sum(not is_finished(job) for job in jobs)
    unserved = f" ({running} have not ended, and no operator looks after them now)" if running else ""
    return f"kept: {len(crds)} definitions (CRDs) and {len(jobs)} jobs{unserved}"


async def _delete_namespace(client: Client, record: InstallationRecord, namespace: str, screen: InstallScreen) -> str:
    """Delete the namespace if the installation made it and nothing of others is in it. Returns why it stays, or nothing."""
    refs = [ref for ref in record.objects if ref.kind == "Namespace"]
    if not refs:
        return f"kept: namespace {namespace}, which was there before"
    try:
        content = await namespace_content(client, namespace)
        if content:
            back = with_own_command("; gangline handover --back needs it")
            hint = back if HANDOVER_NAME in content[0] else ""
            return f"kept: namespace {namespace}, which holds {names_text(content)}{hint}"
        await client.delete(NAMESPACES, Key("", namespace))
    except NotFound:
        return ""
    except (Forbidden, Conflict) as error:
        return f"kept: namespace {namespace}: {error}"
    screen.show_change(refs[0], ChangeAction.DELETED)
    return ""


async def namespace_content(client: Client, namespace: str) -> list[str]:
    """The names of the objects in a namespace that are not there by default; those of a handover first."""
    names: dict[str, None] = {}
    for kind in await server_resources(client):
        resource = kind.resource
        if not resource.namespaced or "list" not in kind.verbs or resource.kind in PASSING_KINDS:
            continue
        try:
            bodies = (await client.list(resource, Selector(namespace))).items
        except NotFound:
            continue
        except KubeError:
            names[f"{resource.name} that cannot be listed"] = None
            continue
        for body in bodies:
            name = object_key(body).name
            if (resource.kind, name) not in DEFAULT_CONTENT and "deletionTimestamp" not in body["metadata"]:
                names[f"{resource.kind.lower()}/{name}"] = None
    return sorted(names, key=lambda name: (HANDOVER_NAME not in name, name))

"""Carries a handover out: the other operator stops, ours takes its jobs, and the way back. No pod of a job is touched."""

from collections.abc import Sequence
from typing import Any

from gangline import __version__
from gangline.api.core import Lease, Pod
from gangline.api.kubeflow.training import JOB_NAME
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.invocation import with_own_command
from gangline.cli.connect.server import ServerTarget
from gangline.cli.exit_codes import SUCCEEDED
from gangline.cli.handover.facts import (
    KubeflowObjects,
    back_lines,
    back_text,
    kubeflow_deployments,
    kubeflow_webhooks,
    rehearsal_lines,
    replicas,
    unfinished_text,
)
from gangline.cli.handover.operator_flags import MPI_VALUES, carried_values, deployed_settings
from gangline.cli.handover.record import (
    HANDOVER_SELECTOR,
    HandoverRecord,
    map_refs,
    read_handover,
    record_bodies,
    with_earlier,
)
from gangline.cli.handover.rehearsal import Rehearsal, rehearse
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.flag_values import merged, missing_values
from gangline.cli.install.install import Installer, InstallMode, effective_request, print_verdict
from gangline.cli.install.plan import ChangeAction
from gangline.cli.install.record import HANDOVER_NAME, InstallationRecord, ObjectRef, object_ref
from gangline.cli.install.request import (
    InstallObjects,
    InstallRequest,
    install_values,
    with_argument,
)
from gangline.cli.install.screen import InstallScreen
from gangline.cli.install.uninstall import list_jobs
from gangline.cli.install.waiting import NotReady
from gangline.cli.resources.lookup import BUILTIN_RESOURCES, DEPLOYMENTS
from gangline.cli.services.doctor import is_lease_held
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, NotFound
from gangline.operator.definitions import CRDS
from gangline.operator.settings import KUBEFLOW_LEASE, OperatorSettings
from gangline.summary.objects import JOB_KINDS

WEBHOOKS: tuple[Resource[JSON], ...] = tuple(
    Resource("admissionregistration.k8s.io", "v1", kind, f"{kind.lower()}s", dict[str, Any], namespaced=False)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
)
OPERATOR = "operator"
TAKE_OVER = "--take-over"
JOB_CRDS = tuple(
    f"{plural}.kubeflow.org" for plural in ("tfjobs", "pytorchjobs", "xgboostjobs", "mpijobs", "paddlejobs", "jaxjobs")
)


class Handover:
    """One handover on one server, there or back."""

    def __init__(self, client: Client, request: InstallRequest, screen: InstallScreen, clock: Clock) -> None:
        self._client, self._screen, self._clock = client, screen, clock
        self._installer = Installer(client, request, screen, clock)
        self._installer.objects = self._objects = ClusterObjects(client, force=request.force, force_crds=True)

    # There

    async def run(self, target: ServerTarget, *, confirmed: bool) -> int:
        """From the Kubeflow operator to ours; without `confirmed`, only say what would change."""
        installer = self._installer
        record = await self._objects.read_record(installer.request.namespace)
        mode = InstallMode(is_upgrade=record is not None)
        request = effective_request(installer.request, record, mode)
        earlier = await self._read_record(request.namespace)
        kubeflow = await self._read_kubeflow()
        if not kubeflow.is_running and not kubeflow.webhooks and earlier is None:
            raise InputError(
                "there is no Kubeflow training operator to take the jobs of: no Deployment of an image"
                " training-operator, no webhook of it; write gangline install"
            )
        carried = await self._carried_values(kubeflow, request)
        request = installer.request = request._replace(values=merged(carried, request.values))
        wanted = await installer.wanted_objects(record)
        plan = await installer.plan(wanted, record)
        rehearsal = await rehearse(self._client, _operator_settings(wanted), self._clock)
        self._screen.say(*rehearsal_lines(kubeflow, carried, plan, rehearsal))
        if not confirmed:
            self._screen.say(with_own_command("nothing was changed; to do it: gangline handover --yes"))
            return SUCCEEDED
        with self._screen:
            await self._save(wanted, with_earlier(kubeflow.record(), earlier))
            await self._stop(kubeflow.deployments)
            for body in kubeflow.webhooks:
                await self._delete(object_ref(body))
            try:
                await self._start_ours(wanted, record)
            except NotReady as error:
                raise NotReady(unfinished_text(str(error)), timed_out=error.timed_out) from error
        self._screen.say(await self._comparison_text(rehearsal, request))
        return await print_verdict(self._client, target, request) if request.wait else SUCCEEDED

    async def _read_kubeflow(self) -> KubeflowObjects:
        deployments = kubeflow_deployments(await self._list(DEPLOYMENTS))
        namespaces = [body["metadata"]["namespace"] for body in deployments]
        webhooks = [body for kind in WEBHOOKS for body in kubeflow_webhooks(await self._list(kind), namespaces)]
        crds = [await self._objects.read(ObjectRef(CRDS.api_version, CRDS.kind, "", name)) for name in JOB_CRDS]
        return KubeflowObjects(deployments, webhooks, [body for body in crds if body is not None])

    async def _list(self, resource: Resource[JSON]) -> list[JSON]:
        bodies = [body async for body in self._client.iterate(resource)]
        return [{"apiVersion": resource.api_version, "kind": resource.kind, **body} for body in bodies]

    async def _carried_values(self, kubeflow: KubeflowObjects, request: InstallRequest) -> JSON:
        """The values with which ours serves the same jobs in the same way, as far as they are not given."""
        carried = carried_values(kubeflow.deployments)
        if await self._has_mpi_jobs():
            carried = merged(carried, MPI_VALUES)
        return missing_values(carried, request.values)

    async def _has_mpi_jobs(self) -> bool:
        resource = next(kind for kind in JOB_KINDS if kind.kind == "MPIJob")
        try:
            return bool((await self._client.list(resource, limit=1)).items)
        except (Forbidden, NotFound):
            return False

    async def _save(self, wanted: InstallObjects, record: HandoverRecord) -> None:
        """Record what is taken away, before anything is."""
        for body in wanted.objects:
            if body["kind"] == "Namespace":
                await self._objects.apply(body)
        for body in record_bodies(record, self._installer.request.namespace):
            await self._objects.apply(body)
        self._screen.show_wait("kept for the way back", f"{len(record.objects)} objects", done=True)

    async def _stop(self, deployments: Sequence[JSON]) -> None:
        for body in deployments:
            metadata = body["metadata"]
            if replicas(body):
                await self._client.scale(DEPLOYMENTS, Key(metadata["namespace"], metadata["name"]), 0)
        await self._installer.waiter.wait_until_no_pods(deployments)

    async def _start_ours(self, wanted: InstallObjects, record: InstallationRecord | None) -> None:
        """Start our operator at once, though the other one wrote a status a moment ago, and then as it is to stay.

        The flag for that is removed when our operator holds its Lease, by which its successors know that it took over.
        """
        installer = self._installer
        first = wanted._replace(objects=with_argument(wanted.objects, OPERATOR, TAKE_OVER))
        await installer.apply(await installer.plan(first, record), record)
        if not installer.request.wait:
            self._screen.say(
                with_own_command(f"the operator keeps {TAKE_OVER}; to remove it when it runs: gangline upgrade")
            )
            return
        await installer.wait(first)
        if not install_values(installer.request.values).leader_election.enabled:
            return
        await self._wait_for_lease()
        deployments = [object_ref(body) for body in wanted.deployments]
        for body in wanted.deployments:
            await self._objects.apply(body)
        await installer.waiter.wait_for_rollouts(deployments)

    async def _wait_for_lease(self) -> None:
        request = self._installer.request
        name = install_values(request.values).leader_election.lease_name or KUBEFLOW_LEASE
        resource = self._client.unstructured(Lease)
        while True:
            try:
                lease = await self._client.get(resource, Key(request.namespace, name))
                if is_lease_held(lease, self._clock.now()):
                    return
            except (Forbidden, NotFound):
                pass
            await self._installer.waiter.pause(f"our operator does not hold the lease {request.namespace}/{name} yet")

    async def _comparison_text(self, before: Rehearsal, request: InstallRequest) -> str:
        """How many pods of jobs are the same as before."""
        namespaces = install_values(request.values).watch_namespaces or ("",)
        uids: set[str] = set()
        for namespace in namespaces:
            async for pod in self._client.iterate(Pod, Selector(namespace, JOB_NAME)):
                uids.add(pod.metadata.uid)
        same = len(before.pods & uids)
        ended = len(before.pods - uids)
        mended = f"; {len(before.changed)} jobs changed as announced" if before.changed else ""
        return (
            f"gangline {__version__} serves {len(before.effects)} jobs; {same} of {len(before.pods)} pods are the same as"
            f" before, {ended} ended{mended}"
        )

    # Back

    async def run_back(self, *, confirmed: bool) -> int:
        """From ours to the Kubeflow operator, with what was taken away."""
        installer = self._installer
        namespace = installer.request.namespace
        saved = await self._read_record(namespace)
        if saved is None:
            raise InputError(
                f"no handover is recorded in namespace {namespace}; name the namespace with --namespace, or install the"
                " Kubeflow operator by its own manifests"
            )
        jobs = await list_jobs(self._objects)
        self._screen.say(*back_lines(saved, len(jobs)))
        if not confirmed:
            self._screen.say(with_own_command("nothing was changed; to do it: gangline handover --back --yes"))
            return SUCCEEDED
        with self._screen:
            await self._stop_ours(namespace)
            for body in sorted(saved.objects, key=lambda body: body["kind"] != CRDS.kind):
                await self._objects.apply(body)
                self._screen.show_change(object_ref(body), ChangeAction.CONFIGURED)
            await self._start_theirs(saved)
            # The one that says that there is a record goes last, so that this can be repeated until nothing is left.
            for ref in sorted(map_refs(await self._maps(namespace)), key=lambda ref: ref.name == HANDOVER_NAME):
                await self._delete(ref)
        self._screen.say(back_text(saved, namespace))
        return SUCCEEDED

    async def _stop_ours(self, namespace: str) -> None:
        record = await self._objects.read_record(namespace)
        deployments = []
        for ref in record.objects if record else ():
            body = await self._objects.read(ref) if ref.kind == "Deployment" else None
            if body is not None and body["metadata"]["labels"].get("app.kubernetes.io/component") == OPERATOR:
                deployments.append(body)
                await self._client.scale(DEPLOYMENTS, ref.key, 0)
        await self._installer.waiter.wait_until_no_pods(deployments)

    async def _start_theirs(self, saved: HandoverRecord) -> None:
        refs = []
        for item in saved.deployments:
            try:
                await self._client.scale(DEPLOYMENTS, Key(item.namespace, item.name), item.replicas)
            except NotFound:
                self._screen.say(f"deployment {item.namespace}/{item.name} was deleted meanwhile: install it again")
                continue
            refs.append(ObjectRef(DEPLOYMENTS.api_version, DEPLOYMENTS.kind, item.namespace, item.name))
        if self._installer.request.wait:
            await self._installer.waiter.wait_for_rollouts(refs)

    # What is recorded

    async def _read_record(self, namespace: str) -> HandoverRecord | None:
        return read_handover(await self._maps(namespace))

    async def _maps(self, namespace: str) -> list[JSON]:
        config_maps = next(resource for resource, _ in BUILTIN_RESOURCES if resource.kind == "ConfigMap")
        return await self._objects.list_readable(config_maps, Selector(namespace, HANDOVER_SELECTOR))

    async def _delete(self, ref: ObjectRef) -> None:
        if await self._objects.delete(ref):
            self._screen.show_change(ref, ChangeAction.DELETED)


def _operator_settings(wanted: InstallObjects) -> OperatorSettings:
    """The settings of the operator that is about to be installed."""
    labels = "app.kubernetes.io/component"
    return next(
        deployed_settings(body) for body in wanted.deployments if body["metadata"]["labels"].get(labels) == OPERATOR
    )

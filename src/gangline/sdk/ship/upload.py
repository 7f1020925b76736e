"""Ships a folder: creates the ConfigMap, or the claim and the pod that fills it, and sets the job as owner."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.kube.client import Client
from gangline.kube.errors import NotFound, StreamBroken
from gangline.kube.pods import PodSubresources
from gangline.sdk.ship.archive import size_text
from gangline.sdk.ship.manifests import (
    ARCHIVE_NAME,
    LOADER_CONTAINER,
    SOURCE_DIR,
    Shipment,
    ShipmentForm,
    config_map,
    job_with_folder,
    loader_pod,
    owner_patch,
    replica_total,
    volume_claim,
)

CONFIG_MAPS: Resource[JSON] = Resource("", "v1", "ConfigMap", "configmaps", dict[str, Any])
VOLUME_CLAIMS: Resource[JSON] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", dict[str, Any])

POLL_INTERVAL = timedelta(milliseconds=500)
LOADER_START_TIMEOUT = timedelta(minutes=5)
"""How long the loader pod may take to start: its image is pulled and its volume provisioned."""


class ShippingFailed(GanglineError):
    """A folder could not be shipped. The message has the problem and the remedy."""


class ShipRequest(NamedTuple):
    """A shipment and the job it is for."""

    shipment: Shipment
    kind: JobKind
    body: JSON
    key: Key
    storage_class: str = ""


class ShippedFolder:
    """A folder in the cluster, and the manifest of the job that unpacks it."""

    def __init__(self, client: Client, order: ShipRequest, kind: Resource[JSON], name: str) -> None:
        self._client, self._request, self._kind = client, order, kind
        self.source_key = Key(order.key.namespace, name)
        self.body = job_with_folder(order.body, order.kind, order.shipment, name)
        self.has_owner = False

    async def set_owner(self, job: TrainingJob) -> None:
        """Make the job the owner of the folder, so that it is deleted with the job. Idempotent."""
        order = self._request
        body = owner_patch({"metadata": {"name": job.metadata.name}}, order.kind, job.metadata.uid)
        await self._client.patch(self._kind, self.source_key, body)
        self.has_owner = True

    async def delete(self) -> None:
        with suppress(NotFound):
            await self._client.delete(self._kind, self.source_key)


@asynccontextmanager
async def ship_folder(
    client: Client,
    order: ShipRequest,
    clock: Clock,
    tell: Callable[[str], None],
    patience: timedelta = LOADER_START_TIMEOUT,
) -> AsyncIterator[ShippedFolder]:
    """Ship a folder. It is deleted at the end of the block unless a job owns it by then.

    `tell` is called with messages about the progress. Raises `ShippingFailed` and `KubeError`.
    """
    if order.shipment.form is ShipmentForm.CLAIM:
        body = volume_claim(order.shipment, order.key.name, replica_total(order.body, order.kind), order.storage_class)
        kind = VOLUME_CLAIMS
    else:
        body, kind = config_map(order.shipment, order.key.name), CONFIG_MAPS
    created = await client.create(kind, body, namespace=order.key.namespace)
    shipped = ShippedFolder(client, order, kind, created["metadata"]["name"])
    try:
        if kind is VOLUME_CLAIMS:
            await _fill_claim(client, order, shipped.source_key, clock, tell, patience)
        yield shipped
    finally:
        if not shipped.has_owner:
            await shipped.delete()


async def _fill_claim(
    client: Client,
    order: ShipRequest,
    carrier: Key,
    clock: Clock,
    tell: Callable[[str], None],
    patience: timedelta,
) -> None:
    """Write the archive into the claim with a loader pod, and delete that pod."""
    body = loader_pod(carrier.name, order.key.name, order.body, order.kind)
    pod = await client.create(Pod, body, namespace=carrier.namespace)
    key = pod.metadata.key
    tell(f"the folder goes through pod {key.name}, which is starting ...")
    try:
        await _wait_until_running(client, key, clock, tell, patience)
        tell(f"sending {size_text(order.shipment.size)} ...")
        await upload_archive(client, key, order.shipment, f"{SOURCE_DIR}/{ARCHIVE_NAME}", container=LOADER_CONTAINER)
    finally:
        with suppress(NotFound):
            await client.delete(Pod, key, grace=timedelta())


async def _wait_until_running(
    client: Client, key: Key, clock: Clock, tell: Callable[[str], None], patience: timedelta
) -> None:
    deadline, last_reason = clock.monotonic() + patience.total_seconds(), ""
    while True:
        pod = await client.get(Pod, key)
        if pod.status.phase == PodPhase.RUNNING:
            return
        reason = pending_reason(pod)
        if pod.status.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED) or clock.monotonic() > deadline:
            raise ShippingFailed(
                f"pod {key.name}, which is to receive the folder, does not run: {reason or pod.status.phase}; "
                "a large folder needs a claim that all nodes can read: name one that offers this with "
                "--storage-class, or make the folder smaller with .gitignore"
            )
        if reason and reason != last_reason:
            tell(f"waiting for pod {key.name}: {reason}")
            last_reason = reason
        await clock.sleep(POLL_INTERVAL)


def pending_reason(pod: Pod) -> str:
    """Why a pod does not run yet, from its status; empty if that has no reason."""
    for status in pod.status.container_statuses:
        for state in (status.state.waiting, status.state.terminated):
            if state is not None and state.reason not in ("", "ContainerCreating", "PodInitializing"):
                return f"{state.reason}: {state.message}" if state.message else state.reason
    messages = (
        condition.message
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status != "True" and condition.message
    )
    return next(messages, pod.status.message)


async def upload_archive(client: Client, key: Key, shipment: Shipment, to: str, *, container: str) -> None:
    """Write the archive into a file in a container and compare its checksum. Raises `ShippingFailed`."""
    assert shipment.archive is not None
    pods, command = PodSubresources(client), ["dd", f"of={to}", "bs=65536"]
    # A command that ends while much input is unsent may break the stream before its error arrives. So it is tried with
    # empty input first.
    empty = await pods.run(key, command, container=container, stdin=b"")
    if empty.exit_code:
        raise ShippingFailed(f"pod {key.name} cannot keep the folder: {_single_line(empty.stderr) or empty.exit_code}")
    with shipment.archive.open("rb") as archive:
        try:
            upload = await pods.run(key, command, container=container, stdin=archive)
        except StreamBroken as error:
            raise ShippingFailed(f"pod {key.name} did not take the whole folder: {error}; try again") from error
    if upload.exit_code:
        problem = _single_line(upload.stderr) or upload.exit_code
        raise ShippingFailed(f"pod {key.name} did not take the whole folder: {problem}")
    digest = await pods.run(key, ["sha256sum", to], container=container)
    if digest.stdout[: len(shipment.digest)].decode(errors="replace") != shipment.digest:
        problem = _single_line(digest.stderr) or "its sum is another one"
        raise ShippingFailed(f"the folder did not arrive in pod {key.name} as it was sent: {problem}; try again")


def _single_line(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())

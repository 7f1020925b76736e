"""Carries out what `shipping` says: makes the ConfigMap, or the claim and what fills it, and gives it to the job."""

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
"""How long the pod that fills a claim may take to start: an image is pulled, a volume is made."""


class ShippingFailed(GanglineError):
    """A folder could not be brought to the cluster. The message says what stood in the way, and what to do."""


class ShipRequest(NamedTuple):
    """What is to be sent, for which job, and where that will be."""

    shipment: Shipment
    kind: JobKind
    body: JSON
    key: Key
    storage_class: str = ""


class ShippedFolder:
    """A folder that is in the cluster, and the job that unpacks it."""

    def __init__(self, client: Client, order: ShipRequest, kind: Resource[JSON], name: str) -> None:
        self._client, self._request, self._kind = client, order, kind
        self.source_key = Key(order.key.namespace, name)
        self.body = job_with_folder(order.body, order.kind, order.shipment, name)
        self.has_owner = False

    async def set_owner(self, job: TrainingJob) -> None:
        """From now on it goes when the job does. Idempotent."""
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
    """The folder in the cluster. What belongs to no job when the block ends is taken back.

    Raises `ShippingFailed`, and what the server says against it.
    """
    if order.shipment.form is ShipmentForm.CLAIM:
        body = volume_claim(order.shipment, order.key.name, replica_total(order.body, order.kind), order.storage_class)
        kind = VOLUME_CLAIMS
    else:
        body, kind = config_map(order.shipment, order.key.name), CONFIG_MAPS
    made = await client.create(kind, body, namespace=order.key.namespace)
    found = ShippedFolder(client, order, kind, made["metadata"]["name"])
    try:
        if kind is VOLUME_CLAIMS:
            await _fill_claim(client, order, found.source_key, clock, tell, patience)
        yield found
    finally:
        if not found.has_owner:
            await found.delete()


async def _fill_claim(
    client: Client,
    order: ShipRequest,
    carrier: Key,
    clock: Clock,
    tell: Callable[[str], None],
    patience: timedelta,
) -> None:
    """The archive goes into the claim, through a pod that is gone afterwards."""
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
    end, told = clock.monotonic() + patience.total_seconds(), ""
    while True:
        pod = await client.get(Pod, key)
        if pod.status.phase == PodPhase.RUNNING:
            return
        why = pending_reason(pod)
        if pod.status.phase in (PodPhase.FAILED, PodPhase.SUCCEEDED) or clock.monotonic() > end:
            raise ShippingFailed(
                f"pod {key.name}, which is to receive the folder, does not run: {why or pod.status.phase}; "
                "a large folder needs a claim that all nodes can read: name one that offers this with "
                "--storage-class, or make the folder smaller with .gitignore"
            )
        if why and why != told:
            tell(f"waiting for pod {key.name}: {why}")
            told = why
        await clock.sleep(POLL_INTERVAL)


def pending_reason(pod: Pod) -> str:
    """Why a pod does not run yet, as the cluster has it; empty when it says nothing."""
    for status in pod.status.container_statuses:
        for state in (status.state.waiting, status.state.terminated):
            if state is not None and state.reason not in ("", "ContainerCreating", "PodInitializing"):
                return f"{state.reason}: {state.message}" if state.message else state.reason
    unmet = [found for found in pod.status.conditions if found.type == "PodScheduled" and found.status != "True"]
    return next((found.message for found in unmet if found.message), pod.status.message)


async def upload_archive(client: Client, key: Key, shipment: Shipment, to: str, *, container: str) -> None:
    """Write the archive into a file of a container. Raises `ShippingFailed` where what arrived is not what was sent."""
    assert shipment.archive is not None
    pods, command = PodSubresources(client), ["dd", f"of={to}", "bs=65536"]
    # Of a command that ends early one may not hear why, when there is much left to send. So nothing is sent at first.
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


def _single_line(said: bytes) -> str:
    return " ".join(said.decode(errors="replace").split())

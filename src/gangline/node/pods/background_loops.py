"""Loops that run beside the containers of a pod: progress reports, sizes of volumes, updates of volumes."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from gangline.api.core import Pod
from gangline.base.tasks import run_every
from gangline.node.checkpoint import PodFolder
from gangline.node.pod_types import RunPod
from gangline.node.pods.context import NodeContext
from gangline.node.pods.plan import Termination
from gangline.node.volumes.files import is_made_of_objects
from gangline.node.volumes.mounts import eviction_message
from gangline.node.volumes.refresh import VolumeRefresher


async def watch_progress(report: Callable[[], None], context: NodeContext) -> None:
    """Call `report` regularly, until cancelled."""

    async def poll() -> None:
        report()

    await run_every(context.report_limiter.poll_interval, poll, context.clock)


async def watch_volume_sizes(
    pod: RunPod,
    volumes: Callable[[], Mapping[str, Path]],
    terminate: Callable[[Termination], bool],
    context: NodeContext,
) -> None:
    """Evict the pod when an emptyDir exceeds its size limit. Returns at once if no volume has a limit."""
    if not any(volume.empty_dir and volume.empty_dir.size_limit != "0" for volume in pod.spec.volumes):
        return

    async def check() -> None:
        message = await asyncio.to_thread(eviction_message, pod, volumes())
        if message and terminate(Termination("Evicted", message)):
            context.record_event(pod, "Warning", "Evicted", message)

    await run_every(context.settings.size_period, check, context.clock)


def volume_refresher(
    pod: RunPod, latest: Callable[[], Pod], folder: PodFolder, context: NodeContext
) -> VolumeRefresher | None:
    """Updates the pod's volumes that are made of objects; None if the pod has none. `latest` is the cached pod."""
    if not any(map(is_made_of_objects, pod.spec.volumes)):
        return None

    def current() -> RunPod:
        metadata = latest().metadata
        labelled = msgspec.structs.replace(pod.metadata, labels=metadata.labels, annotations=metadata.annotations)
        return msgspec.structs.replace(pod, metadata=labelled)

    return VolumeRefresher(context.client, context.volumes, current, folder, context.clock)

"""From what a user asks of a node to what it is made of. Wrong wishes are told before anything starts."""

import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gangline.base.errors import InputError
from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import StateFolder
from gangline.node.network.bridge_client import BridgeClient, NetworkUnavailable
from gangline.node.resources import DeviceManager, parse_capacity
from gangline.node.runtime.api import ContainerRuntime
from gangline.node.runtime.images import ImageMappings
from gangline.node.runtime.podman import ContainerEngineRuntime
from gangline.node.runtime.process_runtime import ProcessRuntime
from gangline.node.settings import ISOLATED_NETWORK, PROCESS_RUNTIME, SHARED_NETWORK, NodeSettings


def node_settings(
    *,
    capacity: Iterable[str] = (),
    images: Path | None = None,
    runtime: str = PROCESS_RUNTIME,
    network: str = SHARED_NETWORK,
    name: str = "local",
) -> NodeSettings:
    """The options of a command line. Raises `InputError`."""
    if runtime != PROCESS_RUNTIME:
        engine_program(runtime)
    if images is not None:
        ImageMappings.load(images)
    if network == ISOLATED_NETWORK and sys.platform != "linux":
        raise InputError("--network isolated: needs Linux; leave it out to share loopback")
    if network == ISOLATED_NETWORK and runtime != PROCESS_RUNTIME:
        raise InputError(f"--network isolated: is for processes; leave it out with --runtime {runtime}")
    if network == ISOLATED_NETWORK:
        check_network()
    return NodeSettings(name=name, capacity=parse_capacity(capacity), images=images, runtime=runtime, network=network)


def engine_program(runtime: str) -> str:
    """The file of a container program. Raises `InputError`."""
    found = shutil.which(runtime)
    if found is None:
        raise InputError(f"--runtime {runtime}: no such program; install {runtime}, or leave the option out")
    return found


def check_network() -> None:
    """Whether this machine lets us. Raises `InputError`."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        hub = BridgeClient(Path(folder))
        try:
            hub.open()
        except NetworkUnavailable as error:
            raise InputError(f"--network isolated: {error}; leave it out to share loopback") from error
        finally:
            hub.stop()


def create_runtime(
    wanted: NodeSettings, folder: Path, state: StateFolder, devices: DeviceManager, access: PlaneAccess | None
) -> ContainerRuntime:
    """What the settings say. Raises `InputError` where it is not there."""
    if wanted.runtime != PROCESS_RUNTIME:
        return ContainerEngineRuntime(engine_program(wanted.runtime), wanted.runtime, wanted)
    images = ImageMappings.load(wanted.images) if wanted.images is not None else ImageMappings()
    return ProcessRuntime(folder, state, wanted, images, devices, access)

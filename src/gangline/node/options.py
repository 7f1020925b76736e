"""From what a user asks of a node to what it is made of. Wrong wishes are told before anything starts."""

import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gangline.base.errors import InputError
from gangline.kube.config.access import Access
from gangline.node.checkpoint import StateFolder
from gangline.node.network.bridge_client import HubClient, NoNetwork
from gangline.node.resources import Devices, parse_capacity
from gangline.node.runtime.api import Runtime
from gangline.node.runtime.images import Images
from gangline.node.runtime.podman import Containers
from gangline.node.runtime.process_runtime import Native
from gangline.node.settings import ISOLATED, PROCESS, SHARED, NodeSettings


def settings(
    *,
    capacity: Iterable[str] = (),
    images: Path | None = None,
    runtime: str = PROCESS,
    network: str = SHARED,
    name: str = "local",
) -> NodeSettings:
    """The options of a command line. Raises `InputError`."""
    if runtime != PROCESS:
        program(runtime)
    if images is not None:
        Images.load(images)
    if network == ISOLATED and sys.platform != "linux":
        raise InputError("--network isolated: needs Linux; leave it out to share loopback")
    if network == ISOLATED and runtime != PROCESS:
        raise InputError(f"--network isolated: is for processes; leave it out with --runtime {runtime}")
    if network == ISOLATED:
        try_network()
    return NodeSettings(
        name=name, capacity=parse_capacity(capacity), images=images, runtime=runtime, network=network
    )


def program(runtime: str) -> str:
    """The file of a container program. Raises `InputError`."""
    found = shutil.which(runtime)
    if found is None:
        raise InputError(f"--runtime {runtime}: no such program; install {runtime}, or leave the option out")
    return found


def try_network() -> None:
    """Whether this machine lets us. Raises `InputError`."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        hub = HubClient(Path(folder))
        try:
            hub.open()
        except NoNetwork as error:
            raise InputError(f"--network isolated: {error}; leave it out to share loopback") from error
        finally:
            hub.end()


def chosen_runtime(
    wanted: NodeSettings, folder: Path, state: StateFolder, devices: Devices, access: Access | None
) -> Runtime:
    """What the settings say. Raises `InputError` where it is not there."""
    if wanted.runtime != PROCESS:
        return Containers(program(wanted.runtime), wanted.runtime, wanted)
    images = Images.load(wanted.images) if wanted.images is not None else Images()
    return Native(folder, state, wanted, images, devices, access)

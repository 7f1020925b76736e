"""Node settings from command-line options, and the runtime for settings. Invalid options fail before the start."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gangline.base.errors import InputError
from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import StateFolder
from gangline.node.devices.detect import detect_gpus
from gangline.node.network.bridge_client import BridgeClient, NetworkUnavailable
from gangline.node.pod_types import RunPod
from gangline.node.resources import DeviceManager, parse_capacity
from gangline.node.runtime.auto import AutoRuntime, engine_problem
from gangline.node.runtime.images import ImageMappings, parse_image_map
from gangline.node.runtime.podman import ContainerEngineRuntime
from gangline.node.runtime.process_runtime import ProcessRuntime
from gangline.node.runtime.runtime import ContainerRuntime
from gangline.node.settings import (
    AUTO_RUNTIME,
    ENGINES,
    ISOLATED_NETWORK,
    PROCESS_RUNTIME,
    SHARED_NETWORK,
    NodeSettings,
)


def node_settings(
    *,
    capacity: Iterable[str] = (),
    images: Path | None = None,
    image_map: Iterable[str] = (),
    runtime: str = AUTO_RUNTIME,
    network: str = SHARED_NETWORK,
    name: str = "local",
) -> NodeSettings:
    """The settings for the options of a command line. Raises `InputError`."""
    if runtime in ENGINES:
        check_engine(runtime)
    mappings = tuple(image_map)
    ImageMappings.load(images, parse_image_map(mappings))
    if network == ISOLATED_NETWORK and runtime in ENGINES:
        raise InputError(f"--network isolated: is for processes; leave it out with --runtime {runtime}")
    if network == ISOLATED_NETWORK:
        check_network()
    return NodeSettings(
        name=name,
        capacity=parse_capacity(capacity),
        gpus=detect_gpus(os.environ, quick=True),
        images=images,
        image_map=mappings,
        # The engines share the machine's network.
        runtime=PROCESS_RUNTIME if network == ISOLATED_NETWORK else runtime,
        network=network,
    )


def engine_program(runtime: str) -> str:
    """The program file of podman or docker. Raises `InputError`."""
    program = shutil.which(runtime)
    if program is None:
        raise InputError(f"--runtime {runtime}: no such program; install {runtime}, or leave the option out")
    return program


def check_engine(runtime: str) -> None:
    """Check that podman or docker answers: else every pod would wait for its image. Raises `InputError`."""
    problem = engine_problem(engine_program(runtime))
    if problem:
        raise InputError(f"--runtime {runtime}: start it, or leave the option out; it does not answer: {problem}")


def check_network() -> None:
    """Check that this machine allows isolated networks. Raises `InputError`."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        bridge = BridgeClient(Path(folder))
        try:
            bridge.open()
        except NetworkUnavailable as error:
            raise InputError(f"--network isolated: {error}; leave it out to share loopback") from error
        finally:
            bridge.stop()


def create_runtime(
    settings: NodeSettings,
    folder: Path,
    state: StateFolder,
    devices: DeviceManager,
    access: PlaneAccess | None,
    hides_gpus: Callable[[RunPod], bool],
) -> ContainerRuntime:
    """The runtime that the settings select. Raises `InputError` where its program is missing."""
    if settings.runtime in ENGINES:
        return ContainerEngineRuntime(engine_program(settings.runtime), settings.runtime, settings, access)
    images = ImageMappings.load(settings.images, parse_image_map(settings.image_map))
    processes = ProcessRuntime(folder, state, settings, images, devices, access, hides_gpus)
    return AutoRuntime(processes, settings, access) if settings.runtime == AUTO_RUNTIME else processes

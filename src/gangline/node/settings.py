"""The settings of a node."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.node.devices.gpus import Gpu

AUTO_RUNTIME, PROCESS_RUNTIME, ENGINES = "auto", "process", ("podman", "docker")
SHARED_NETWORK, ISOLATED_NETWORK = "shared", "isolated"
LOCAL_IMAGE = "local"
"""The image of a job that runs as processes of this machine, which needs none."""


class Backoff(msgspec.Struct, frozen=True):
    """How long a container that ended waits before it is started again. The first restart is immediate."""

    initial: timedelta = timedelta(seconds=10)
    maximum: timedelta = timedelta(minutes=5)
    # A run that lasted this long was healthy: the restart after it counts as the first.
    reset_after: timedelta = timedelta(minutes=10)

    def delay(self, restarts: int) -> timedelta:
        """The wait before the next restart, after so many restarts in a row: it doubles up to the maximum."""
        return min(self.maximum, self.initial * (1 << min(restarts - 1, 20))) if restarts else timedelta()


class NodeSettings(msgspec.Struct, frozen=True):
    """Everything that can be configured about a node. Defaults are the kubelet's where the kubelet has one."""

    name: str = "local"
    backoff: Backoff = Backoff()
    # Wait before a missing dependency (a ConfigMap, a claim) is read again.
    retry_interval: timedelta = timedelta(seconds=2)
    # How long the logs of a deleted pod are kept.
    log_retention: timedelta = timedelta(minutes=1)
    max_log_bytes: int = 10 * 2**20
    max_log_files: int = 5
    # Whether processes outlive an orderly end of the node. They always outlive its crash; the next node adopts them.
    leave_running: bool = False
    # How long a process may take to end by itself when the node ends. None: as long as its pod grants it.
    shutdown_grace: timedelta | None = timedelta(milliseconds=500)
    # Extended resources, and amounts that replace the machine's own: {"nvidia.com/gpu": "4"}.
    capacity: Mapping[str, str] = {}
    # The GPUs of the machine, which are offered to pods.
    gpus: tuple[Gpu, ...] = ()
    # The file that maps images to environments of this machine.
    images: Path | None = None
    # Mappings of single images, as `--image-map` writes them; they take precedence over the file.
    image_map: tuple[str, ...] = ()
    # What runs containers: `process`, `podman`, `docker`, or `auto`: processes, and an engine where they need images.
    runtime: str = PROCESS_RUNTIME
    # Whether pods share loopback (`shared`) or each pod has its own network (`isolated`).
    network: str = SHARED_NETWORK
    # Ports on loopback that pods with their own network reach, too, at the name of the API server.
    shared_ports: tuple[int, ...] = ()
    # How often memory and volume sizes are measured.
    memory_period: timedelta = timedelta(milliseconds=250)
    size_period: timedelta = timedelta(seconds=5)
    # The shortest time between two writes of a pod's progress annotation.
    progress_period: timedelta = timedelta(seconds=5)
    # A cgroup folder delegated to us: the kernel then enforces memory limits. None: a watchdog of the node does.
    cgroup: Path | None = None
    # How often the Lease is renewed, and the longest time between two writes of the Node's status.
    lease_period: timedelta = timedelta(seconds=10)
    status_period: timedelta = timedelta(minutes=5)
    # The port of `api.server.serve_node_api`, written into the Node for a real kube-apiserver. 0: logs are not served.
    kubelet_port: int = 0
    # Path of each job's artifacts folder, with {namespace} and {job} in it; never removed. None: no such folder.
    artifacts: Path | None = None

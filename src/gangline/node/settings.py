"""How a node behaves: one value."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.node.pods.plan import Backoff

PROCESS_RUNTIME, SHARED_NETWORK, ISOLATED_NETWORK = "process", "shared", "isolated"


class NodeSettings(msgspec.Struct, frozen=True):
    """Everything that can be set about a node; the defaults are the kubelet's where it has one."""

    name: str = "local"
    backoff: Backoff = Backoff()
    # How soon something that was missing (a ConfigMap, a claim) is looked for again.
    retry_interval: timedelta = timedelta(seconds=2)
    # For how long the logs of a pod stay after the pod is gone.
    log_retention: timedelta = timedelta(minutes=1)
    max_log_bytes: int = 10 * 2**20
    max_log_files: int = 5
    # Whether processes outlive the node's orderly end. They always outlive its crash, and are adopted again.
    leave_running: bool = False
    # What a process has to end by itself when the node ends.
    shutdown_grace: timedelta = timedelta(milliseconds=500)
    # Extended resources, and what replaces the machine's own: {"nvidia.com/gpu": "4"}.
    capacity: Mapping[str, str] = {}
    # The mapping of images to this machine.
    images: Path | None = None
    # What runs containers: `process`, `podman` or `docker`.
    runtime: str = PROCESS_RUNTIME
    # Whether pods share loopback (`shared`) or each has a network of its own (`isolated`).
    network: str = SHARED_NETWORK
    # How often memory and volume sizes are looked at.
    memory_period: timedelta = timedelta(milliseconds=250)
    size_period: timedelta = timedelta(seconds=5)
    # How often the progress that a pod reports is written into its annotation, at most.
    progress_period: timedelta = timedelta(seconds=5)
    # A cgroup folder that belongs to us (delegated): memory limits are then the kernel's. None: a watchdog.
    cgroup: Path | None = None
    # How often the Lease is renewed, and how often the Node's status is written at least.
    lease_period: timedelta = timedelta(seconds=10)
    status_period: timedelta = timedelta(minutes=5)
    # Where `kubelet.serving_logs` answers, written into the Node for a real kube-apiserver. 0: nowhere.
    kubelet_port: int = 0
    # A folder of each job's own, which stays: a path with {namespace} and {job} in it. None: there is none.
    artifacts: Path | None = None

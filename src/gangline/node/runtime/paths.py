"""Paths of a container that runs as a process: `/data/x` is replaced by a path in the folder mounted at `/data`.

A mount needs privileges, so the node rewrites paths where it sees them: in command, arguments, literal environment
values and the working directory. It does not see a path that is built into a program; such a program finds its volumes
in `GANGLINE_VOLUME_<NAME>`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gangline.api.kubeflow.training import JOB_NAME
from gangline.base.files import private_folder
from gangline.base.host_features import has_linux_features
from gangline.node.pod_types import RunPod

TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a mount point
"""Where containers find the token of their service account."""
SHARED_MEMORY_MOUNT = "/dev/shm"  # noqa: S108 - a mount point


class PathMapping:
    """Path prefixes of a container and their paths on this machine. The longest prefix wins."""

    def __init__(self, prefixes: Mapping[str, Path]) -> None:
        # Programs expect the machine's own shared memory. macOS has none that is a folder.
        unmapped = {"/", SHARED_MEMORY_MOUNT} if has_linux_features() else {"/"}
        mapped = {prefix.rstrip("/"): path for prefix, path in prefixes.items() if prefix not in unmapped}
        self._host_paths = {prefix: str(path) for prefix, path in mapped.items() if prefix}
        longest = sorted(self._host_paths, key=len, reverse=True)
        # A prefix matches at the beginning of a path, as whole names: /data matches neither /data2 nor /my/data.
        self._pattern = re.compile(
            rf"(?<![\w./-])({'|'.join(map(re.escape, longest))})(?![\w.-])" if longest else r"(?!)"
        )

    def translate(self, text: str) -> str:
        """The text with every mapped path replaced."""
        return self._pattern.sub(lambda match: self._host_paths[match[1]], text)


def volume_variable(volume: str) -> str:
    """The environment variable that names a volume's folder."""
    return "GANGLINE_VOLUME_" + re.sub(r"[^A-Z0-9]", "_", volume.upper())


ARTIFACTS_VARIABLE = "GANGLINE_ARTIFACTS"
ARTIFACTS_MOUNT = "/gangline/artifacts"
"""Where a container with its own file system mounts the artifacts folder."""


def ensure_artifacts_folder(pattern: Path | None, pod: RunPod) -> Path | None:
    """The artifacts folder of a pod's job, created if missing; None without a job, or if it cannot be created."""
    job = pod.metadata.labels.get(JOB_NAME)
    if pattern is None or not job:
        return None
    path = str(pattern).replace("{namespace}", pod.metadata.namespace).replace("{job}", job)
    with suppress(OSError):
        private_folder(Path(path))
        return Path(path)
    return None

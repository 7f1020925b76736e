"""Paths of a container on a machine without containers: `/data/x` becomes the folder that `/data` stands for.

A process cannot be given a mount without privileges, so the node rewrites paths where it can see them: in command,
arguments, literal environment values and the working directory. A path that a program has built in is not seen; such
a program finds its volumes in `GANGLINE_VOLUME_<NAME>`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gangline.api.kubeflow.training import JOB_NAME
from gangline.node.types import RunPod

UNMAPPED_PREFIXES = ("/dev/shm", "/")  # noqa: S108 - a mount point
"""Mount points that are there on every machine, and must stay what programs take them for."""


class PathMapping:
    """Prefixes of paths and what they stand for. The longest prefix wins."""

    def __init__(self, prefixes: Mapping[str, Path]) -> None:
        known = {prefix.rstrip("/"): real for prefix, real in prefixes.items() if prefix not in UNMAPPED_PREFIXES}
        self._host_paths = {prefix: str(real) for prefix, real in known.items() if prefix}
        longest = sorted(self._host_paths, key=len, reverse=True)
        # A prefix counts where a path begins, and only as whole names: /data is not in /data2, nor in /my/data.
        self._pattern = re.compile(
            rf"(?<![\w./-])({'|'.join(map(re.escape, longest))})(?![\w.-])" if longest else r"(?!)"
        )

    def translate(self, text: str) -> str:
        """The text with every known path replaced."""
        return self._pattern.sub(lambda found: self._host_paths[found[1]], text)


def volume_variable(volume: str) -> str:
    """The environment variable that names a volume's folder."""
    return "GANGLINE_VOLUME_" + re.sub(r"[^A-Z0-9]", "_", volume.upper())


ARTIFACTS_VARIABLE = "GANGLINE_ARTIFACTS"
ARTIFACTS_MOUNT = "/gangline/artifacts"
"""Where a container with a file system of its own has it."""


def ensure_artifacts_folder(pattern: Path | None, pod: RunPod) -> Path | None:
    """The folder of a pod's job, made when missing; None for a pod of no job, and where no folder can be made."""
    job = pod.metadata.labels.get(JOB_NAME)
    if pattern is None or not job:
        return None
    path = str(pattern).replace("{namespace}", pod.metadata.namespace).replace("{job}", job)
    with suppress(OSError):
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(path)
    return None

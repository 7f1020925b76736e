"""A folder of each job's own for what its programs make, told to them in `GANGLINE_ARTIFACTS`. It outlives its pods."""

from contextlib import suppress
from pathlib import Path

from gangline.api.kubeflow.training import JOB_NAME
from gangline.node.types import RunPod

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

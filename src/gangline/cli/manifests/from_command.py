"""A job from a command, for users with a script and no YAML. Pure."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePath

from gangline.api.kubeflow.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import GROUP, VERSION, JobKind
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, QuantityError
from gangline.base.errors import InputError
from gangline.sdk.build.pod_templates import escaped_word

SCRIPT_KINDS: tuple[JobKind, ...] = (PYTORCHJOB, TFJOB, JAXJOB, XGBOOSTJOB, PADDLEJOB)
MASTER_AND_WORKER = ("Master", "Worker")
MAX_NAME_LENGTH = 40
LOCAL_IMAGE = "local"
"""The image of a job that runs as processes of this machine, which needs none."""


def job_from_command(
    kind: str, command: Sequence[str], nproc: int, *, image: str = LOCAL_IMAGE, limits: Sequence[str] = ()
) -> tuple[JobKind, JSON]:
    """A job of `nproc` replicas that all run the command. Raises `InputError`.

    A PyTorchJob or XGBoostJob has a master, which counts as a replica; the other kinds have workers only. Replicas are
    never restarted: a script that fails should say so at once. `limits` are the resource limits of each: `cpu=2`.
    """
    job_kind = next((candidate for candidate in SCRIPT_KINDS if candidate.kind.lower() == kind.lower()), None)
    if job_kind is None:
        names = ", ".join(candidate.kind for candidate in SCRIPT_KINDS)
        raise InputError(f"--kind {kind}: a job from a script is one of {names}; for others write a file")
    if nproc < 1:
        raise InputError(f"--nproc {nproc}: expected 1 or more")
    if not command:
        raise InputError("--nproc: no command; write: gangline run --nproc 4 -- python train.py")
    container: JSON = {"name": job_kind.container, "image": image, "command": [*map(escaped_word, command)]}
    if limits:
        container["resources"] = {"limits": dict(map(parse_limit, limits))}
    template = {"spec": {"containers": [container]}}
    return job_kind, {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": job_kind.kind,
        "metadata": {"name": job_name(command)},
        "spec": {
            job_kind.replicas: {
                name: {"replicas": number, "restartPolicy": "Never", "template": template}
                for name, number in replica_counts(job_kind, nproc).items()
                if number
            }
        },
    }


def parse_limit(text: str) -> tuple[str, str]:
    """The resource name and the amount in `nvidia.com/gpu=1`. Raises `InputError`."""
    name, equals, amount = text.partition("=")
    try:
        Quantity.parse(amount)
    except QuantityError:
        equals = ""
    if not name or not equals:
        raise InputError(f"--limit {text}: expected NAME=AMOUNT; write: --limit nvidia.com/gpu=1")
    return name, amount


def replica_counts(kind: JobKind, nproc: int) -> dict[str, int]:
    """The number of replicas by replica type."""
    if kind in (PYTORCHJOB, XGBOOSTJOB):
        return dict(zip(MASTER_AND_WORKER, (1, nproc - 1), strict=True))
    return {"Worker": nproc}


def job_name(command: Sequence[str]) -> str:
    """A job name from its command: `train` for `python train.py`."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    modules = [after for before, after in pairwise(command) if before == "-m"]
    word = PurePath((scripts or modules or command)[0]).stem
    name = re.sub(r"[^a-z0-9]+", "-", word.lower())[:MAX_NAME_LENGTH].strip("-") or "job"
    # Services are named after the job, and their names must begin with a letter.
    return name if name[0].isalpha() else f"job-{name}"

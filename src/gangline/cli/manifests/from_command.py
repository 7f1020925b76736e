"""A job from a command, for users with a script and no YAML. Pure."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from gangline.api.accelerators import GPU_RESOURCES, with_resource_names
from gangline.api.kubeflow.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import (
    ALL_REPLICAS,
    GROUP,
    RESTART_SCOPE_ANNOTATION,
    SUCCESS_POLICY_ANNOTATION,
    VERSION,
    JobKind,
    RestartScope,
)
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, QuantityError, meant_memory
from gangline.base.errors import InputError
from gangline.cli.manifests.processes import Machine, ProcessCount
from gangline.node.settings import LOCAL_IMAGE
from gangline.sdk.build.pod_templates import escaped_word

SCRIPT_KINDS: tuple[JobKind, ...] = (PYTORCHJOB, TFJOB, JAXJOB, XGBOOSTJOB, PADDLEJOB)
RESOURCE_NAMES = ("cpu", "memory", "gpu", "ephemeral-storage")
MASTER_AND_WORKER = ("Master", "Worker")
MAX_NAME_LENGTH = 40
ELASTIC_RESTARTS = 3
"""How often torchrun forms the team of an elastic job anew, unless the user says it."""
TORCHRUN_MODULE = "torch.distributed.run"
_PYTHON = re.compile(r"python[0-9.]*")


class CommandJob(NamedTuple):
    """A job that is made from a command."""

    kind: str
    command: tuple[str, ...]
    processes: ProcessCount
    image: str = LOCAL_IMAGE
    # Resource limits and environment variables of each process.
    limits: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    # How often the team is started again after a failure. None: not given.
    max_restarts: int | None = None


def job_from_command(request: CommandJob) -> tuple[JobKind, JSON]:
    """A job of which every replica runs the command. Raises `InputError`.

    A PyTorchJob or XGBoostJob has a master, which counts as a replica; the other kinds have workers only. Replicas are
    not restarted unless `max_restarts` is given: a script that fails should say so at once. Then the whole team starts
    again, as with torchrun: the replicas that are left cannot go on without the one that failed. The job succeeds when
    every process has, also as with torchrun: one that fails after rank 0 has ended fails the job.
    """
    kind = _script_kind(request.kind)
    if not request.command:
        raise InputError("--nproc: no command; write: gangline run --nproc 4 -- python train.py")
    if request.max_restarts is not None and request.max_restarts < 0:
        raise InputError(f"--max-restarts {request.max_restarts}: expected 0 or more")
    if request.processes.is_elastic:
        return kind, _elastic_body(kind, request)
    counts = {name: number for name, number in replica_counts(kind, request.processes.most).items() if number}
    restarts = request.max_restarts or 0
    body = _body(request, kind, request.command, counts, "OnFailure" if restarts else "Never")
    if kind is PYTORCHJOB and not any(name in request.limits for name in GPU_RESOURCES.values()):
        # The default, auto, makes a torchrun without --nproc-per-node start a process for each core, in each replica.
        body["spec"]["nprocPerNode"] = "1"
    if request.processes.most > 1:
        body["metadata"]["annotations"] = {SUCCESS_POLICY_ANNOTATION: ALL_REPLICAS}
    if restarts:
        _add_team_restarts(body, restarts)
    return kind, body


def _add_team_restarts(body: JSON, limit: int) -> None:
    # An annotation: the field of our CRDs is unknown to those of the Kubeflow operator.
    body["metadata"].setdefault("annotations", {})[RESTART_SCOPE_ANNOTATION] = RestartScope.JOB.value
    body["spec"]["runPolicy"] = {"backoffLimit": limit}


def _script_kind(name: str) -> JobKind:
    kind = next((candidate for candidate in SCRIPT_KINDS if candidate.kind.lower() == name.lower()), None)
    if kind is None:
        names = ", ".join(candidate.kind for candidate in SCRIPT_KINDS)
        raise InputError(f"--kind {name}: a job from a script is one of {names}; for others write a file")
    return kind


def _elastic_body(kind: JobKind, request: CommandJob) -> JSON:
    """A job of workers under torchrun, which keeps the team going when a process of it is lost."""
    most, least = request.processes
    if kind is not PYTORCHJOB:
        raise InputError(
            f"--nproc {least}:{most}: a range is for a PyTorchJob, which torchrun keeps going; for a {kind.kind} write --nproc {most}"
        )
    restarts = ELASTIC_RESTARTS if request.max_restarts is None else request.max_restarts
    # torchrun itself may be lost, and one of them hosts the rendezvous: then all of them meet anew.
    rounds = 1 if request.max_restarts is None else request.max_restarts
    body = _body(request, kind, torchrun_command(request.command), {"Worker": most}, "OnFailure" if rounds else "Never")
    if rounds:
        _add_team_restarts(body, rounds)
    body["spec"]["nprocPerNode"] = "1"
    body["spec"]["elasticPolicy"] = {
        "minReplicas": least,
        "maxReplicas": most,
        "maxRestarts": restarts,
        "rdzvBackend": "c10d",
    }
    return body


def torchrun_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command under torchrun, which is a module of the same Python. Raises `InputError` for options of Python.

    Commands other than Python stay: they may be torchrun, or a script that calls it.
    """
    program, *words = command
    if not is_python(program) or TORCHRUN_MODULE in words:
        return tuple(command)
    # torchrun starts the script unbuffered by itself, and has a -m of its own.
    words = words[1:] if words[:1] == ["-u"] else words
    if words[:1] and words[0].startswith("-") and words[0] != "-m":
        raise InputError(f"--nproc: torchrun cannot pass {words[0]} to Python; write: -- torchrun train.py")
    return (program, "-m", TORCHRUN_MODULE, *words)


def is_python(program: str) -> bool:
    """Whether a program is a Python interpreter, by its name."""
    return _PYTHON.fullmatch(PurePath(program).name) is not None


def _body(
    request: CommandJob, kind: JobKind, command: Sequence[str], counts: Mapping[str, int], restart_policy: str
) -> JSON:
    container: JSON = {"name": kind.container, "image": request.image, "command": [*map(escaped_word, command)]}
    if request.env:
        container["env"] = [{"name": name, "value": value} for name, value in request.env.items()]
    if request.limits:
        container["resources"] = {"limits": dict(request.limits)}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind.kind,
        "metadata": {"name": job_name(request.command)},
        "spec": {
            kind.replicas: {
                name: {"replicas": number, "restartPolicy": restart_policy, "template": template}
                for name, number in counts.items()
            }
        },
    }


def process_env(processes: int, machine: Machine, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for processes that share this machine, except those that the user has set.

    Numeric libraries start a thread for each core: as many processes would slow each other down.
    """
    if processes <= 1 or "OMP_NUM_THREADS" in environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, machine.cores // processes))}


def parse_limits(texts: Sequence[str], machine: Machine) -> dict[str, str]:
    """Resource limits by name. `gpu` is the GPU of this machine. Raises `InputError`."""
    return with_resource_names(dict(map(parse_limit, texts)), machine.gpu_resource)


def limits_with_gpu(limits: Mapping[str, str], processes: int, machine: Machine) -> dict[str, str]:
    """The limits, with one GPU for each of several processes if there are enough and no limit asks for GPUs."""
    asks = any(name in limits for name in GPU_RESOURCES.values())
    if asks or not 1 < processes <= len(machine.gpus):
        return dict(limits)
    return {**limits, machine.gpu_resource: "1"}


def parse_limit(text: str) -> tuple[str, str]:
    """The resource name and the amount in `gpu=1`. Raises `InputError`."""
    name, equals, amount = text.partition("=")
    if not name or not equals:
        raise InputError(f"--limit {text}: expected NAME=AMOUNT; write: --limit gpu=1")
    if "," in amount:
        several = " ".join(f"--limit {part}" for part in text.split(","))
        raise InputError(f"--limit {text}: expected one NAME=AMOUNT; write: {several}")
    if name.lower() not in RESOURCE_NAMES and "/" not in name and not name.startswith("hugepages-"):
        similar = get_close_matches(name, RESOURCE_NAMES, 1, 0.4)
        raise InputError(f"--limit {text}: {name} is no resource; write: --limit {(similar or ['memory'])[0]}={amount}")
    try:
        quantity = Quantity.parse(amount)
    except QuantityError as error:
        raise InputError(f"--limit {text}: {error}") from error
    if name == "memory" and (meant := meant_memory(quantity)):
        raise InputError(f"--limit {text}: is a number of bytes; write: --limit memory={meant}")
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

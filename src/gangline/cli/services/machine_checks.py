"""Whether jobs can run on this machine. `observe_machine` looks, `machine_results` judges what it saw."""

import importlib.metadata
import os
import platform
import re
import resource
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gangline.base.host_features import usable_cpus
from gangline.cli.resources.machine import Amount, folder_disk, list_gpus, program_output, state_disk
from gangline.cli.services.check_result import RESULT_ERROR, RESULT_OK, RESULT_WARNING, CheckResult
from gangline.kube.errors import ConfigError
from gangline.local.paths import home_folder

FRAMEWORKS = ("torch", "tensorflow", "jax", "xgboost", "paddlepaddle", "mpi4py", "horovod")
"""The packages of training frameworks, as they are installed."""
ENGINES = ("podman", "docker")
MIN_DISK, LOW_DISK = 200 * 2**20, 2 * 2**30
LOW_MEMORY = 512 * 2**20
LOW_OPEN_FILES, LOW_PROCESSES = 1024, 512
LOW_SHARED_MEMORY = 2**30
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the mount point, not a file of ours
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([^;]*)")
_BOUND = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9.]+)")


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What `doctor` looks at on this machine."""

    python: str
    # The folder of the Python environment, and whether it is a virtual one.
    environment: str
    is_virtual: bool
    # Requirement -> installed version; empty if it is not installed.
    requirements: Mapping[str, str] = {}
    frameworks: Mapping[str, str] = {}
    cpus: int
    memory: Amount
    state_folder: str
    is_state_writable: bool
    state_disk: Amount
    temporary_folder: str
    temporary_disk: Amount
    # Why no port of this machine can be listened on; empty if one can.
    port_error: str = ""
    # Program -> its version; without the programs that are not installed.
    programs: Mapping[str, str] = {}
    # Why no container engine that is installed can be used; empty if one can, or none is installed.
    engine_error: str = ""
    gpus: tuple[str, ...] = ()
    # None: no limit.
    open_files: int | None = None
    processes: int | None = None
    # None: this system has no /dev/shm.
    shared_memory: Amount | None = None
    # None: the kubeconfig cannot be read, which the check of the server reports.
    contexts: tuple[str, ...] | None = ()
    current_context: str = ""


def observe_machine(environ: Mapping[str, str] = os.environ) -> MachineFacts:
    """Look at this machine. Changes nothing."""
    import psutil

    memory = psutil.virtual_memory()
    state_folder = home_folder(None, environ=environ)
    contexts, current = _kubeconfig_contexts(environ)
    return MachineFacts(
        python=platform.python_version(),
        environment=sys.prefix,
        is_virtual=sys.prefix != sys.base_prefix or "CONDA_PREFIX" in environ,
        requirements=_installed(importlib.metadata.requires("gangline") or ()),
        frameworks={name: version for name in FRAMEWORKS if (version := _version(name))},
        cpus=usable_cpus(),
        memory=Amount(memory.total - memory.available, memory.total),
        state_folder=str(state_folder),
        is_state_writable=_is_writable(state_folder),
        state_disk=state_disk(),
        temporary_folder=tempfile.gettempdir(),
        temporary_disk=folder_disk(Path(tempfile.gettempdir())),
        port_error=_port_error(),
        programs={name: _program_version(name) for name in (*ENGINES, "kubectl") if shutil.which(name)},
        engine_error=_engine_error(),
        gpus=tuple(gpu.name for gpu in list_gpus()),
        open_files=_limit(resource.RLIMIT_NOFILE),
        processes=_limit(resource.RLIMIT_NPROC),
        shared_memory=folder_disk(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None,
        contexts=contexts,
        current_context=current,
    )


def machine_results(facts: MachineFacts) -> list[CheckResult]:
    """What is in place on this machine for jobs to run, and what is not."""
    return [
        _check_python(facts),
        _check_packages(facts),
        _check_frameworks(facts),
        _check_memory(facts),
        *_check_disk(facts),
        _check_ports(facts),
        *_check_limits(facts),
        *_check_shared_memory(facts),
        _check_gpus(facts),
        _check_engines(facts),
        _check_kubectl(facts),
        *_check_contexts(facts),
    ]


def _check_python(facts: MachineFacts) -> CheckResult:
    kind = "a virtual environment" if facts.is_virtual else "no virtual environment"
    text = f"{facts.python} in {facts.environment} ({kind})"
    if facts.is_virtual:
        return CheckResult("python", RESULT_OK, text)
    remedy = "to keep packages of projects apart: python3 -m venv .venv && . .venv/bin/activate"
    return CheckResult("python", RESULT_OK, text, remedy)


def _check_packages(facts: MachineFacts) -> CheckResult:
    wrong = [
        f"{requirement} ({installed or 'not installed'})"
        for requirement, installed in facts.requirements.items()
        if not satisfies(requirement, installed)
    ]
    if wrong:
        names = " ".join(f"'{text.rpartition(' (')[0]}'" for text in wrong)
        remedy = f"{sys.executable} -m pip install {names}"
        return CheckResult("packages", RESULT_ERROR, f"gangline needs {', '.join(wrong)}", remedy)
    count = len(facts.requirements)
    return CheckResult("packages", RESULT_OK, f"the {count} packages that gangline needs, in versions that it supports")


def satisfies(requirement: str, installed: str) -> bool:
    """Whether an installed version is in the bounds of a requirement such as `click>=8.3,<9`."""
    match = _REQUIREMENT.match(requirement)
    if match is None or not installed:
        return False
    version = _release(installed)
    for operator, text in _BOUND.findall(match[2]):
        bound = _release(text)
        size = max(len(version), len(bound))
        left, right = (*version, *[0] * (size - len(version))), (*bound, *[0] * (size - len(bound)))
        holds = {
            ">=": left >= right,
            "<=": left <= right,
            "==": left == right,
            "!=": left != right,
            "<": left < right,
            ">": left > right,
        }
        if not holds[operator]:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else ()


def _check_frameworks(facts: MachineFacts) -> CheckResult:
    if facts.frameworks:
        names = ", ".join(f"{name} {version}" for name, version in facts.frameworks.items())
        return CheckResult("frameworks", RESULT_OK, f"{names} in this Python")
    remedy = f"install yours where your script runs, such as: {shlex.quote(sys.executable)} -m pip install torch"
    return CheckResult("frameworks", RESULT_OK, "no training framework in this Python; the demo needs none", remedy)


def _check_memory(facts: MachineFacts) -> CheckResult:
    text = f"{facts.cpus} CPUs; {size_text(facts.memory.free)} of {size_text(facts.memory.total)} memory free"
    if facts.memory.free < LOW_MEMORY:
        remedy = "end programs that you do not need; gangline top shows what is in use"
        return CheckResult("machine", RESULT_WARNING, text, remedy)
    return CheckResult("machine", RESULT_OK, text)


def _check_disk(facts: MachineFacts) -> Iterator[CheckResult]:
    if not facts.is_state_writable:
        remedy = "choose a folder of yours: export GANGLINE_HOME=~/gangline"
        yield CheckResult("disk", RESULT_ERROR, f"{facts.state_folder} cannot be written", remedy)
    for folder, disk, variable in (
        (facts.state_folder, facts.state_disk, "GANGLINE_HOME"),
        (facts.temporary_folder, facts.temporary_disk, "TMPDIR"),
    ):
        text = f"{size_text(disk.free)} free for {folder}"
        remedy = f"free some space, or choose another disk: export {variable}=FOLDER"
        if disk.free < MIN_DISK:
            yield CheckResult("disk", RESULT_ERROR, text, remedy)
        elif disk.free < LOW_DISK:
            yield CheckResult("disk", RESULT_WARNING, text, remedy)
        else:
            yield CheckResult("disk", RESULT_OK, text)


def _check_ports(facts: MachineFacts) -> CheckResult:
    if facts.port_error:
        remedy = "bring up the loopback interface: ip link set lo up"
        return CheckResult("ports", RESULT_ERROR, f"127.0.0.1 cannot be listened on: {facts.port_error}", remedy)
    return CheckResult("ports", RESULT_OK, "127.0.0.1 has free ports, which replicas use to talk to each other")


def _check_limits(facts: MachineFacts) -> Iterator[CheckResult]:
    for name, limit, least, flag in (
        ("open files", facts.open_files, LOW_OPEN_FILES, "-n 4096"),
        ("processes", facts.processes, LOW_PROCESSES, "-u 4096"),
    ):
        text = f"at most {limit} {name}" if limit is not None else f"{name} without a limit"
        if limit is not None and limit < least:
            yield CheckResult("limits", RESULT_WARNING, text, f"before you start large jobs: ulimit {flag}")
        else:
            yield CheckResult("limits", RESULT_OK, text)


def _check_shared_memory(facts: MachineFacts) -> Iterator[CheckResult]:
    if facts.shared_memory is None:
        return
    text = f"{size_text(facts.shared_memory.free)} free in {SHARED_MEMORY}"
    if facts.shared_memory.free < LOW_SHARED_MEMORY:
        remedy = "data loaders with workers may die of a bus error; in a container: docker run --shm-size=8g"
        yield CheckResult("shared mem", RESULT_WARNING, text, remedy)
    else:
        yield CheckResult("shared mem", RESULT_OK, text)


def _check_gpus(facts: MachineFacts) -> CheckResult:
    if not facts.gpus:
        return CheckResult("gpus", RESULT_OK, "none detected; jobs train on the CPU")
    counts = {name: facts.gpus.count(name) for name in facts.gpus}
    return CheckResult("gpus", RESULT_OK, ", ".join(f"{count} x {name}" for name, count in counts.items()))


def _check_engines(facts: MachineFacts) -> CheckResult:
    engines = [facts.programs[name] or name for name in ENGINES if name in facts.programs]
    if engines:
        broken = f"; not usable: {facts.engine_error}; replicas run as processes" if facts.engine_error else ""
        return CheckResult("containers", RESULT_OK, ", ".join(engines) + broken)
    return CheckResult("containers", RESULT_OK, "neither podman nor docker; replicas run as processes of this machine")


def _check_kubectl(facts: MachineFacts) -> CheckResult:
    if "kubectl" in facts.programs:
        return CheckResult("kubectl", RESULT_OK, facts.programs["kubectl"] or "installed")
    return CheckResult("kubectl", RESULT_OK, "not installed; gangline does not need it")


def _check_contexts(facts: MachineFacts) -> Iterator[CheckResult]:
    if facts.contexts is None:
        return
    if not facts.contexts:
        yield CheckResult("clusters", RESULT_OK, "no kubeconfig; jobs run on this machine")
        return
    names = ", ".join(f"{name} (current)" if name == facts.current_context else name for name in facts.contexts)
    yield CheckResult("clusters", RESULT_OK, f"contexts: {names}")


def size_text(size: float) -> str:
    """`1.5 GiB`, `200 MiB`."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


# Observation


def _installed(requirements: Sequence[str]) -> dict[str, str]:
    """The installed version of each requirement that this installation has; those of extras are left out."""
    names = {text.partition(";")[0].strip(): text for text in requirements if "extra ==" not in text}
    return {text: _version(match[1]) for text in names if (match := _REQUIREMENT.match(text)) is not None}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_writable(folder: Path) -> bool:
    """Whether a folder can be written or, if it does not exist, created."""
    folder = folder.absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _port_error() -> str:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _engine_error() -> str:
    from gangline.node.runtime.auto import find_engine

    return find_engine()[1] if any(map(shutil.which, ENGINES)) else ""


def _program_version(name: str) -> str:
    words = ("version", "--client") if name == "kubectl" else ("--version",)
    return next((line.strip() for line in program_output((name, *words)).splitlines() if line.strip()), "")


def _limit(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft


def _kubeconfig_contexts(environ: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str]:
    """The contexts of the kubeconfig, None if it cannot be read, and the current one."""
    from gangline.kube.config.kubeconfig import KubeconfigFile, merge_kubeconfigs, read_kubeconfig

    files = [Path(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    present = [file for file in files or [Path.home() / ".kube" / "config"] if file.exists()]
    if not present:
        return (None if files else ()), ""
    try:
        config = merge_kubeconfigs([read_kubeconfig(KubeconfigFile(file, str(file))) for file in present])
    except ConfigError:
        return None, ""
    return tuple(config.contexts), config.current_context

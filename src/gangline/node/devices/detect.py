"""Detects the GPUs of this machine. Fast where there are none: no program starts, no library loads."""

import functools
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gangline.base.errors import InputError
from gangline.node.devices import amd, nvidia
from gangline.node.devices.gpus import AMD, APPLE, NVIDIA, RESOURCES, Gpu, visible_gpus

log = logging.getLogger(__name__)

VARIABLE = "GANGLINE_GPUS"
"""Replaces the detection: `none`, or `nvidia=4` and `amd=2` for GPUs that do not exist."""
SMI_TIMEOUT, KILL_TIMEOUT = 5.0, 0.5
ROOT = Path("/")


def detect_gpus(environ: Mapping[str, str] = os.environ, *, quick: bool = False, root: Path = ROOT) -> tuple[Gpu, ...]:
    """The GPUs of this machine that the variables in `environ` leave visible. Raises `InputError`.

    `quick` starts no program where the driver's files are enough; the memory of the GPUs is then not known. A program
    that does not answer is given up after a while, with one warning.
    """
    declared = environ.get(VARIABLE)
    if declared is not None:
        return visible_gpus(parse_declared(declared), environ)
    gpus = (*_nvidia_gpus(environ, root, quick=quick), *amd.kernel_gpus(root), *_apple_gpus())
    return visible_gpus(gpus, environ) if gpus else ()


def parse_declared(text: str) -> tuple[Gpu, ...]:
    """GPUs that exist only in a text such as `nvidia=4,amd=2`. Raises `InputError`."""
    gpus: list[Gpu] = []
    for word in () if text in ("", "none") else text.split(","):
        vendor, _, count = word.strip().partition("=")
        if vendor not in RESOURCES or not count.isdecimal():
            raise InputError(f"{VARIABLE}={text}: write none, {NVIDIA}=4 or {AMD}=2")
        gpus += [
            Gpu(vendor, index, f"{vendor} test GPU", f"GPU-{index:08x}", 16 * 2**30, str(index))
            for index in range(int(count))
        ]
    return tuple(gpus)


def measure_gpus(environ: Mapping[str, str], *, root: Path = ROOT) -> dict[tuple[str, str], tuple[int, int]]:
    """Percent and bytes in use, by resource name and id, of the GPUs whose use can be measured. Blocking."""
    gpus = detect_gpus(environ, quick=True, root=root)
    text = ""
    if any(gpu.vendor == NVIDIA for gpu in gpus) and VARIABLE not in environ:
        program = shutil.which(nvidia.SMI, path=environ.get("PATH"))
        text = run_program(program, nvidia.USAGE_QUERY) if program is not None else ""
    measured = nvidia.parse_usage(text)
    usage: dict[tuple[str, str], tuple[int, int]] = {}
    for gpu in gpus:
        amount = measured.get(gpu.uuid or gpu.id) if gpu.vendor == NVIDIA else amd.usage(root, gpu)
        if amount is not None and gpu.vendor in RESOURCES:
            resource = RESOURCES[gpu.vendor]
            usage[resource, gpu.id] = amount
            # A shell may name it by its UUID.
            usage |= {(resource, gpu.uuid): amount} if gpu.uuid else {}
    return usage


def _nvidia_gpus(environ: Mapping[str, str], root: Path, *, quick: bool) -> tuple[Gpu, ...]:
    files = nvidia.driver_gpus(root)
    named = all(gpu.uuid for gpu in files)
    if quick and files and named and not nvidia.has_mig_instances(root):
        return files
    program = shutil.which(nvidia.SMI, path=environ.get("PATH"))
    if program is None:
        return files
    text = run_once(program, nvidia.QUERY)
    if nvidia.is_refused(text):
        text = run_once(program, nvidia.OLD_QUERY)
    # Without an answer the driver's files still tell how many GPUs there are.
    gpus = nvidia.parse_query(text) or files
    return nvidia.parse_list(run_once(program, nvidia.LIST), gpus) or gpus if nvidia.has_mig(text) else gpus


def _apple_gpus() -> tuple[Gpu, ...]:
    # One GPU, which all processes share.
    machine = os.uname()
    is_apple = machine.sysname == "Darwin" and machine.machine == "arm64"
    return (Gpu(APPLE, 0, "Apple GPU", id="0"),) if is_apple else ()


def run_program(program: str, words: tuple[str, ...], *, timeout: float = SMI_TIMEOUT) -> str:
    """The output of a program, whatever its exit code; empty, with a warning, if it does not answer in time."""
    try:
        process = subprocess.Popen(
            [program, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        log.warning("GPUs are not detected", extra={"program": program, "error": str(error)})
        return ""
    output = _output_within(process, timeout)
    if output is None:
        # An error, because `gangline run` shows no warnings of its node.
        log.error(
            "no answer: GPUs may be missing; GANGLINE_GPUS=none goes without them",
            extra={"program": program, "seconds": timeout},
        )
        return ""
    return output.decode(errors="replace")


def _output_within(process: subprocess.Popen[bytes], timeout: float) -> bytes | None:
    try:
        return process.communicate(timeout=timeout)[0]
    except subprocess.TimeoutExpired:
        process.kill()
    # A program that waits for a dead driver cannot be killed, and is not waited for.
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=KILL_TIMEOUT)
    return None


run_once = functools.cache(run_program)
"""`run_program`, with the same answer for the life of this process: GPUs do not come and go."""

"""Whether a folder goes along with a job, and what is said about that."""

import os.path
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gangline.base.errors import InputError
from gangline.cli.run.request import Job
from gangline.sdk.build.pod_templates import trainers
from gangline.sdk.ship.archive import Parcel, amount, parcel
from gangline.sdk.ship.manifests import Form, Shipment, ready, wanting

_BETWEEN = re.compile(r"[\s;&|<>()'\"=,]+")
CARRIED = {Form.FILES: "a ConfigMap", Form.ARCHIVE: "a ConfigMap, packed", Form.CLAIM: "a claim, packed"}
SHOWN = 3


class Cargo(NamedTuple):
    """A job, the folder that goes with it, if one does, and what a person should know about that."""

    job: Job
    shipment: Shipment | None = None
    notes: tuple[str, ...] = ()


def cargo_of(job: Job, scratch: Path, limit: int, *, ship: bool | None = None) -> Cargo:
    """What goes: always with a command, with a file if it names another one of its folder; `ship` says otherwise.

    A container that has a working directory of its own has no place for a folder. Raises `InputError`.
    """
    named = set(mentioned(job))
    if ship is False or not (ship or job.scripted or named):
        return Cargo(job)
    if not wanting(job.body, job.facts):
        if not ship:
            return Cargo(job)
        raise InputError(
            f"--ship: {job.shown} has a workingDir in every container that trains; take it out, so that the folder can be there"
        )
    found = parcel(job.folder, limit)
    if not found.items:
        return Cargo(job)
    shipment = ready(found, scratch)
    return Cargo(job, shipment, (*_told(shipment), *_left_out(found, named)))


def mentioned(job: Job) -> Iterator[str]:
    """Files of the job's folder that its commands name, as paths from there."""
    for container in trainers(job.body, job.facts):
        words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
        tokens = [token for word in words for token in _BETWEEN.split(word) if token]
        modules = [after.replace(".", "/") for before, after in pairwise(tokens) if before == "-m"]
        names = [*tokens, *(f"{each}{end}" for each in modules for end in (".py", "/__main__.py"))]
        for name in names:
            path = os.path.normpath(name)
            if not path.startswith((os.sep, os.pardir)) and _is_file(job.folder / path):
                yield Path(path).as_posix()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # A word that is no path at all: too long, or with a zero in it.
        return False


def _told(shipment: Shipment) -> Iterator[str]:
    found = shipment.parcel
    files = "1 file" if len(found.items) == 1 else f"{len(found.items)} files"
    yield f"shipping {found.folder}: {files}, {amount(found.size)}, in {CARRIED[shipment.form]}"
    if found.skipped:
        more = "" if len(found.skipped) <= SHOWN else f" and {len(found.skipped) - SHOWN} more"
        yield f"warning: not shipped, for they are no files: {', '.join(found.skipped[:SHOWN])}{more}"


def _left_out(found: Parcel, named: set[str]) -> Iterator[str]:
    for path in sorted(named):
        if not found.holds(path):
            yield f"warning: {path} is not shipped: .gitignore leaves it out, and the command names it"

"""Whether a folder goes along with a job, and what is said about that."""

import os.path
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from gangline.base.errors import InputError
from gangline.cli.run.request import RunJob
from gangline.sdk.build.pod_templates import training_containers
from gangline.sdk.ship.archive import FileList, list_files, size_text
from gangline.sdk.ship.manifests import Shipment, ShipmentForm, plan_shipment, wants_folder

_WORD_SEPARATORS = re.compile(r"[\s;&|<>()'\"=,]+")
CARRIER_TEXT = {
    ShipmentForm.FILES: "a ConfigMap",
    ShipmentForm.ARCHIVE: "a ConfigMap, packed",
    ShipmentForm.CLAIM: "a claim, packed",
}
MAX_SKIPPED_SHOWN = 3


class Bundle(NamedTuple):
    """A job, the folder that goes with it, if one does, and what a person should know about that."""

    job: RunJob
    shipment: Shipment | None = None
    notes: tuple[str, ...] = ()


def bundle_of(job: RunJob, scratch: Path, limit: int, *, ship: bool | None = None) -> Bundle:
    """What goes: always with a command, with a file if it names another one of its folder; `ship` says otherwise.

    A container that has a working directory of its own has no place for a folder. Raises `InputError`.
    """
    named = set(mentioned_files(job))
    if ship is False or not (ship or job.from_command or named):
        return Bundle(job)
    if not wants_folder(job.body, job.kind):
        if not ship:
            return Bundle(job)
        raise InputError(
            f"--ship: {job.display_name} has a workingDir in every container that trains; take it out, so that the folder can be there"
        )
    found = list_files(job.folder, limit)
    if not found.files:
        return Bundle(job)
    shipment = plan_shipment(found, scratch)
    return Bundle(job, shipment, (*_shipment_notes(shipment), *_ignored_file_warnings(found, named)))


def mentioned_files(job: RunJob) -> Iterator[str]:
    """Files of the job's folder that its commands name, as paths from there."""
    for container in training_containers(job.body, job.kind):
        words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
        tokens = [token for word in words for token in _WORD_SEPARATORS.split(word) if token]
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


def _shipment_notes(shipment: Shipment) -> Iterator[str]:
    found = shipment.files
    files = "1 file" if len(found.files) == 1 else f"{len(found.files)} files"
    yield f"shipping {found.folder}: {files}, {size_text(found.size)}, in {CARRIER_TEXT[shipment.form]}"
    if found.skipped:
        more = "" if len(found.skipped) <= MAX_SKIPPED_SHOWN else f" and {len(found.skipped) - MAX_SKIPPED_SHOWN} more"
        yield f"warning: not shipped, for they are no files: {', '.join(found.skipped[:MAX_SKIPPED_SHOWN])}{more}"


def _ignored_file_warnings(found: FileList, named: set[str]) -> Iterator[str]:
    for path in sorted(named):
        if not found.has_file(path):
            yield f"warning: {path} is not shipped: .gitignore leaves it out, and the command names it"

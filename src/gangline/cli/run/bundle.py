"""Decides whether a job's folder is shipped with it to the cluster, and what to print about that."""

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
from gangline.sdk.ship.inspection import (
    FolderInspection,
    inspect_files,
    named_files,
    printable,
    refusal_message,
    suspicion_lines,
)
from gangline.sdk.ship.manifests import Shipment, ShipmentForm, plan_shipment, wants_folder

_WORD_SEPARATORS = re.compile(r"[\s;&|<>()'\"=,]+")
CARRIER_TEXT = {
    ShipmentForm.FILES: "a ConfigMap",
    ShipmentForm.ARCHIVE: "a ConfigMap, packed",
    ShipmentForm.CLAIM: "a claim, packed",
}
MAX_SKIPPED_SHOWN = 3


class Bundle(NamedTuple):
    """A job, the folder to ship with it (if any), and notes for the user."""

    job: RunJob
    shipment: Shipment | None = None
    notes: tuple[str, ...] = ()


def bundle_of(
    job: RunJob, scratch: Path, limit: int, *, ship: bool | None = None, ship_secrets: bool = False
) -> Bundle:
    """The job with its folder, if that is to be shipped; `ship` overrides the default.

    By default the folder of a command is shipped, and that of a manifest if the manifest mentions a file in it. A folder
    cannot be shipped if every training container sets a workingDir: then `ship=True` raises `InputError`. So do
    credentials in the folder and links out of it, unless `ship_secrets`.
    """
    mentioned = set(mentioned_files(job))
    if ship is False or not (ship or job.from_command or mentioned):
        return Bundle(job)
    if not wants_folder(job.body, job.kind):
        if not ship:
            return Bundle(job)
        raise InputError(
            f"--ship: {job.display_name} has a workingDir in every container that trains; take it out, so that the folder can be there"
        )
    files = list_files(job.folder, limit)
    if not files.files:
        return Bundle(job)
    inspection = inspect_files(files)
    if inspection.refused and not ship_secrets:
        raise InputError(refusal_message(job.folder, inspection.refused, "--ship-secrets"))
    shipment = plan_shipment(files, scratch)
    notes = (*_shipment_notes(shipment), *_secret_warnings(inspection), *_ignored_file_warnings(files, mentioned))
    return Bundle(job, shipment, notes)


def mentioned_files(job: RunJob) -> Iterator[str]:
    """Files of the job's folder that its commands mention, as paths relative to the folder."""
    for container in training_containers(job.body, job.kind):
        words = [str(word) for part in ("command", "args") for word in container.get(part) or ()]
        tokens = [token for word in words for token in _WORD_SEPARATORS.split(word) if token]
        modules = [after.replace(".", "/") for before, after in pairwise(tokens) if before == "-m"]
        names = [*tokens, *(f"{module}{end}" for module in modules for end in (".py", "/__main__.py"))]
        for name in names:
            path = os.path.normpath(name)
            if not path.startswith((os.sep, os.pardir)) and _is_file(job.folder / path):
                yield Path(path).as_posix()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        # The word is no valid path: too long, or it contains a NUL.
        return False


def _shipment_notes(shipment: Shipment) -> Iterator[str]:
    files, skipped = shipment.files, shipment.files.skipped
    count = "1 file" if len(files.files) == 1 else f"{len(files.files)} files"
    yield f"shipping {files.folder}: {count}, {size_text(files.size)}, in {CARRIER_TEXT[shipment.form]}"
    if skipped:
        more = "" if len(skipped) <= MAX_SKIPPED_SHOWN else f" and {len(skipped) - MAX_SKIPPED_SHOWN} more"
        yield f"warning: not shipped, because they are not regular files: {', '.join(map(printable, skipped[:MAX_SKIPPED_SHOWN]))}{more}"


def _secret_warnings(inspection: FolderInspection) -> Iterator[str]:
    if inspection.refused:
        yield f"warning: ships what looks like credentials: {named_files(inspection.refused)}"
    for line in suspicion_lines(inspection.suspicious):
        yield f"warning: {line}"


def _ignored_file_warnings(files: FileList, mentioned: set[str]) -> Iterator[str]:
    for path in sorted(mentioned):
        if not files.has_file(path):
            yield f"warning: {path} is not shipped: .gitignore leaves it out, and the command names it"


def file_lines(bundle: Bundle) -> Iterator[str]:
    """Every file that is shipped, with its size."""
    if bundle.shipment is not None:
        for item in bundle.shipment.files.files:
            yield f"  {printable(item.path)}  {size_text(item.size)}"

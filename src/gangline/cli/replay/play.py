"""A bundle made ready to be played on this machine: its code in a folder, its job without what only a cluster has."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import Failure, JobKind
from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.cli.follow.job_end import fail_job
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.node.pod_types import RunContainer
from gangline.node.runtime.images import ImageMappings, template_need
from gangline.replay.bundle import JobBundle
from gangline.replay.bundle_file import decode_bundle
from gangline.replay.comparison import comparison_lines, fault_text
from gangline.replay.cues import fails_by_itself
from gangline.replay.local_job import LocalReplay, local_replay
from gangline.replay.player import FaultPlayer, Say

_COMMAND_FIELDS = ("name", "image", "command", "args", "workingDir", "env", "volumeMounts")


class PreparedReplay(NamedTuple):
    """A bundle, the job that plays it, the folder of its code, and who injects the faults."""

    bundle: JobBundle
    kind: JobKind
    local: LocalReplay
    folder: Path
    player: FaultPlayer
    clock: Clock

    def notes(self) -> Iterator[str]:
        """What is played, and what is not as it was."""
        manifest = self.bundle.manifest
        yield f"replay of {manifest.kind} {manifest.name}, recorded {manifest.recorded_at:%Y-%m-%d %H:%M} UTC"
        for fault in self.bundle.faults:
            if not fault.is_consequence:
                by_itself = fails_by_itself(fault) and not self.local.is_stand_in(fault.replica)
                how = "unless it fails by itself" if by_itself else "injected"
                yield f"fault: {fault_text(fault)} ({how})"
        if not self.bundle.faults:
            yield "the recording has no fault: the team is played without one"
        for replica_type, reason in self.local.stand_ins.items():
            yield f"{replica_type}: played by a stand-in that trains nothing, because {reason}"
        yield from self.local.notes

    async def run(self, client: Client, say: Say) -> None:
        """Inject the faults until cancelled."""

        async def end_job(message: str) -> None:
            metadata = self.local.job["metadata"]
            key = Key(metadata.get("namespace") or "default", metadata["name"])
            first = self.bundle.first_fault
            with suppress(KubeError):
                job = await client.get(self.kind.model, key)
                await fail_job(client, job, Failure(first.replica if first else ""), message, self.clock.now())

        await self.player.run(client, say, end_job)

    async def conclude(self, client: Client) -> None:
        """Ask `why` about the replayed job, while its plane runs."""
        with suppress(KubeError):
            await self.player.conclude(client)

    def result(self) -> tuple[str, ...]:
        """The recorded verdict and the replayed one."""
        if self.player.verdict is None:
            return ("the replay was not concluded",)
        return comparison_lines(self.bundle.verdict, self.player.verdict)


def read_bundle(file: Path) -> JobBundle:
    """The bundle in a file. Raises `InputError`."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    return decode_bundle(data, str(file))


@contextmanager
def prepared_replay(file: Path, code: Path | None) -> Iterator[PreparedReplay]:
    """The bundle of a file, ready to run until the block ends. `code`: a folder to run instead of the packed code.

    Raises `InputError`.
    """
    bundle = read_bundle(file)
    kind = next((one for one in TRAINING_KINDS if one.kind == bundle.manifest.kind), None)
    if kind is None:
        raise InputError(f"{file}: is of a {bundle.manifest.kind}, which this gangline does not know")
    folder = Path(tempfile.mkdtemp(prefix="gangline-replay-"))
    try:
        if code is None:
            _unpack(bundle, folder)
        work = code.resolve() if code is not None else folder
        has_code = bool(bundle.code) or code is not None
        local = local_replay(bundle, kind, lambda container: image_reason(container, work), has_code=has_code)
        clock = SystemClock()
        yield PreparedReplay(bundle, kind, local, work, FaultPlayer(bundle, local, kind, clock), clock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(bundle: JobBundle, folder: Path) -> None:
    for path, file in bundle.code.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode | 0o600)


def image_reason(container: JSON, folder: Path) -> str:
    """Why the program of a container cannot run here, in this folder; empty if it can."""
    fields = {name: container[name] for name in _COMMAND_FIELDS if name in container}
    try:
        run = msgspec.convert(fields, RunContainer)
    except msgspec.ValidationError:
        return "its container is not complete"
    if not run.command:
        return "its command is in its image"
    need = template_need(run, ImageMappings.load(None), folder)
    return need.problem if need is not None else ""

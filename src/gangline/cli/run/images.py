"""What a job needs of its images, before anything is started."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.run.request import RunJob
from gangline.node.pod_types import RunContainer
from gangline.node.runtime.auto import find_engine
from gangline.node.runtime.images import ImageMappings, ImageNeed, parse_image_map, template_need
from gangline.node.settings import AUTO_RUNTIME, ENGINES, NodeSettings

COMMAND_FIELDS = ("name", "image", "command", "args", "workingDir", "env", "volumeMounts")


def check_images(jobs: Sequence[RunJob], node: NodeSettings) -> None:
    """Raise `InputError` for a job that needs files which only its image has, where no container engine works.

    Its pods would fail at every start, and a restart policy would start them again and again.
    """
    if node.runtime in ENGINES:
        return
    images = ImageMappings.load(node.images, parse_image_map(node.image_map))
    for job in jobs:
        for path, need in () if job.from_command else _image_needs(job, images, job.folder):
            engine, reason = find_engine() if node.runtime == AUTO_RUNTIME else ("", "")
            if engine:
                return
            message = need.message(reason)
            raise InputError(message) if job.document is None else job.document.error(message, path)


def runs_images(job: RunJob, node: NodeSettings) -> bool:
    """Whether containers of the job run from their images."""
    if node.runtime != AUTO_RUNTIME or job.from_command:
        return node.runtime in ENGINES
    images = ImageMappings.load(node.images, parse_image_map(node.image_map))
    return any(True for _ in _image_needs(job, images, job.folder))


def _image_needs(job: RunJob, images: ImageMappings, folder: Path) -> Iterator[tuple[tuple[str | int, ...], ImageNeed]]:
    """The needs of the job's main containers, each with the path of its container."""
    for replica, spec in (job.body["spec"].get(job.kind.replicas) or {}).items():
        pod = (spec.get("template") or {}).get("spec") or {}
        # An init container is a process of this machine, too, and may create the file.
        for index, container in enumerate((pod.get("containers") or ()) if not pod.get("initContainers") else ()):
            if replica != "Launcher" and _gets_command(job.kind, container):
                continue
            need = container_need(container, images, folder)
            if need is not None:
                path = ("spec", job.kind.replicas, replica, "template", "spec", "containers", index)
                yield path, need


def _gets_command(kind: JobKind, container: JSON) -> bool:
    """Whether the operator gives a worker its command: in an MPIJob without one, or with sshd, which is not needed here."""
    command = container.get("command")
    if not command:
        return kind in (MPIJOB, MPIJOB_V2)
    return kind is MPIJOB_V2 and str(command[0]).rpartition("/")[2] == "sshd"


def container_need(container: JSON, images: ImageMappings, folder: Path) -> ImageNeed | None:
    """What a container of a pod template needs and only its image has; None also if the server will refuse it."""
    fields = {name: container[name] for name in COMMAND_FIELDS if name in container}
    try:
        return template_need(msgspec.convert(fields, RunContainer), images, folder)
    except msgspec.ValidationError:
        return None

"""Several jobs in one run: what must hold for them, and where each of them starts. Pure."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gangline.api.codec.documents import Document
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.sdk.build.pod_templates import training_container, with_edited_pods


class RunJob(NamedTuple):
    """A job to run."""

    kind: JobKind
    body: JSON
    # Where its processes start on this machine; what is shipped to another.
    folder: Path
    # Made from a command, not read from a file.
    from_command: bool = False
    # As it was read, with its lines.
    document: Document | None = None
    # Objects of other kinds in the same file, such as its claims.
    dependencies: tuple[Document, ...] = ()

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def display_name(self) -> str:
        return f"{self.kind.kind.lower()}/{self.name}"

    def key(self, namespace: str = "default") -> Key:
        return Key(self.body["metadata"].get("namespace") or namespace, self.name)


def check_unique_names(jobs: Sequence[RunJob]) -> None:
    """No two of one name: their pods would have one name, too, whatever the kinds are. Raises `InputError`."""
    seen: set[Key] = set()
    for job in jobs:
        if job.key() in seen:
            raise InputError(f"{job.display_name}: another job of this run is called {job.name}; rename one of them")
        seen.add(job.key())


def with_common_folder(jobs: Sequence[RunJob]) -> tuple[Path, list[RunJob]]:
    """The folder of a node for all of them, and the jobs: those with another folder say so to it."""
    folder = jobs[0].folder
    return folder, [job if job.folder == folder else _with_working_dir(job) for job in jobs]


def _with_working_dir(job: RunJob) -> RunJob:
    def edit(spec: JSON) -> None:
        container = training_container(spec, job.kind)
        if container is not None and not container.get("workingDir"):
            # Kubernetes takes `$(NAME)` for a variable.
            container["workingDir"] = str(job.folder).replace("$", "$$")

    return job._replace(body=with_edited_pods(job.body, job.kind, edit))

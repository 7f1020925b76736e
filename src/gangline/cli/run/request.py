"""Several jobs in one run: what must hold for them, and where each of them starts. Pure."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gangline.api.codec.documents import Document
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.sdk.build.pod_templates import edited, trainer


class Job(NamedTuple):
    """A job to run."""

    facts: JobKind
    body: JSON
    # Where its processes start on this machine; what is shipped to another.
    folder: Path
    # Made from a command, not read from a file.
    scripted: bool = False
    # As it was read, with its lines.
    document: Document | None = None
    # Objects of other kinds in the same file, such as its claims.
    needs: tuple[Document, ...] = ()

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def shown(self) -> str:
        return f"{self.facts.kind.lower()}/{self.name}"

    def key(self, namespace: str = "default") -> Key:
        return Key(self.body["metadata"].get("namespace") or namespace, self.name)


def check_names(jobs: Sequence[Job]) -> None:
    """No two of one name: their pods would have one name, too, whatever the kinds are. Raises `InputError`."""
    seen: set[Key] = set()
    for job in jobs:
        if job.key() in seen:
            raise InputError(f"{job.shown}: another job of this run is called {job.name}; rename one of them")
        seen.add(job.key())


def gathered(jobs: Sequence[Job]) -> tuple[Path, list[Job]]:
    """The folder of a node for all of them, and the jobs: those with another folder say so to it."""
    folder = jobs[0].folder
    return folder, [job if job.folder == folder else _at_home(job) for job in jobs]


def _at_home(job: Job) -> Job:
    def edit(spec: JSON) -> None:
        container = trainer(spec, job.facts)
        if container is not None and not container.get("workingDir"):
            # Kubernetes takes `$(NAME)` for a variable.
            container["workingDir"] = str(job.folder).replace("$", "$$")

    return job._replace(body=edited(job.body, job.facts, edit))

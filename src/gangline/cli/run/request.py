"""What a run is asked for: the options of a run, and the jobs that were read for it. Values only, no I/O."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.api.codec.documents import Document
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.flags.dashboard_options import DashboardOptions
from gangline.cli.flags.node_options import NodeOptions
from gangline.sdk.build.pod_templates import training_container, with_edited_pods

if TYPE_CHECKING:
    from gangline.cli.replay.play import PreparedReplay

# A local run shares its node with no other: a job that requests a cluster's cores runs on the few of this machine.
DEFAULT_CAPACITY = ("cpu=1000",)


class JobSource(NamedTuple):
    """Where the jobs of a run come from: manifest files, or a command and its number of processes."""

    files: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()
    # As given: a number, a range, or auto, cpu or gpu.
    nproc: str = ""
    kind: str = ""
    image: str = ""
    limits: tuple[str, ...] = ()
    # How often a job is started again after a failure. None: as the job says.
    max_restarts: int | None = None
    # The `--set` options.
    settings: tuple[str, ...] = ()
    # For a bundle: the folder of the code, instead of what is packed.
    code: Path | None = None


class Shipping(NamedTuple):
    """Whether and how the job's folder is shipped to a cluster."""

    # None: ship it if the job mentions a file of the folder.
    ship: bool | None = None
    ship_limit: str = "1Gi"
    storage_class: str = ""
    ship_secrets: bool = False
    dry_run: bool = False


class RunRequest(NamedTuple):
    """The options of one `gangline run`."""

    source: JobSource
    timeout: float | None = None
    gang: bool = False
    # After so many seconds without a sign of life of a job the screen says so.
    hung_after: float = 60.0
    # The folder for logs, job and curve; None: keep nothing.
    runs: Path | None = None
    output: str = ""
    # The metrics whose curves are drawn at the end.
    curves: tuple[str, ...] = ()
    # The `--notify` options.
    notify: tuple[str, ...] = ()
    # Commands, printed at the end after "next: ".
    next_steps: tuple[str, ...] = ()
    node: NodeOptions = NodeOptions()
    # Called with the node's state folder; makes the `ProgressHook` of each job.
    hook_factory: Callable[[Path], Any] | None = None
    # With a context the run is in that cluster, without one on this machine.
    server: ServerOptions = ServerOptions()
    shipping: Shipping = Shipping()
    # None: without a dashboard.
    dashboard: DashboardOptions | None = None
    # Whether programs may report progress to the plane of the run.
    progress_endpoint: bool = True
    # Whether the operator of the run looks for jobs without progress.
    hang_watch: bool = True
    # The bundle that is played; None for other runs.
    replay: "PreparedReplay | None" = None


class RunJob(NamedTuple):
    """A job to run."""

    kind: JobKind
    body: JSON
    # The working directory of its processes on this machine; in a cluster, the folder that is shipped.
    folder: Path
    # Whether it was made from a command instead of read from a file.
    from_command: bool = False
    # The document it was read from, with line numbers.
    document: Document | None = None
    # Objects of other kinds in the same file, such as claims.
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
    """Raise `InputError` if two jobs share a name: their pods would share names too, even if the kinds differ."""
    keys: set[Key] = set()
    for job in jobs:
        if job.key() in keys:
            raise InputError(f"{job.display_name}: another job of this run is called {job.name}; rename one of them")
        keys.add(job.key())


def with_common_folder(jobs: Sequence[RunJob]) -> tuple[Path, list[RunJob]]:
    """The node's working folder, and the jobs; jobs from another folder get an explicit workingDir."""
    folder = jobs[0].folder
    return folder, [job if job.folder == folder else _with_working_dir(job) for job in jobs]


def _with_working_dir(job: RunJob) -> RunJob:
    def edit(spec: JSON) -> None:
        container = training_container(spec, job.kind)
        if container is not None and not container.get("workingDir"):
            # Kubernetes expands `$(NAME)`; `$$` is a literal dollar.
            container["workingDir"] = str(job.folder).replace("$", "$$")

    return job._replace(body=with_edited_pods(job.body, job.kind, edit))

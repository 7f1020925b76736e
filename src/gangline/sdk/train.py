"""`gangline.train`: run a function or a folder as a distributed job."""

import os
import re
import secrets
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, Self

from gangline.api.kubeflow.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import Failure, JobKind
from gangline.frameworks.ranks import rank_of
from gangline.jobs.plan.failures.records import PROVISIONAL_TIME, is_provisional
from gangline.sdk.build.bodies import env_entries
from gangline.sdk.build.function_names import own_folders
from gangline.sdk.build.function_source import FunctionProgram, display_name, function_program, program_command
from gangline.sdk.build.jobs import Replica, build_job, replica_counts
from gangline.sdk.build.pod_templates import escaped_word
from gangline.sdk.build.remote_call import RESULTS_VARIABLE
from gangline.sdk.client import TrainingClient
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job
from gangline.sdk.logs import JobLogLine
from gangline.sdk.outcome.rank_failures import first_rank_failure
from gangline.sdk.outcome.results import FunctionResult, is_result_line, parse_results
from gangline.sdk.progress_display import progress_display
from gangline.sdk.ship.credentials import secret_lines
from gangline.sdk.ship.inspection import suspicion_lines

FRAMEWORK_KINDS = {
    "pytorch": PYTORCHJOB,
    "tensorflow": TFJOB,
    "jax": JAXJOB,
    "xgboost": XGBOOSTJOB,
    "paddle": PADDLEJOB,
}
DEFAULT_IMAGE = f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
"""The image if none is given: your Python. A local plane runs processes of this machine, so there it is only a name."""
_PYTHON_IMAGE = re.compile(r"(?:^|/)python:(?P<version>3\.\d+)")


class TeamRequest(NamedTuple):
    """The replicas of a job that runs one program."""

    kind: JobKind
    counts: Mapping[str, int]
    name: str
    image: str = DEFAULT_IMAGE
    resources: Any = None
    env: Any = None
    volumes: Mapping[str, str] | None = None
    restart_policy: str = "Never"
    max_restarts: int = 0
    namespace: str | None = None


class Run:
    """A started job. As a context manager it closes its client at the end."""

    def __init__(
        self, client: TrainingClient, found: Job, *, owned: bool, returns: bool, results: Path | None = None
    ) -> None:
        self._client, self._job = client, found
        self._owns_client, self._returns_result = owned, returns
        if results is not None:
            weakref.finalize(self, shutil.rmtree, results, ignore_errors=True)

    @property
    def name(self) -> str:
        return self._job.metadata.name

    @property
    def job(self) -> Job:
        """The current state of the job, read from the server."""
        self._job = self._client.get_job(self.name, **self._job_arguments)
        return self._job

    def wait(self, timeout: float | None = None, *, show: bool | None = None) -> Job:
        """Wait for the end of the job, and return it. Raises `JobFailed` and `TimeoutError`.

        `show` displays the progress in a terminal or a notebook; by default if there is one.
        """
        if not self._job.status.finished:
            self._watch(timeout, show)
        if self._job.state == "Failed":
            self._await_final_failure()
            raise JobFailed(self._job, self._job.status.first_failure or self._failure_of_pods())
        return self._job

    def _await_final_failure(self) -> None:
        """Wait a moment in which the operator may correct which replica failed first."""
        if not is_provisional(self._job.status):
            return
        seconds = PROVISIONAL_TIME.total_seconds()
        with suppress(TimeoutError):
            for job in self._client.watch_job(self.name, wait_timeout=seconds, **self._job_arguments):
                self._job = job
                if not is_provisional(job.status):
                    return

    def _failure_of_pods(self) -> Failure | None:
        """The rank that failed first, for jobs of operators that do not record it."""
        pods = self._client.get_job_pods(self.name, **self._job_arguments)
        texts, _ = self._client.get_job_logs(self.name, is_master=False, **self._job_arguments)
        lines = {pod: text.splitlines() for pod, text in texts.items()}
        return first_rank_failure(self._job.facts, pods, lines)

    def _watch(self, timeout: float | None, show: bool | None) -> None:
        try:
            with progress_display(show) as display:
                for job in self._client.watch_job(self.name, wait_timeout=timeout, **self._job_arguments):
                    self._job = job
                    display.update(job)
                    if job.status.finished:
                        return
        except TimeoutError:
            state = f"it is {self._job.state}; .why() says why, .cancel() stops it"
            raise TimeoutError(f"job {self.name}: not finished within {timeout:g} seconds; {state}") from None
        raise TrainingError(f"job {self.name} was deleted")

    def logs(self, *, follow: bool = False) -> Iterator[JobLogLine]:
        """The log lines of all replicas; with `follow`, as they arrive, until the job has ended."""
        if follow:
            lines = self._client.follow_logs(self.name, **self._job_arguments)
        else:
            texts, _ = self._client.get_job_logs(self.name, is_master=False, **self._job_arguments)
            lines = (JobLogLine(pod, line) for pod, text in texts.items() for line in text.splitlines())
        return (line for line in lines if not is_result_line(line.text))

    def result(self, timeout: float | None = None, *, show: bool | None = None) -> Any:
        """The return value of the function in rank 0. Waits and raises as `wait` does.

        On a local plane any value that can be pickled comes back; from a cluster numbers, texts, lists and dicts, because
        a pickle from elsewhere can run code here. Raises `TypeError` for other values.
        """
        self._wait_for_results(timeout, show)
        texts, _ = self._client.get_job_logs(self.name, is_master=True, **self._job_arguments)
        if not texts:
            texts, _ = self._client.get_job_logs(self.name, replica_index=0, **self._job_arguments)
        ordered = sorted(self._ranked_results(texts).items())
        if not ordered:
            raise TrainingError(f"job {self.name}: its leader has printed no result; was its log cut off?")
        return ordered[0][1].load(trusted=self._client.is_local())

    def results(self, timeout: float | None = None, *, show: bool | None = None) -> list[Any]:
        """The return values of all ranks, in order. Waits for all of them; raises as `result` does.

        A job with a leader succeeds when its leader does. The others may take longer, and may fail: `JobFailed`.
        """
        self._wait_for_results(timeout, show)
        lines: dict[str, list[str]] = {}
        for line in self._client.follow_logs(self.name, **self._job_arguments):
            lines.setdefault(line.pod, []).append(line.text)
        pods = self._client.get_job_pods(self.name, **self._job_arguments)
        failure = first_rank_failure(self._job.facts, pods, lines)
        if failure is not None:
            raise JobFailed(self._job, failure)
        texts = {pod: "\n".join(pod_lines) for pod, pod_lines in lines.items()}
        trusted = self._client.is_local()
        return [result.load(trusted=trusted) for _, result in sorted(self._ranked_results(texts).items())]

    def _wait_for_results(self, timeout: float | None, show: bool | None) -> None:
        if not self._returns_result:
            raise TypeError("a folder returns nothing; read .logs(), or what it wrote")
        self.wait(timeout, show=show)

    def _ranked_results(self, texts: Mapping[str, str]) -> dict[tuple[int, int], FunctionResult]:
        """The results by rank, and within a rank by replica. A process that was restarted has returned last."""
        found: dict[tuple[int, int], FunctionResult] = {}
        for number, pod in enumerate(sorted(texts, key=_pod_order)):
            replica = pod.removeprefix(f"{self.name}-")
            for result in parse_results(texts[pod].splitlines()):
                rank = result.rank
                if rank is None:
                    rank = rank_of(self._job.kind, self._job.replicas, replica)
                found[(number if rank is None else rank, number)] = result
        return found

    def why(self) -> Any:
        """A report about why the job waits or failed."""
        return self._client.why(self.name, **self._job_arguments)

    def cancel(self) -> None:
        """Delete the job and its pods. Idempotent."""
        try:
            self._client.delete_job(self.name, **self._job_arguments)
        except TrainingError as error:
            if "not found" not in str(error):
                raise

    def close(self) -> None:
        """Close the client. A local plane that was started for this job ends, and the job with it."""
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run of {self._job!r}>"

    def _repr_html_(self) -> str:
        return self._job._repr_html_()

    @property
    def _job_arguments(self) -> dict[str, Any]:
        return {"namespace": self._job.metadata.namespace, "job_kind": self._job.kind}


def train(
    what: Callable[..., Any] | str | Path,
    command: Sequence[str] = (),
    *,
    framework: str = "pytorch",
    replicas: int = 1,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    image: str | None = None,
    resources: Any = None,
    packages: Sequence[str] = (),
    env: Any = None,
    volumes: Mapping[str, str] | None = None,
    restart_policy: str = "Never",
    max_restarts: int | None = None,
    namespace: str | None = None,
    client: TrainingClient | None = None,
    ship_secrets: bool = False,
    **connection: Any,
) -> Run:
    """Run a function, or a command in a folder, as a distributed job. Returns a handle when the job is created.

    Args:
        what: a function from anywhere (a module, a notebook, a REPL), or a folder, which is copied without what
            `.gitignore` or `.ganglineignore` excludes.
        command: for a folder, the command to run in it: `["python", "train.py"]`.
        framework: pytorch, tensorflow, jax, xgboost or paddle.
        replicas: the number of replicas, with the master if the framework has one.
        name: the name of the job; by default generated from that of the function or folder.
        parameters: the argument of the function, as a dict; or its arguments by name if it takes several.
        image: the image of the replicas, by default that of your Python version; on a local plane it is only a name.
        resources: of each replica: `{"cpu": 2, "memory": "4Gi", "gpu": 1}`.
        packages: for a function, packages that pip installs first. On a local plane they must be installed already.
        env: environment variables, as a dict.
        volumes: claims by mount path.
        restart_policy: Never, OnFailure, Always or ExitCode.
        max_restarts: how often all replicas are started again after one has failed.
        namespace: the namespace of the job; by default that of the client.
        client: the client to use; by default a new one with `connection` as arguments.
        ship_secrets: send a folder to a cluster although it contains credentials or links out of it.
        connection: arguments of `TrainingClient`: `context`, `local` and so on.

    Raises `ValueError` for wrong arguments, before anything is started.
    """
    kind = framework_kind(framework)
    counts = replica_counts(kind, replicas)
    if max_restarts is not None and max_restarts < 0:
        raise ValueError(f"max_restarts: is {max_restarts}; write 0 or more")
    program: FunctionProgram | None = None
    words: list[str] = []
    folder = Path()
    try:
        if callable(what):
            program = _function_program(what, command, parameters)
        else:
            words, folder = _folder_command(what, command, parameters, packages)
    except ValueError as error:
        # In a REPL the message should be all that one sees.
        raise error.with_traceback(None) from None
    team = TeamRequest(
        kind,
        counts,
        name or _generated_name(what),
        image or DEFAULT_IMAGE,
        resources,
        env,
        volumes,
        "OnFailure" if max_restarts else restart_policy,
        max_restarts or 0,
        namespace,
    )
    used_client = client if client is not None else TrainingClient(**connection)
    try:
        if packages and used_client.is_local():
            _require_installed(packages)
        if program is not None:
            return start_program(used_client, program, team, packages=packages, owned=client is None)
        job = used_client.ship_job(_team_job(team, words, env), folder, namespace, ship_secrets=ship_secrets)
        return Run(used_client, job, owned=client is None, returns=False)
    except BaseException:
        if client is None:
            used_client.close()
        raise


def start_program(
    client: TrainingClient,
    program: FunctionProgram,
    team: TeamRequest,
    *,
    packages: Sequence[str] = (),
    owned: bool = False,
) -> Run:
    """Start a program that calls a function. Raises `ValueError` if the image cannot run it."""
    env, results = team.env, None
    if client.is_local():
        results = Path(tempfile.mkdtemp(prefix="gangline-results-"))
        # There the replica can import what this process can.
        path = os.pathsep.join(own_folders()).replace("$", "$$")
        local = {RESULTS_VARIABLE: str(results), "GANGLINE_PATH": path}
        env = [*env_entries(env), *env_entries(local)]
    elif program.is_pickled:
        _require_same_python(team.image, team.name)
    if results is None:
        for line in suspicion_lines(tuple(secret_lines(team.name, program.text.encode(errors="replace")))):
            warnings.warn(line, stacklevel=3)
    words = program_command(program.text, packages=packages)
    try:
        job = client.create_job(_team_job(team, words, env), namespace=team.namespace)
    except BaseException:
        if results is not None:
            shutil.rmtree(results, ignore_errors=True)
        raise
    return Run(client, job, owned=owned, returns=True, results=results)


def _team_job(team: TeamRequest, words: Sequence[str], env: Any) -> Job:
    replicas = {
        replica_type: Replica(
            team.image,
            words,
            replicas=count,
            resources=team.resources,
            env=env,
            volumes=team.volumes,
            restart_policy=team.restart_policy,
        )
        for replica_type, count in team.counts.items()
    }
    run_policy = {"backoffLimit": team.max_restarts, "restartScope": "Job"} if team.max_restarts else {}
    return build_job(team.kind, team.name, replicas, run_policy=run_policy)


def framework_kind(name: str) -> JobKind:
    if name not in FRAMEWORK_KINDS:
        raise ValueError(f"framework: is {name!r}; write one of {', '.join(FRAMEWORK_KINDS)}")
    return FRAMEWORK_KINDS[name]


def _function_program(
    function: Callable[..., Any], command: Sequence[str], parameters: Mapping[str, Any] | None
) -> FunctionProgram:
    if command:
        raise ValueError("command: is for a folder; a function is run by itself")
    return function_program(function, parameters, returns=True)


def _folder_command(
    what: str | Path, command: Sequence[str], parameters: Mapping[str, Any] | None, packages: Sequence[str]
) -> tuple[list[str], Path]:
    """The command of a replica, and the folder to ship. Raises `ValueError`."""
    if not isinstance(what, str | os.PathLike):
        raise ValueError(f"expected a function or a folder, got {what!r}")
    folder = Path(what)
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; write one, or a function")
    if not command or isinstance(command, str):
        raise ValueError('command: write what to run in the folder, such as ["python", "train.py"]')
    if parameters is not None or packages:
        raise ValueError("parameters, packages: are for a function; a folder's command has its own arguments")
    return [escaped_word(word) for word in command], folder.resolve()


def _require_same_python(image: str, name: str) -> None:
    """Raise `ValueError` if the tag of the image names another Python than the pickle needs."""
    found = _PYTHON_IMAGE.search(image)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if found is not None and found["version"] != here:
        raise ValueError(
            f"image: {image} has Python {found['version']}, and {name} is sent as a pickle of Python {here}; "
            f"write {DEFAULT_IMAGE}, or let the function import what it uses itself: then it is sent as source"
        )


def _require_installed(packages: Sequence[str]) -> None:
    installed = {_normalized_name(package.metadata["Name"]) for package in metadata.distributions()}
    missing = [
        package for package in packages if _normalized_name(re.split(r"[\s<>=!~;\[]", package)[0]) not in installed
    ]
    if missing:
        raise ValueError(
            f"packages: {', '.join(missing)}: not installed here, where jobs use your own Python; pip install them"
        )


def _normalized_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _generated_name(what: Callable[..., Any] | str | Path) -> str:
    word = display_name(what) if callable(what) else Path(what).resolve().name
    name = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:40] or "job"
    return f"{name if name[0].isalpha() else f'job-{name}'}-{secrets.token_hex(3)}"


def _pod_order(pod: str) -> tuple[str, int]:
    """Replica types in the order of the alphabet, Master before Worker; replicas by number."""
    name, _, index = pod.rpartition("-")
    return name, int(index) if index.isdigit() else 0

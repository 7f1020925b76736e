"""`gangline.train`: a function or a folder as a distributed job, and a handle on it."""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from gangline.api.kubeflow.kinds import JAXJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import JobKind
from gangline.sdk.build.function_source import RESULT_PREFIX, function_program, program_command
from gangline.sdk.build.jobs import Replica, build_job, replica_counts
from gangline.sdk.build.pod_templates import escaped_word
from gangline.sdk.client import TrainingClient
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job
from gangline.sdk.logs import JobLogLine
from gangline.sdk.progress_display import progress_display

FRAMEWORK_KINDS = {
    "pytorch": PYTORCHJOB,
    "tensorflow": TFJOB,
    "jax": JAXJOB,
    "xgboost": XGBOOSTJOB,
    "paddle": PADDLEJOB,
}
DEFAULT_IMAGE = "python:3.12-slim"
"""Where none is named. On this machine an image is only a name."""


class Run:
    """A job that was started: wait for it, read it, end it. As a context manager it hangs up at the end."""

    def __init__(self, client: TrainingClient, found: Job, *, owned: bool, returns: bool) -> None:
        self._client, self._job = client, found
        self._owns_client, self._returns_result = owned, returns

    @property
    def name(self) -> str:
        return self._job.metadata.name

    @property
    def job(self) -> Job:
        """As it is now."""
        self._job = self._client.get_job(self.name, **self._job_arguments)
        return self._job

    def wait(self, timeout: float | None = None, *, show: bool | None = None) -> Job:
        """Wait for the end, and give the job. Raises `JobFailed`, and `TimeoutError`.

        `show`: a bar in a terminal, or a picture in a notebook; by default wherever somebody sees it.
        """
        if not self._job.status.finished:
            self._watch(timeout, show)
        if self._job.state == "Failed":
            raise JobFailed(self._job)
        return self._job

    def _watch(self, timeout: float | None, show: bool | None) -> None:
        with progress_display(show) as shown:
            for found in self._client.watch_job(self.name, wait_timeout=timeout, **self._job_arguments):
                self._job = found
                shown.update(found)
                if found.status.finished:
                    return
        raise TrainingError(f"job {self.name} was deleted")

    def logs(self, *, follow: bool = False) -> Iterator[JobLogLine]:
        """What all members said, line by line; with `follow`, as they say it, until the end."""
        if follow:
            said = self._client.follow_logs(self.name, **self._job_arguments)
        else:
            texts, _ = self._client.get_job_logs(self.name, is_master=False, **self._job_arguments)
            said = (JobLogLine(pod, line) for pod, text in texts.items() for line in text.splitlines())
        return (line for line in said if RESULT_PREFIX not in line.text)

    def result(self, timeout: float | None = None, *, show: bool | None = None) -> Any:
        """What the function returned in the member that leads. Raises as `wait` does."""
        if not self._returns_result:
            raise TypeError("a folder returns nothing; read .logs(), or what it wrote")
        self.wait(timeout, show=show)
        texts, _ = self._client.get_job_logs(self.name, is_master=True, **self._job_arguments)
        if not texts:
            texts, _ = self._client.get_job_logs(self.name, replica_index=0, **self._job_arguments)
        for text in texts.values():
            for line in reversed(text.splitlines()):
                if RESULT_PREFIX in line:
                    return json.loads(line.partition(RESULT_PREFIX)[2])
        raise TrainingError(f"job {self.name}: its leader told no result; was its log cut off?")

    def why(self) -> Any:
        """Why it waits or failed."""
        return self._client.why(self.name, **self._job_arguments)

    def cancel(self) -> None:
        """Delete the job; its processes end. Idempotent."""
        try:
            self._client.delete_job(self.name, **self._job_arguments)
        except TrainingError as error:
            if "not found" not in str(error):
                raise

    def close(self) -> None:
        """Hang up. A plane that was started for this job ends, and the job with it."""
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
    image: str = DEFAULT_IMAGE,
    resources: Any = None,
    packages: Sequence[str] = (),
    env: Any = None,
    volumes: Mapping[str, str] | None = None,
    restart_policy: str = "Never",
    namespace: str | None = None,
    client: TrainingClient | None = None,
    **connection: Any,
) -> Run:
    """Run a function, or a command in a folder, as a distributed job. Gives a handle at once.

    Args:
        what: a function, which travels as its source, or a folder, which travels whole (as `.gitignore` allows).
        command: for a folder, what to run in it, word by word: `["python", "train.py"]`.
        framework: pytorch, tensorflow, jax, xgboost or paddle.
        replicas: how many members; where the framework has a master, it is one of them.
        name: of the job; by default made of what runs.
        parameters: what the function is called with, as one dict.
        image: what members run in; on this machine it is only a name.
        resources: of each member: `{"cpu": 2, "memory": "4Gi", "gpu": 1}`.
        packages: for a function, what pip installs first. On this machine they must be there already.
        env: variables, as a dict.
        volumes: claims by the path where they are mounted.
        restart_policy: Never, OnFailure, Always or ExitCode.
        namespace: where; by default that of the client.
        client: the client to use; else one is made, with what follows.
        connection: as for `TrainingClient`: `context`, `local` and so on.

    Raises `ValueError` for what cannot be, before anything is started.
    """
    facts = _framework_kind(framework)
    sizes = replica_counts(facts, replicas)
    words, folder = _command_and_folder(
        what, command, parameters, packages, torchrun=facts is PYTORCHJOB and replicas > 1
    )
    mine = client if client is not None else TrainingClient(**connection)
    try:
        if packages and mine.is_local():
            _require_installed(packages)
        each = {
            kind: Replica(
                image,
                words,
                replicas=count,
                resources=resources,
                env=env,
                volumes=volumes,
                restart_policy=restart_policy,
            )
            for kind, count in sizes.items()
        }
        built = build_job(facts, name or _generated_name(what), each)
        found = (
            mine.create_job(built, namespace=namespace) if folder is None else mine.ship_job(built, folder, namespace)
        )
    except BaseException:
        if client is None:
            mine.close()
        raise
    return Run(mine, found, owned=client is None, returns=folder is None)


def _framework_kind(name: str) -> JobKind:
    if name not in FRAMEWORK_KINDS:
        raise ValueError(f"framework: is {name!r}; write one of {', '.join(FRAMEWORK_KINDS)}")
    return FRAMEWORK_KINDS[name]


def _command_and_folder(
    what: Callable[..., Any] | str | Path,
    command: Sequence[str],
    parameters: Mapping[str, Any] | None,
    packages: Sequence[str],
    *,
    torchrun: bool,
) -> tuple[list[str], Path | None]:
    """The words that a member runs, and the folder it needs for that."""
    if callable(what):
        if command:
            raise ValueError("command: is for a folder; a function is run by itself")
        source = function_program(what, parameters, returns=True)
        return program_command(source, packages=packages, launcher=("torchrun",) if torchrun else ()), None
    folder = Path(what)
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; write one, or a function")
    if not command or isinstance(command, str):
        raise ValueError('command: write what to run in the folder, such as ["python", "train.py"]')
    if parameters is not None or packages:
        raise ValueError("parameters, packages: are for a function; a folder's command has its own arguments")
    return [escaped_word(word) for word in command], folder.resolve()


def _require_installed(packages: Sequence[str]) -> None:
    there = {_normalized_name(found.metadata["Name"]) for found in metadata.distributions()}
    missing = [each for each in packages if _normalized_name(re.split(r"[\s<>=!~;\[]", each)[0]) not in there]
    if missing:
        raise ValueError(
            f"packages: {', '.join(missing)}: not installed here, where jobs use your own Python; pip install them"
        )


def _normalized_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _generated_name(what: Callable[..., Any] | str | Path) -> str:
    word = getattr(what, "__name__", "") if callable(what) else Path(what).resolve().name
    name = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:40] or "job"
    return f"{name if name[0].isalpha() else f'job-{name}'}-{secrets.token_hex(3)}"

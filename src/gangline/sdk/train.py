"""`gangline.train`: a function or a folder as a distributed job, and a handle on it."""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from gangline.api.kubeflow.jaxjob import JAXJOB
from gangline.api.kubeflow.paddlejob import PADDLEJOB
from gangline.api.kubeflow.pytorchjob import PYTORCHJOB
from gangline.api.kubeflow.tfjob import TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.kubeflow.xgboostjob import XGBOOSTJOB
from gangline.sdk.build.function_source import RESULT, command_of, source_of
from gangline.sdk.build.jobs import Replica, job, team
from gangline.sdk.build.pod_templates import literal
from gangline.sdk.client import TrainingClient
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job
from gangline.sdk.logs import Line
from gangline.sdk.progress_display import showing

FRAMEWORKS = {
    "pytorch": PYTORCHJOB,
    "tensorflow": TFJOB,
    "jax": JAXJOB,
    "xgboost": XGBOOSTJOB,
    "paddle": PADDLEJOB,
}
IMAGE = "python:3.12-slim"
"""Where none is named. On this machine an image is only a name."""


class Run:
    """A job that was started: wait for it, read it, end it. As a context manager it hangs up at the end."""

    def __init__(self, client: TrainingClient, found: Job, *, owned: bool, returns: bool) -> None:
        self._client, self._found = client, found
        self._owned, self._returns = owned, returns

    @property
    def name(self) -> str:
        return self._found.metadata.name

    @property
    def job(self) -> Job:
        """As it is now."""
        self._found = self._client.get_job(self.name, **self._where)
        return self._found

    def wait(self, timeout: float | None = None, *, show: bool | None = None) -> Job:
        """Wait for the end, and give the job. Raises `JobFailed`, and `TimeoutError`.

        `show`: a bar in a terminal, or a picture in a notebook; by default wherever somebody sees it.
        """
        if not self._found.status.finished:
            self._watch(timeout, show)
        if self._found.state == "Failed":
            raise JobFailed(self._found)
        return self._found

    def _watch(self, timeout: float | None, show: bool | None) -> None:
        with showing(show) as shown:
            for found in self._client.watch_job(self.name, wait_timeout=timeout, **self._where):
                self._found = found
                shown.tell(found)
                if found.status.finished:
                    return
        raise TrainingError(f"job {self.name} was deleted")

    def logs(self, *, follow: bool = False) -> Iterator[Line]:
        """What all members said, line by line; with `follow`, as they say it, until the end."""
        if follow:
            said = self._client.follow_logs(self.name, **self._where)
        else:
            texts, _ = self._client.get_job_logs(self.name, is_master=False, **self._where)
            said = (Line(pod, line) for pod, text in texts.items() for line in text.splitlines())
        return (line for line in said if RESULT not in line.text)

    def result(self, timeout: float | None = None, *, show: bool | None = None) -> Any:
        """What the function returned in the member that leads. Raises as `wait` does."""
        if not self._returns:
            raise TypeError("a folder returns nothing; read .logs(), or what it wrote")
        self.wait(timeout, show=show)
        texts, _ = self._client.get_job_logs(self.name, is_master=True, **self._where)
        if not texts:
            texts, _ = self._client.get_job_logs(self.name, replica_index=0, **self._where)
        for text in texts.values():
            for line in reversed(text.splitlines()):
                if RESULT in line:
                    return json.loads(line.partition(RESULT)[2])
        raise TrainingError(f"job {self.name}: its leader told no result; was its log cut off?")

    def why(self) -> Any:
        """Why it waits or failed."""
        return self._client.why(self.name, **self._where)

    def cancel(self) -> None:
        """Delete the job; its processes end. Idempotent."""
        try:
            self._client.delete_job(self.name, **self._where)
        except TrainingError as error:
            if "not found" not in str(error):
                raise

    def close(self) -> None:
        """Hang up. A plane that was started for this job ends, and the job with it."""
        if self._owned:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run of {self._found!r}>"

    def _repr_html_(self) -> str:
        return self._found._repr_html_()

    @property
    def _where(self) -> dict[str, Any]:
        return {"namespace": self._found.metadata.namespace, "job_kind": self._found.kind}


def train(
    what: Callable[..., Any] | str | Path,
    command: Sequence[str] = (),
    *,
    framework: str = "pytorch",
    replicas: int = 1,
    name: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    image: str = IMAGE,
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
    facts = _framework(framework)
    sizes = team(facts, replicas)
    words, folder = _program(
        what, command, parameters, packages, torchrun=facts is PYTORCHJOB and replicas > 1
    )
    mine = client if client is not None else TrainingClient(**connection)
    try:
        if packages and mine.is_local():
            _need(packages)
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
        built = job(facts, name or _named(what), each)
        found = (
            mine.create_job(built, namespace=namespace)
            if folder is None
            else mine.ship_job(built, folder, namespace)
        )
    except BaseException:
        if client is None:
            mine.close()
        raise
    return Run(mine, found, owned=client is None, returns=folder is None)


def _framework(name: str) -> JobKind:
    if name not in FRAMEWORKS:
        raise ValueError(f"framework: is {name!r}; write one of {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[name]


def _program(
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
        source = source_of(what, parameters, returns=True)
        return command_of(source, packages=packages, launcher=("torchrun",) if torchrun else ()), None
    folder = Path(what)
    if not folder.is_dir():
        raise ValueError(f"{folder}: is no folder; write one, or a function")
    if not command or isinstance(command, str):
        raise ValueError('command: write what to run in the folder, such as ["python", "train.py"]')
    if parameters is not None or packages:
        raise ValueError("parameters, packages: are for a function; a folder's command has its own arguments")
    return [literal(word) for word in command], folder.resolve()


def _need(packages: Sequence[str]) -> None:
    there = {_plain(found.metadata["Name"]) for found in metadata.distributions()}
    missing = [each for each in packages if _plain(re.split(r"[\s<>=!~;\[]", each)[0]) not in there]
    if missing:
        raise ValueError(
            f"packages: {', '.join(missing)}: not installed here, where jobs use your own Python; pip install them"
        )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _named(what: Callable[..., Any] | str | Path) -> str:
    word = getattr(what, "__name__", "") if callable(what) else Path(what).resolve().name
    name = re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-")[:40] or "job"
    return f"{name if name[0].isalpha() else f'job-{name}'}-{secrets.token_hex(3)}"

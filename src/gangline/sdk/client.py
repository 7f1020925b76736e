"""The training client for programs without an event loop: `TrainingClient`, as the Kubeflow SDK has it."""

import functools
import inspect
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Never, ParamSpec, Self, TypeVar

from gangline.sdk.async_client import AsyncTrainingClient
from gangline.sdk.event_loop import LoopThread

P = ParamSpec("P")
R = TypeVar("R")


class RemovedAttribute:
    """An attribute of Kubeflow's client that ours has not. Reading it raises an error that says what to write."""

    def __init__(self, official: str) -> None:
        self._official = official

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Never:
        raise AttributeError(
            f"{owner.__name__} has no {self._name}: it does not use the kubernetes package; "
            f"write kubernetes.client.{self._official}()"
        )


def _blocking(
    method: Callable[Concatenate[AsyncTrainingClient, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["TrainingClient", P], R]:
    """The blocking form of a method of `AsyncTrainingClient`: same parameters, same docstring."""

    @functools.wraps(method)
    def call(self: "TrainingClient", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop_thread.run(method(self._async_client, *args, **kwargs))

    call.__qualname__ = f"TrainingClient.{method.__name__}"
    return call


def _blocking_iterator(
    method: Callable[Concatenate[AsyncTrainingClient, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate["TrainingClient", P], Iterator[R]]:
    """The blocking form of an async generator of `AsyncTrainingClient`."""

    @functools.wraps(method)
    def call(self: "TrainingClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        # A generator, not just a return: while it is read it keeps a reference to the client, which closes itself.
        yield from self._loop_thread.iterate(method(self._async_client, *args, **kwargs))

    call.__qualname__ = f"TrainingClient.{method.__name__}"
    signature = inspect.signature(method).replace(return_annotation=Iterator)
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


class TrainingClient:
    """Creates, follows, changes and explains training jobs. Every call blocks until it has its result.

    It has every method of `kubeflow.training.TrainingClient`, so existing code changes one import, and also
    `watch_job`, `suspend_job`, `resume_job`, `scale_job`, `restart_job`, `follow_logs`, `why`, `get_job_progress`.
    All are derived from the methods of `AsyncTrainingClient`, which have the documentation.
    """

    core_api, custom_api, api_client = (
        RemovedAttribute("CoreV1Api"),
        RemovedAttribute("CustomObjectsApi"),
        RemovedAttribute("ApiClient"),
    )

    def __init__(
        self,
        config_file: str | None = None,
        context: str | None = None,
        client_configuration: Any = None,
        namespace: str | None = None,
        job_kind: str = "PyTorchJob",
        *,
        local: bool | None = None,
    ) -> None:
        """Arguments as of `AsyncTrainingClient`. Closed by `close`, by its `with` block, or at the program's end."""
        self._async_client = AsyncTrainingClient(
            config_file, context, client_configuration, namespace, job_kind, local=local
        )
        self._loop_thread = LoopThread()
        # Programs written for the Kubeflow SDK do not close it: it closes itself when collected, or at exit.
        self._close = weakref.finalize(self, _close_client, self._loop_thread, self._async_client)

    @property
    def namespace(self) -> str:
        """The namespace of calls that name none. Can be set."""
        return self._async_client.namespace

    @namespace.setter
    def namespace(self, name: str) -> None:
        self._async_client.namespace = name

    @property
    def job_kind(self) -> str:
        """The kind of job of calls that name none. Can be set; raises `ValueError`."""
        return self._async_client.job_kind

    @job_kind.setter
    def job_kind(self, kind: str) -> None:
        self._async_client.job_kind = kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and end the local plane if this client started one. Idempotent."""
        self._close()

    create_job = _blocking(AsyncTrainingClient.create_job)
    train = _blocking(AsyncTrainingClient.train)
    ship_job = _blocking(AsyncTrainingClient.ship_job)
    is_local = _blocking(AsyncTrainingClient.is_local)
    get_job = _blocking(AsyncTrainingClient.get_job)
    list_jobs = _blocking(AsyncTrainingClient.list_jobs)
    update_job = _blocking(AsyncTrainingClient.update_job)
    delete_job = _blocking(AsyncTrainingClient.delete_job)
    suspend_job = _blocking(AsyncTrainingClient.suspend_job)
    resume_job = _blocking(AsyncTrainingClient.resume_job)
    scale_job = _blocking(AsyncTrainingClient.scale_job)
    restart_job = _blocking(AsyncTrainingClient.restart_job)
    get_job_conditions = _blocking(AsyncTrainingClient.get_job_conditions)
    is_job_created = _blocking(AsyncTrainingClient.is_job_created)
    is_job_running = _blocking(AsyncTrainingClient.is_job_running)
    is_job_restarting = _blocking(AsyncTrainingClient.is_job_restarting)
    is_job_suspended = _blocking(AsyncTrainingClient.is_job_suspended)
    is_job_succeeded = _blocking(AsyncTrainingClient.is_job_succeeded)
    is_job_failed = _blocking(AsyncTrainingClient.is_job_failed)
    wait_for_job_conditions = _blocking(AsyncTrainingClient.wait_for_job_conditions)
    watch_job = _blocking_iterator(AsyncTrainingClient.watch_job)
    get_job_pods = _blocking(AsyncTrainingClient.get_job_pods)
    get_job_pod_names = _blocking(AsyncTrainingClient.get_job_pod_names)
    get_job_logs = _blocking(AsyncTrainingClient.get_job_logs)
    follow_logs = _blocking_iterator(AsyncTrainingClient.follow_logs)
    why = _blocking(AsyncTrainingClient.why)
    get_job_progress = _blocking(AsyncTrainingClient.get_job_progress)


def _close_client(loop_thread: LoopThread, client: AsyncTrainingClient) -> None:
    loop_thread.close(client.close())

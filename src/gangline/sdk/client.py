"""The training client for programs without an event loop: `TrainingClient`, as the Kubeflow SDK has it."""

import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Never, Self

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JobProgress
from gangline.sdk.async_client import AsyncTrainingClient
from gangline.sdk.conditioncalls import DEFAULT_EXPECTED_CONDITIONS, WAIT_TIMEOUT_SECONDS, JobCallback
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS
from gangline.sdk.event_loop import LoopThread
from gangline.sdk.job import Job
from gangline.sdk.kubeflow.finetune import DEFAULT_STORAGE
from gangline.sdk.logs import JobLogLine


class RemovedAttribute:
    """What Kubeflow's client has of the Kubernetes client inside, and ours has not: using it says what to write."""

    def __init__(self, official: str) -> None:
        self._official = official

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Never:
        raise AttributeError(
            f"{owner.__name__} has no {self._name}: it does not use the kubernetes package; "
            f"write kubernetes.client.{self._official}()"
        )


class TrainingClient:
    """Creates, follows, changes and explains training jobs. Every call waits for its answer.

    The surface is that of `kubeflow.training.TrainingClient`, so existing code changes one import, and more:
    `watch_job`, `suspend_job`, `resume_job`, `scale_job`, `restart_job`, `follow_logs`, `why`, `get_job_progress`.
    What the calls mean is said at `AsyncTrainingClient`, whose twin this is.
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
        """As `AsyncTrainingClient`. Ends with `close`, with its `with` block, or with the program."""
        self._async_client = AsyncTrainingClient(
            config_file, context, client_configuration, namespace, job_kind, local=local
        )
        self._loop_thread = LoopThread()
        # Programs written for the Kubeflow SDK close nothing: forgotten, or at the program's end, it closes itself.
        self._close = weakref.finalize(self, _close_client, self._loop_thread, self._async_client)

    @property
    def namespace(self) -> str:
        """Where jobs are, unless a call says otherwise. Can be set."""
        return self._async_client.namespace

    @namespace.setter
    def namespace(self, name: str) -> None:
        self._async_client.namespace = name

    @property
    def job_kind(self) -> str:
        """The kind that calls mean when they name none. Can be set; raises `ValueError`."""
        return self._async_client.job_kind

    @job_kind.setter
    def job_kind(self, kind: str) -> None:
        self._async_client.job_kind = kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; end the plane, if it was started by this client. Idempotent."""
        self._close()

    def create_job(
        self,
        job: Any = None,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        base_image: str | None = None,
        train_func: Callable[..., Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        num_workers: int = 1,
        num_procs_per_worker: int | str | None = None,
        resources_per_worker: Any = None,
        num_chief_replicas: int | None = None,
        num_ps_replicas: int | None = None,
        packages_to_install: Sequence[str] | None = None,
        pip_index_url: str | None = None,
        env_vars: Any = None,
    ) -> Job:
        """Create a job: a Job, a dict, a model of the Kubeflow SDK; or one made of an image or a function."""
        return self._loop_thread.run(
            self._async_client.create_job(
                job,
                name,
                namespace,
                job_kind,
                base_image,
                train_func,
                parameters,
                num_workers,
                num_procs_per_worker,
                resources_per_worker,
                num_chief_replicas,
                num_ps_replicas,
                packages_to_install,
                pip_index_url,
                env_vars,
            )
        )

    def train(
        self,
        name: str,
        namespace: str | None = None,
        num_workers: int = 1,
        num_procs_per_worker: int = 1,
        resources_per_worker: Any = None,
        model_provider_parameters: Any = None,
        dataset_provider_parameters: Any = None,
        trainer_parameters: Any = None,
        init_env_vars: Any = None,
        env_vars: Any = None,
        storage_config: Mapping[str, Any] = DEFAULT_STORAGE,
    ) -> Job:
        """Fine-tune a language model with Kubeflow's images, as its SDK does. For programs of yours: `gangline.train`."""
        return self._loop_thread.run(
            self._async_client.train(
                name,
                namespace,
                num_workers,
                num_procs_per_worker,
                resources_per_worker,
                model_provider_parameters,
                dataset_provider_parameters,
                trainer_parameters,
                init_env_vars,
                env_vars,
                storage_config,
            )
        )

    def ship_job(self, job: Any, folder: Path, namespace: str | None = None) -> Job:
        """Create a job whose members start in a copy of a folder of this machine."""
        return self._loop_thread.run(self._async_client.ship_job(job, folder, namespace))

    def is_local(self) -> bool:
        """Whether the server is a plane of gangline, on which pods are processes."""
        return self._loop_thread.run(self._async_client.is_local())

    def get_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Job:
        return self._loop_thread.run(self._async_client.get_job(name, namespace, job_kind, timeout))

    def list_jobs(
        self,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        *,
        label_selector: str = "",
    ) -> list[Job]:
        """All jobs of a kind in a namespace."""
        return self._loop_thread.run(
            self._async_client.list_jobs(namespace, job_kind, timeout, label_selector=label_selector)
        )

    def update_job(self, job: Any, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Merge what is given into a job."""
        return self._loop_thread.run(self._async_client.update_job(job, name, namespace, job_kind))

    def delete_job(
        self, name: str, namespace: str | None = None, job_kind: str | None = None, delete_options: Any = None
    ) -> None:
        """Delete a job; its pods go with it."""
        self._loop_thread.run(self._async_client.delete_job(name, namespace, job_kind, delete_options))

    def suspend_job(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Stop the replicas of a job, and keep the job."""
        return self._loop_thread.run(self._async_client.suspend_job(name, namespace, job_kind))

    def resume_job(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Let a suspended job go on."""
        return self._loop_thread.run(self._async_client.resume_job(name, namespace, job_kind))

    def scale_job(
        self,
        name: str,
        replicas: int,
        namespace: str | None = None,
        job_kind: str | None = None,
        replica_type: str = "Worker",
    ) -> Job:
        """So many replicas of a type."""
        return self._loop_thread.run(self._async_client.scale_job(name, replicas, namespace, job_kind, replica_type))

    def restart_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        replica_type: str | None = None,
        replica_index: int | None = None,
    ) -> list[str]:
        """Start replicas anew: those named, or all. Gives the names of the pods that were sent away."""
        return self._loop_thread.run(
            self._async_client.restart_job(name, namespace, job_kind, replica_type, replica_index)
        )

    def get_job_conditions(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> list[Any]:
        """The conditions of a job, given or named."""
        return self._loop_thread.run(self._async_client.get_job_conditions(name, namespace, job_kind, job, timeout))

    def is_job_created(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return self._loop_thread.run(self._async_client.is_job_created(name, namespace, job_kind, job, timeout))

    def is_job_running(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return self._loop_thread.run(self._async_client.is_job_running(name, namespace, job_kind, job, timeout))

    def is_job_restarting(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return self._loop_thread.run(self._async_client.is_job_restarting(name, namespace, job_kind, job, timeout))

    def is_job_suspended(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return self._loop_thread.run(self._async_client.is_job_suspended(name, namespace, job_kind, job, timeout))

    def is_job_succeeded(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return self._loop_thread.run(self._async_client.is_job_succeeded(name, namespace, job_kind, job, timeout))

    def is_job_failed(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> bool:
        return self._loop_thread.run(self._async_client.is_job_failed(name, namespace, job_kind, job, timeout))

    def wait_for_job_conditions(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        expected_conditions: Collection[str] = DEFAULT_EXPECTED_CONDITIONS,
        wait_timeout: float = WAIT_TIMEOUT_SECONDS,
        polling_interval: float = 15,
        callback: JobCallback | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Job:
        """Wait until one of the conditions is True, and give the job. The callback is told of every change."""
        return self._loop_thread.run(
            self._async_client.wait_for_job_conditions(
                name,
                namespace,
                job_kind,
                expected_conditions,
                wait_timeout,
                polling_interval,
                callback,
                timeout,
            )
        )

    def watch_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        wait_timeout: float | None = None,
    ) -> Iterator[Job]:
        """The job as it is, then every change of it, until it is deleted. Raises `TimeoutError` after so long."""
        # Not just returned: who reads on keeps the client.
        yield from self._loop_thread.iterate(self._async_client.watch_job(name, namespace, job_kind, wait_timeout))

    def get_job_pods(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        *,
        job_kind: str | None = None,
    ) -> list[Pod]:
        """The pods of a job: all, the one that leads, those of a type, or one."""
        return self._loop_thread.run(
            self._async_client.get_job_pods(
                name, namespace, is_master, replica_type, replica_index, timeout, job_kind=job_kind
            )
        )

    def get_job_pod_names(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        *,
        job_kind: str | None = None,
    ) -> list[str]:
        """The names of `get_job_pods`."""
        return self._loop_thread.run(
            self._async_client.get_job_pod_names(
                name, namespace, is_master, replica_type, replica_index, timeout, job_kind=job_kind
            )
        )

    def get_job_logs(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        is_master: bool = True,
        replica_type: str | None = None,
        replica_index: int | None = None,
        follow: bool = False,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        verbose: bool = False,
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        """What pods said, by name; and with `verbose` the events of the job and its pods."""
        return self._loop_thread.run(
            self._async_client.get_job_logs(
                name, namespace, job_kind, is_master, replica_type, replica_index, follow, timeout, verbose
            )
        )

    def follow_logs(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        *,
        job_kind: str | None = None,
    ) -> Iterator[JobLogLine]:
        """Every line of every chosen pod as it comes, with the pod's name, until the job has ended."""
        yield from self._loop_thread.iterate(
            self._async_client.follow_logs(name, namespace, is_master, replica_type, replica_index, job_kind=job_kind)
        )

    def why(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Any:
        """Why a job waits or failed: a report with `causes`, each with `cause`, `evidence` and `next`."""
        return self._loop_thread.run(self._async_client.why(name, namespace, job_kind))

    def get_job_progress(
        self, name: str, namespace: str | None = None, job_kind: str | None = None
    ) -> JobProgress | None:
        """How far a job is, as its program reports it; None if it does not."""
        return self._loop_thread.run(self._async_client.get_job_progress(name, namespace, job_kind))


def _close_client(loop: LoopThread, aio: AsyncTrainingClient) -> None:
    loop.close(aio.close())

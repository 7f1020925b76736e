"""The training client for programs with an event loop. `gangline.sdk.client` has the same methods, blocking."""

import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JobKind, JobProgress
from gangline.api.meta import JSON, Key, Selector
from gangline.base.errors import InputError
from gangline.base.tasks import run_all
from gangline.kube.client import Client
from gangline.kube.discovery import server_version
from gangline.kube.errors import AlreadyExists
from gangline.kube.options import DeletionPropagation, PatchType
from gangline.operator.operator_process import EMBEDDED_VERSION_MARK
from gangline.sdk.build.bodies import job_body, plain_json
from gangline.sdk.build.fine_tuning import DEFAULT_STORAGE, FineTuneRequest, fine_tune_job, storage_claim, validate
from gangline.sdk.build.from_arguments import job_from_arguments
from gangline.sdk.build.pod_templates import training_container, with_edited_pods
from gangline.sdk.condition_calls import ConditionCalls
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS
from gangline.sdk.errors import translate_errors
from gangline.sdk.job import Job, job_kind_of, type_meta
from gangline.sdk.pod_calls import PodCalls
from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.inspection import inspect_files, refusal_message, suspicion_lines
from gangline.sdk.ship.manifests import plan_shipment
from gangline.sdk.ship.upload import VOLUME_CLAIMS, ShipRequest, ship_folder


class AsyncTrainingClient(ConditionCalls, PodCalls):
    """Creates, follows, changes and explains training jobs.

    Args:
        config_file: a kubeconfig; by default KUBECONFIG, the local plane of this machine, `~/.kube/config`, or the pod's
            service account.
        context: the context of the kubeconfig.
        client_configuration: a `kubernetes.client.Configuration`, instead of a kubeconfig.
        namespace: the namespace of calls that name none; by default that of the context.
        job_kind: the kind of job of calls that name none.
        local: True starts a local plane, which ends with the client. By default that is done only if no cluster is
            configured and no plane runs, and reported in one line on stderr.

    Calls raise `ValueError` for bad arguments, `TimeoutError` when the server or the job takes too long, and
    `TrainingError`, a `RuntimeError` with the server's message, for everything else. Use it as
    `async with AsyncTrainingClient() as client:`, or call `close` at the end.
    """

    # Jobs

    async def create_job(
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
        """Create a job: a Job, a dict or a model of the Kubeflow SDK; or one built from an image or a function.

        A function is sent as its source: it must import what it uses, and get all other values in `parameters`.
        """
        arguments = {
            "name": name,
            "job_kind": job_kind,
            "base_image": base_image,
            "train_func": train_func,
            "parameters": parameters,
            "num_workers": num_workers,
            "num_procs_per_worker": num_procs_per_worker,
            "resources_per_worker": resources_per_worker,
            "num_chief_replicas": num_chief_replicas,
            "num_ps_replicas": num_ps_replicas,
            "packages_to_install": packages_to_install,
            "pip_index_url": pip_index_url,
            "env_vars": env_vars,
        }
        body = job_from_arguments(job, arguments, self._default_kind)
        kind = job_kind_of(body)
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            target = namespace or (body.get("metadata") or {}).get("namespace") or self._resolved_namespace(None)
            return Job(await client.create(client.unstructured(kind.resource), body, namespace=target))

    async def train(
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
        """Fine-tune a language model with Kubeflow's images, as its SDK does. `gangline.train` is for your own programs.

        A claim with the job's name has the model and the data set; an existing one is used. Tokens in the parameters can
        be read in the job, as with Kubeflow's SDK: prefer `init_env_vars` from a Secret.
        """
        request = FineTuneRequest(
            name,
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
        validate(request)
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            with suppress(AlreadyExists):
                await client.create(
                    VOLUME_CLAIMS, storage_claim(request), namespace=self._resolved_namespace(namespace)
                )
        return await self.create_job(fine_tune_job(request), namespace=namespace)

    async def ship_job(
        self, job: Any, folder: Path, namespace: str | None = None, *, ship_secrets: bool = False
    ) -> Job:
        """Create a job whose replicas start in a copy of a folder of this machine.

        Files that `.gitignore` or `.ganglineignore` excludes are not copied. A folder with credentials, or with links out
        of it, is refused, unless `ship_secrets`. On a local plane the replicas start in the folder itself.
        """
        body = job_body(job)
        kind = job_kind_of(body)
        key = Key(self._resolved_namespace(namespace), body["metadata"]["name"])
        if await self.is_local():
            return await self.create_job(with_working_dir(body, kind, folder), namespace=namespace)
        client = await self._open_client()
        async with translate_errors(f"the folder {folder}"):
            files = list_files(folder)
            inspection = inspect_files(files)
            if inspection.refused and not ship_secrets:
                raise InputError(refusal_message(folder, inspection.refused, "ship_secrets=True"))
            for line in suspicion_lines(inspection.suspicious):
                warnings.warn(line, stacklevel=2)
            with tempfile.TemporaryDirectory(prefix="gangline-") as scratch:
                request = ShipRequest(plan_shipment(files, Path(scratch)), kind, body, key)
                async with ship_folder(client, request, self._clock, lambda text: None) as shipped:
                    created = await self.create_job(shipped.body, namespace=namespace)
                    await shipped.set_owner(await client.get(kind.model, key))
        return created

    async def is_local(self) -> bool:
        """Whether the server is an embedded control plane of gangline, on which pods are processes."""
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            return EMBEDDED_VERSION_MARK in await server_version(client)

    async def list_jobs(
        self,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        *,
        label_selector: str = "",
    ) -> list[Job]:
        """All jobs of a kind in a namespace."""
        kind = self._resolved_kind(job_kind)
        async with self._client_call(timeout) as client:
            selector = Selector(namespace=self._resolved_namespace(namespace), labels=label_selector)
            async with aclosing(client.iterate(client.unstructured(kind.resource), selector)) as bodies:
                return [Job({**type_meta(kind), **body}) async for body in bodies]

    async def update_job(self, job: Any, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Patch a job: the fields of `job` are merged into it."""
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            return await self._merge_patch(client, job_body(job), name, namespace, job_kind)

    async def delete_job(
        self, name: str, namespace: str | None = None, job_kind: str | None = None, delete_options: Any = None
    ) -> None:
        """Delete a job and its pods."""
        options = plain_json(delete_options) or {}
        propagation = options.get("propagationPolicy")
        grace = options.get("gracePeriodSeconds")
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            await client.delete(
                self._resolved_kind(job_kind).resource,
                self._job_key(name, namespace),
                propagation=DeletionPropagation(propagation) if propagation else None,
                grace=timedelta(seconds=grace) if grace is not None else None,
            )

    async def suspend_job(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Suspend a job: its pods are deleted, the job is kept."""
        return await self.update_job({"spec": {"runPolicy": {"suspend": True}}}, name, namespace, job_kind)

    async def resume_job(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Resume a suspended job."""
        return await self.update_job({"spec": {"runPolicy": {"suspend": False}}}, name, namespace, job_kind)

    async def scale_job(
        self,
        name: str,
        replicas: int,
        namespace: str | None = None,
        job_kind: str | None = None,
        replica_type: str = "Worker",
    ) -> Job:
        """Set the number of replicas of a replica type.

        Raises `ValueError` for more or fewer workers than the elastic policy of a PyTorchJob allows.
        """
        kind = self._resolved_kind(job_kind)
        canonical_type = _canonical_replica_type(kind, replica_type)
        if kind.kind == "PyTorchJob":
            # Imported here: few programs scale a job.
            from gangline.summary.actions import elastic_refusal

            job = await self.get_job(name, namespace, kind.kind)
            if refusal := elastic_refusal(job.to_dict()["spec"], canonical_type, replicas):
                raise ValueError(f"replicas: {name} {refusal}")
        body = {"spec": {kind.replicas: {canonical_type: {"replicas": replicas}}}}
        return await self.update_job(body, name, namespace, kind.kind)

    async def restart_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        replica_type: str | None = None,
        replica_index: int | None = None,
    ) -> list[str]:
        """Restart all replicas, or those of a type or index. Returns the names of the deleted pods."""
        pods = await self.get_job_pods(
            name, namespace, replica_type=replica_type, replica_index=replica_index, job_kind=job_kind
        )
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            await run_all(client.delete(Pod, pod.metadata.key, uid=pod.metadata.uid) for pod in pods)
        return [pod.metadata.name for pod in pods]

    # Diagnosis

    async def why(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Any:
        """A report about why a job waits or failed: its `causes`, each with `cause`, `evidence` and `next`."""
        from gangline.why.collect import collect
        from gangline.why.diagnosis.diagnose import diagnose

        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            target = f"{self._resolved_kind(job_kind).kind.lower()}/{name}"
            return diagnose(await collect(client, target, self._resolved_namespace(namespace), self._clock))

    async def get_job_progress(
        self, name: str, namespace: str | None = None, job_kind: str | None = None
    ) -> JobProgress | None:
        """The progress that the program of a job reports; None if it reports none."""
        return (await self.get_job(name, namespace, job_kind)).status.progress

    async def _merge_patch(
        self, client: Client, body: JSON, name: str, namespace: str | None, job_kind: str | None
    ) -> Job:
        resource = client.unstructured(self._resolved_kind(job_kind or body.get("kind")).resource)
        return Job(await client.patch(resource, self._job_key(name, namespace), body, form=PatchType.MERGE))


def _canonical_replica_type(kind: JobKind, replica_type: str) -> str:
    """The replica type as the kind spells it. Raises `ValueError`."""
    types = {name.lower(): name for name in kind.types}
    if replica_type.lower() not in types:
        raise ValueError(f"replica_type: is {replica_type!r}; write one of {', '.join(kind.types)}")
    return types[replica_type.lower()]


def with_working_dir(body: JSON, kind: JobKind, folder: Path) -> JSON:
    """A copy of the job whose training containers start in a folder, unless they name another."""

    def edit(spec: JSON) -> None:
        container = training_container(spec, kind)
        if container is not None:
            container.setdefault("workingDir", str(folder))

    return with_edited_pods(body, kind, edit)

"""The training client for programs with an event loop. `gangline.sdk.client` has the same surface, blocking."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JobKind, JobProgress
from gangline.api.meta import JSON, Key, Selector
from gangline.base.tasks import run_all
from gangline.kube.client import Client
from gangline.kube.discovery import server_version
from gangline.kube.errors import AlreadyExists
from gangline.kube.options import DeletionPropagation, PatchType
from gangline.operator.operator_process import EMBEDDED_VERSION_MARK
from gangline.sdk.build.bodies import job_body, plain_json
from gangline.sdk.build.fine_tuning import DEFAULT_STORAGE, FineTuneRequest, storage_claim, validate
from gangline.sdk.build.fine_tuning import fine_tune_job as finetuning
from gangline.sdk.build.from_arguments import job_from_arguments
from gangline.sdk.build.pod_templates import training_container, with_edited_pods
from gangline.sdk.condition_calls import ConditionCalls
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS, type_meta
from gangline.sdk.errors import translate_errors
from gangline.sdk.job import Job, job_kind_named
from gangline.sdk.pod_calls import PodCalls
from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.manifests import plan_shipment
from gangline.sdk.ship.upload import VOLUME_CLAIMS, ShipRequest, ship_folder


class AsyncTrainingClient(ConditionCalls, PodCalls):
    """Creates, follows, changes and explains training jobs.

    Args:
        config_file: a kubeconfig; by default KUBECONFIG, the plane of this machine, `~/.kube/config`, or the pod.
        context: which context of it.
        client_configuration: a `kubernetes.client.Configuration`, instead of both.
        namespace: where jobs are; by default that of the context.
        job_kind: the kind that calls mean when they name none.
        local: True starts a plane of its own, which ends with the client. By default only where no cluster is
            configured and no plane runs; that is said in one line on stderr.

    Raises `ValueError` for bad arguments, `TimeoutError` when the server or the job takes too long, and
    `TrainingError`, a `RuntimeError` with the server's own words, for everything else. Use it as
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
        """Create a job: a Job, a dict, a model of the Kubeflow SDK; or one made of an image or a function.

        A function travels as its source: it must import what it uses, and take what it needs in `parameters`.
        """
        asked = {
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
        body = job_from_arguments(job, asked, self._default_kind)
        facts = job_kind_named(str(body.get("kind")))
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            where = namespace or (body.get("metadata") or {}).get("namespace") or self._resolved_namespace(None)
            found = await client.create(client.unstructured(facts.resource), body, namespace=where)
            return Job(found)

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
        """Fine-tune a language model with Kubeflow's images, as its SDK does. For programs of yours: `gangline.train`.

        A claim of the job's name holds model and data set; one that is there is used. Tokens in the parameters are
        readable in the job, as they are there: prefer `init_env_vars` from a Secret.
        """
        asked = FineTuneRequest(
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
        validate(asked)
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            with suppress(AlreadyExists):
                await client.create(VOLUME_CLAIMS, storage_claim(asked), namespace=self._resolved_namespace(namespace))
        return await self.create_job(finetuning(asked), namespace=namespace)

    async def ship_job(self, job: Any, folder: Path, namespace: str | None = None) -> Job:
        """Create a job whose members start in a copy of a folder of this machine.

        What `.gitignore` leaves out stays. On a plane of this machine members start in the folder itself.
        """
        body = job_body(job)
        facts = job_kind_named(str(body.get("kind")))
        key = Key(self._resolved_namespace(namespace), body["metadata"]["name"])
        if await self.is_local():
            return await self.create_job(with_working_dir(body, facts, folder), namespace=namespace)
        client = await self._open_client()
        async with translate_errors(f"the folder {folder}"):
            found = list_files(folder)
            with tempfile.TemporaryDirectory(prefix="gangline-") as scratch:
                order = ShipRequest(plan_shipment(found, Path(scratch)), facts, body, key)
                async with ship_folder(client, order, self._clock, lambda text: None) as carried:
                    made = await self.create_job(carried.body, namespace=namespace)
                    await carried.set_owner(await client.get(facts.model, key))
        return made

    async def is_local(self) -> bool:
        """Whether the server is a plane of gangline, on which pods are processes."""
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
        facts = self._resolved_kind(job_kind)
        async with self._client_call(timeout) as client:
            where = Selector(namespace=self._resolved_namespace(namespace), labels=label_selector)
            listed = client.iterate(client.unstructured(facts.resource), where)
            async with aclosing(listed) as found:
                return [Job({**type_meta(facts), **body}) async for body in found]

    async def update_job(self, job: Any, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Merge what is given into a job."""
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            return await self._merge_patch(client, job_body(job), name, namespace, job_kind)

    async def delete_job(
        self, name: str, namespace: str | None = None, job_kind: str | None = None, delete_options: Any = None
    ) -> None:
        """Delete a job; its pods go with it."""
        options = plain_json(delete_options) or {}
        asked = options.get("propagationPolicy")
        grace = options.get("gracePeriodSeconds")
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            await client.delete(
                self._resolved_kind(job_kind).resource,
                self._job_key(name, namespace),
                propagation=DeletionPropagation(asked) if asked else None,
                grace=timedelta(seconds=grace) if grace is not None else None,
            )

    async def suspend_job(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Stop the replicas of a job, and keep the job."""
        return await self.update_job({"spec": {"runPolicy": {"suspend": True}}}, name, namespace, job_kind)

    async def resume_job(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Job:
        """Let a suspended job go on."""
        return await self.update_job({"spec": {"runPolicy": {"suspend": False}}}, name, namespace, job_kind)

    async def scale_job(
        self,
        name: str,
        replicas: int,
        namespace: str | None = None,
        job_kind: str | None = None,
        replica_type: str = "Worker",
    ) -> Job:
        """So many replicas of a type."""
        facts = self._resolved_kind(job_kind)
        kind = _canonical_replica_type(facts, replica_type)
        body = {"spec": {facts.replicas: {kind: {"replicas": replicas}}}}
        return await self.update_job(body, name, namespace, facts.kind)

    async def restart_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        replica_type: str | None = None,
        replica_index: int | None = None,
    ) -> list[str]:
        """Start replicas anew: those named, or all. Gives the names of the pods that were sent away."""
        pods = await self.get_job_pods(
            name, namespace, replica_type=replica_type, replica_index=replica_index, job_kind=job_kind
        )
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            await run_all(client.delete(Pod, pod.metadata.key, uid=pod.metadata.uid) for pod in pods)
        return [pod.metadata.name for pod in pods]

    # Insight

    async def why(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Any:
        """Why a job waits or failed: a report with `causes`, each with `cause`, `evidence` and `next`."""
        from gangline.why.collect import collect
        from gangline.why.diagnosis.diagnose import diagnose

        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            target = f"{self._resolved_kind(job_kind).kind.lower()}/{name}"
            return diagnose(await collect(client, target, self._resolved_namespace(namespace), self._clock))

    async def get_job_progress(
        self, name: str, namespace: str | None = None, job_kind: str | None = None
    ) -> JobProgress | None:
        """How far a job is, as its program reports it; None if it does not."""
        return (await self.get_job(name, namespace, job_kind)).status.progress

    # Inside

    async def _merge_patch(
        self, client: Client, body: JSON, name: str, namespace: str | None, job_kind: str | None
    ) -> Job:
        facts = self._resolved_kind(job_kind or body.get("kind"))
        kind = client.unstructured(facts.resource)
        return Job(await client.patch(kind, self._job_key(name, namespace), body, form=PatchType.MERGE))


def _canonical_replica_type(facts: JobKind, replica_type: str) -> str:
    known = {kind.lower(): kind for kind in facts.types}
    if replica_type.lower() not in known:
        raise ValueError(f"replica_type: is {replica_type!r}; write one of {', '.join(facts.types)}")
    return known[replica_type.lower()]


def with_working_dir(body: JSON, facts: JobKind, folder: Path) -> JSON:
    """The job whose members start in a folder that is where they are."""

    def edit(spec: JSON) -> None:
        container = training_container(spec, facts)
        if container is not None:
            container.setdefault("workingDir", str(folder))

    return with_edited_pods(body, facts, edit)

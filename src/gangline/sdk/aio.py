"""The training client for programs with an event loop. `gangline.sdk.client` has the same surface, blocking."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from gangline.api.core import Pod, PodPhase
from gangline.api.kinds import JOBS
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.api.training import (
    JOB_NAME,
    JOB_ROLE,
    REPLICA_INDEX,
    REPLICA_TYPE,
    ConditionType,
    JobKind,
    JobProgress,
)
from gangline.base.clock import SystemClock
from gangline.base.tasks import beside, run_all
from gangline.kube.client import Client
from gangline.kube.config import Connection, load
from gangline.kube.discovery import version
from gangline.kube.errors import AlreadyExists, KubeError, NotFound
from gangline.kube.http import HttpTransport
from gangline.kube.options import PatchForm, Propagation, WriteOptions
from gangline.kube.pods import Pods
from gangline.operator.process import EMBEDDED
from gangline.runtime.informer import Delta, Informer
from gangline.sdk import place
from gangline.sdk.bodies import body_of, plain
from gangline.sdk.errors import JobFailed, TrainingError, told
from gangline.sdk.finetune import STORAGE, Tuning, checked, claim_of
from gangline.sdk.finetune import job_of as finetuning
from gangline.sdk.funnel import job_from
from gangline.sdk.job import Job, facts_of
from gangline.sdk.logs import Line, follow
from gangline.sdk.parcel import parcel
from gangline.sdk.plane import Plane
from gangline.sdk.sending import CLAIMS, Order, sent
from gangline.sdk.shipping import ready
from gangline.sdk.templates import edited, trainer

T = TypeVar("T")

MANAGER = "gangline-sdk"
TIMEOUT = 120
WAIT = 600
SUCCEEDED: Collection[str] = frozenset({ConditionType.SUCCEEDED.value})
EVENTS: Resource[JSON] = Resource("", "v1", "Event", "events", dict[str, Any])
CONDITIONS = tuple(str(kind) for kind in ConditionType)

Callback = Callable[[Job], object]


class AsyncTrainingClient:
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
        self._facts = facts_of(job_kind)
        self._asked = (config_file, context, client_configuration, local)
        self._namespace = namespace
        self._stack = AsyncExitStack()
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._clock = SystemClock()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up; end the plane, if it was started by this client. Idempotent."""
        self._client = None
        await self._stack.aclose()

    async def _open(self) -> Client:
        async with self._opening:
            if self._client is None:
                connection = await asyncio.to_thread(self._connection)
                self._namespace = self._namespace or connection.namespace
                transport = await self._stack.enter_async_context(HttpTransport(connection, agent=MANAGER))
                self._client = Client(
                    transport, scheme=JOBS, options=WriteOptions(MANAGER), clock=self._clock
                )
            return self._client

    def _connection(self) -> Connection:
        config_file, context, configuration, local = self._asked
        if configuration is not None:
            return place.configured(configuration)
        found = None if local else place.found(config_file, context, os.environ, Path.home())
        if found is not None:
            return found
        if local is False:
            raise ValueError("no cluster is configured; write config_file, or set KUBECONFIG")
        if local is None:
            sys.stderr.write(
                "gangline: no cluster is configured; jobs run on this machine while this program does\n"
            )
        plane = Plane.start()
        self._stack.callback(plane.close)
        return load(kubeconfig=str(plane.kubeconfig), environ=os.environ, home=Path.home())

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
        body = job_from(job, asked, self._facts)
        facts = facts_of(str(body.get("kind")))
        async with self._told(TIMEOUT) as client:
            where = namespace or (body.get("metadata") or {}).get("namespace") or self._home(None)
            found = await client.create(client.plain(facts.resource), body, namespace=where)
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
        storage_config: Mapping[str, Any] = STORAGE,
    ) -> Job:
        """Fine-tune a language model with Kubeflow's images, as its SDK does. For programs of yours: `gangline.train`.

        A claim of the job's name holds model and data set; one that is there is used. Tokens in the parameters are
        readable in the job, as they are there: prefer `init_env_vars` from a Secret.
        """
        asked = Tuning(
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
        checked(asked)
        async with self._told(TIMEOUT) as client:
            with suppress(AlreadyExists):
                await client.create(CLAIMS, claim_of(asked), namespace=self._home(namespace))
        return await self.create_job(finetuning(asked), namespace=namespace)

    async def ship_job(self, job: Any, folder: Path, namespace: str | None = None) -> Job:
        """Create a job whose members start in a copy of a folder of this machine.

        What `.gitignore` leaves out stays. On a plane of this machine members start in the folder itself.
        """
        body = body_of(job)
        facts = facts_of(str(body.get("kind")))
        key = Key(self._home(namespace), body["metadata"]["name"])
        if await self.is_local():
            return await self.create_job(started_in(body, facts, folder), namespace=namespace)
        client = await self._open()
        async with told(f"the folder {folder}"):
            found = parcel(folder)
            with tempfile.TemporaryDirectory(prefix="gangline-") as scratch:
                order = Order(ready(found, Path(scratch)), facts, body, key)
                async with sent(client, order, self._clock, lambda text: None) as carried:
                    made = await self.create_job(carried.body, namespace=namespace)
                    await carried.belongs_to(await client.get(facts.model, key))
        return made

    async def is_local(self) -> bool:
        """Whether the server is a plane of gangline, on which pods are processes."""
        async with self._told(TIMEOUT) as client:
            return EMBEDDED in await version(client)

    async def get_job(
        self, name: str, namespace: str | None = None, job_kind: str | None = None, timeout: float = TIMEOUT
    ) -> Job:
        async with self._told(timeout) as client:
            return await self._job(client, name, namespace, job_kind)

    async def list_jobs(
        self,
        namespace: str | None = None,
        job_kind: str | None = None,
        timeout: float = TIMEOUT,
        *,
        label_selector: str = "",
    ) -> list[Job]:
        """All jobs of a kind in a namespace."""
        facts = self._kind(job_kind)
        async with self._told(timeout) as client:
            where = Selector(namespace=self._home(namespace), labels=label_selector)
            listed = client.each(client.plain(facts.resource), where)
            async with aclosing(listed) as found:
                return [Job({**_header(facts), **body}) async for body in found]

    async def update_job(
        self, job: Any, name: str, namespace: str | None = None, job_kind: str | None = None
    ) -> Job:
        """Merge what is given into a job."""
        async with self._told(TIMEOUT) as client:
            return await self._merged(client, body_of(job), name, namespace, job_kind)

    async def delete_job(
        self, name: str, namespace: str | None = None, job_kind: str | None = None, delete_options: Any = None
    ) -> None:
        """Delete a job; its pods go with it."""
        options = plain(delete_options) or {}
        asked = options.get("propagationPolicy")
        grace = options.get("gracePeriodSeconds")
        async with self._told(TIMEOUT) as client:
            await client.delete(
                self._kind(job_kind).resource,
                self._key(name, namespace),
                propagation=Propagation(asked) if asked else None,
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
        facts = self._kind(job_kind)
        kind = _spelled(facts, replica_type)
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
        async with self._told(TIMEOUT) as client:
            await run_all(client.delete(Pod, pod.metadata.key, uid=pod.metadata.uid) for pod in pods)
        return [pod.metadata.name for pod in pods]

    # Conditions

    async def get_job_conditions(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> list[Any]:
        """The conditions of a job, given or named."""
        found = await self._given(name, namespace, job_kind, job, timeout)
        return list(found.status.conditions)

    async def is_job_created(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.CREATED, name, namespace, job_kind, job, timeout)

    async def is_job_running(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.RUNNING, name, namespace, job_kind, job, timeout)

    async def is_job_restarting(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.RESTARTING, name, namespace, job_kind, job, timeout)

    async def is_job_suspended(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.SUSPENDED, name, namespace, job_kind, job, timeout)

    async def is_job_succeeded(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.SUCCEEDED, name, namespace, job_kind, job, timeout)

    async def is_job_failed(
        self,
        name: str | None = None,
        namespace: str | None = None,
        job_kind: str | None = None,
        job: Any = None,
        timeout: float = TIMEOUT,
    ) -> bool:
        return await self._holds(ConditionType.FAILED, name, namespace, job_kind, job, timeout)

    async def wait_for_job_conditions(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        expected_conditions: Collection[str] = SUCCEEDED,
        wait_timeout: float = WAIT,
        polling_interval: float = 15,
        callback: Callback | None = None,
        timeout: float = TIMEOUT,
    ) -> Job:
        """Wait until one of the conditions is True, and give the job. The callback is told of every change.

        Nothing is polled: `polling_interval` is taken for compatibility and has no effect. Raises `JobFailed` if the
        job failed and that was not expected, and `TimeoutError`.
        """
        unknown = set(expected_conditions) - set(CONDITIONS)
        if unknown:
            raise ValueError(f"expected_conditions: {sorted(unknown)}; write some of {', '.join(CONDITIONS)}")

        def done(found: Job) -> bool:
            if callback is not None:
                callback(found)
            if any(found.status.holds(ConditionType(each)) for each in expected_conditions):
                return True
            if found.status.holds(ConditionType.FAILED):
                raise JobFailed(found)
            if found.status.holds(ConditionType.SUCCEEDED):
                raise TrainingError(f"{found!r} ended without {' or '.join(sorted(expected_conditions))}")
            return False

        try:
            async with aclosing(self.watch_job(name, namespace, job_kind, wait_timeout)) as changes:
                async for found in changes:
                    if done(found):
                        return found
        except TimeoutError:
            wanted = " or ".join(sorted(expected_conditions))
            raise TimeoutError(f"job {name}: not {wanted} within {wait_timeout:g} seconds") from None
        raise TrainingError(f"job {name} was deleted")

    async def watch_job(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        wait_timeout: float | None = None,
    ) -> AsyncGenerator[Job, None]:
        """The job as it is, then every change of it, until it is deleted. Raises `TimeoutError` after so long."""
        facts, key = self._kind(job_kind), self._key(name, namespace)
        async with self._told(TIMEOUT) as client:
            await self._job(client, name, namespace, job_kind)
        changes: asyncio.Queue[JSON | None] = asyncio.Queue()

        def tell(delta: Delta[JSON]) -> None:
            changes.put_nowait(delta.after)

        where = Selector(namespace=key.namespace, fields=f"metadata.name={key.name}")
        informer: Informer[JSON] = Informer(client, client.plain(facts.resource), where, clock=self._clock)
        deadline = None if wait_timeout is None else self._clock.monotonic() + wait_timeout
        async with beside(informer.run()):
            with informer.subscribed(tell):
                while (body := await self._before(deadline, changes.get())) is not None:
                    yield Job({**_header(facts), **body})

    # Pods and logs

    async def get_job_pods(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = TIMEOUT,
        *,
        job_kind: str | None = None,
    ) -> list[Pod]:
        """The pods of a job: all, the one that leads, those of a type, or one."""
        labels = {JOB_NAME: name}
        labels |= {JOB_ROLE: "master"} if is_master else {}
        labels |= {REPLICA_TYPE: _type(replica_type, job_kind)} if replica_type else {}
        labels |= {REPLICA_INDEX: str(replica_index)} if replica_index is not None else {}
        async with self._told(timeout) as client:
            chosen = ",".join(f"{label}={value}" for label, value in labels.items())
            return list((await client.list(Pod, Selector(self._home(namespace), labels=chosen))).items)

    async def get_job_pod_names(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = TIMEOUT,
        *,
        job_kind: str | None = None,
    ) -> list[str]:
        """The names of `get_job_pods`."""
        found = await self.get_job_pods(
            name, namespace, is_master, replica_type, replica_index, timeout, job_kind=job_kind
        )
        return [pod.metadata.name for pod in found]

    async def get_job_logs(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        is_master: bool = True,
        replica_type: str | None = None,
        replica_index: int | None = None,
        follow: bool = False,
        timeout: float = TIMEOUT,
        verbose: bool = False,
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        """What pods said, by name; and with `verbose` the events of the job and its pods.

        With `follow` the lines are printed as they come, until all pods have ended, those that start late too.
        """
        facts = self._kind(job_kind)
        chosen: dict[str, Any] = {
            "is_master": is_master and not replica_type and replica_index is None,
            "replica_type": replica_type,
            "replica_index": replica_index,
            "job_kind": facts.kind,
        }
        if follow:
            texts: dict[str, list[str]] = {}
            async with aclosing(self.follow_logs(name, namespace, **chosen)) as lines:
                async for line in lines:
                    sys.stdout.write(f"[Pod {line.pod}]: {line.text}\n")
                    texts.setdefault(line.pod, []).append(line.text)
            logs = {pod: "".join(f"{text}\n" for text in said) for pod, said in texts.items()}
        else:
            pods = await self.get_job_pods(name, namespace, timeout=timeout, **chosen)
            started = [pod for pod in pods if pod.status.phase != PodPhase.PENDING]
            async with self._told(timeout) as client:
                logs = {pod.metadata.name: await _log(client, pod, facts.container) for pod in started}
        events = await self._events(facts, name, namespace, list(logs)) if verbose else {}
        return logs, events

    async def follow_logs(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        *,
        job_kind: str | None = None,
    ) -> AsyncGenerator[Line, None]:
        """Every line of every chosen pod as it comes, with the pod's name, until the job has ended."""
        facts, key = self._kind(job_kind), self._key(name, namespace)
        client = await self._open()

        def chosen(pod: Pod) -> bool:
            labels = pod.metadata.labels
            return (
                (not is_master or labels.get(JOB_ROLE) == "master")
                and (not replica_type or labels.get(REPLICA_TYPE) == _type(replica_type, job_kind))
                and (replica_index is None or labels.get(REPLICA_INDEX) == str(replica_index))
            )

        async with (
            told(f"logs of {name}"),
            aclosing(follow(client, facts, key, chosen, self._clock)) as lines,
        ):
            async for line in lines:
                yield line

    # Insight

    async def why(self, name: str, namespace: str | None = None, job_kind: str | None = None) -> Any:
        """Why a job waits or failed: a report with `causes`, each with `cause`, `evidence` and `next`."""
        from gangline.why.collect import collect
        from gangline.why.diagnose import diagnose

        async with self._told(TIMEOUT) as client:
            target = f"{self._kind(job_kind).kind.lower()}/{name}"
            return diagnose(await collect(client, target, self._home(namespace), self._clock))

    async def get_job_progress(
        self, name: str, namespace: str | None = None, job_kind: str | None = None
    ) -> JobProgress | None:
        """How far a job is, as its program reports it; None if it does not."""
        return (await self.get_job(name, namespace, job_kind)).status.progress

    # Inside

    async def _before(self, deadline: float | None, work: Awaitable[T]) -> T:
        async with asyncio.timeout(
            None if deadline is None else max(0.0, deadline - self._clock.monotonic())
        ):
            return await work

    @asynccontextmanager
    async def _told(self, timeout: float) -> AsyncIterator[Client]:
        async with told("the server", timeout):
            yield await self._open()

    def _kind(self, job_kind: str | None) -> JobKind:
        return facts_of(job_kind) if job_kind is not None else self._facts

    def _home(self, namespace: str | None) -> str:
        return namespace or self._namespace or "default"

    def _key(self, name: str, namespace: str | None) -> Key:
        return Key(self._home(namespace), name)

    async def _job(self, client: Client, name: str, namespace: str | None, job_kind: str | None) -> Job:
        return Job(await client.get(client.plain(self._kind(job_kind).resource), self._key(name, namespace)))

    async def _merged(
        self, client: Client, body: JSON, name: str, namespace: str | None, job_kind: str | None
    ) -> Job:
        facts = self._kind(job_kind or body.get("kind"))
        kind = client.plain(facts.resource)
        return Job(await client.patch(kind, self._key(name, namespace), body, form=PatchForm.MERGE))

    async def _given(
        self, name: str | None, namespace: str | None, job_kind: str | None, job: Any, timeout: float
    ) -> Job:
        if job is not None:
            return Job(body_of(job))
        if name is None:
            raise ValueError("write the name of a job, or give one")
        return await self.get_job(name, namespace, job_kind, timeout)

    async def _holds(
        self,
        condition: ConditionType,
        name: str | None,
        namespace: str | None,
        job_kind: str | None,
        job: Any,
        timeout: float,
    ) -> bool:
        return (await self._given(name, namespace, job_kind, job, timeout)).status.holds(condition)

    async def _events(
        self, facts: JobKind, name: str, namespace: str | None, pods: list[str]
    ) -> dict[str, list[str]]:
        """By `kind/name`, each as time and message."""
        about = {(facts.kind, name), *(("Pod", pod) for pod in pods)}
        found: dict[str, list[str]] = {}
        async with self._told(TIMEOUT) as client:
            listed = (await client.list(EVENTS, Selector(self._home(namespace)))).items
        for event in listed:
            subject = event.get("involvedObject") or {}
            if (subject.get("kind"), subject.get("name")) in about:
                at = event.get("lastTimestamp") or event.get("eventTime") or ""
                shown = f"{at[:19].replace('T', ' ')} {event.get('message', '')}"
                found.setdefault(f"{subject['kind'].lower()}/{subject['name']}", []).append(shown)
        return found


def _header(facts: JobKind) -> JSON:
    """Items of a list have neither."""
    return {"apiVersion": facts.model.API_VERSION, "kind": facts.kind}


def _spelled(facts: JobKind, replica_type: str) -> str:
    known = {kind.lower(): kind for kind in facts.types}
    if replica_type.lower() not in known:
        raise ValueError(f"replica_type: is {replica_type!r}; write one of {', '.join(facts.types)}")
    return known[replica_type.lower()]


def _type(replica_type: str, job_kind: str | None) -> str:
    """As labels have it. Raises `ValueError` for a type that no kind has."""
    from gangline.api.kinds import KINDS

    kinds = [facts_of(job_kind)] if job_kind else list(KINDS)
    known = sorted({kind.lower() for facts in kinds for kind in facts.types})
    if replica_type.lower() not in known:
        raise ValueError(f"replica_type: is {replica_type!r}; write one of {', '.join(known)}")
    return replica_type.lower()


def started_in(body: JSON, facts: JobKind, folder: Path) -> JSON:
    """The job whose members start in a folder that is where they are."""

    def edit(spec: JSON) -> None:
        container = trainer(spec, facts)
        if container is not None:
            container.setdefault("workingDir", str(folder))

    return edited(body, facts, edit)


async def _log(client: Client, pod: Pod, container: str) -> str:
    names = [found.name for found in pod.spec.containers]
    chosen = container if container in names else names[0]
    try:
        async with aclosing(Pods(client).logs(pod.metadata.key, container=chosen)) as lines:
            return "".join([f"{line.decode(errors='replace')}\n" async for line in lines])
    except NotFound:
        return ""
    except KubeError as error:
        return f"{error}\n"

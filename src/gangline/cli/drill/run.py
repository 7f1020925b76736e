"""Injects a fault into a job on a local plane, and watches whether the job survives it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import click
import msgspec

from gangline.api.drill import FaultKind, FaultRequest, FaultResponse, fault_response
from gangline.api.kubeflow.training import DRILL_ANNOTATION
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.base.invocation import with_own_command
from gangline.cli.connect.server import ServerOptions
from gangline.cli.drill.cluster import ClusterInjector, missing_rights
from gangline.cli.drill.cluster_plan import cluster_plan
from gangline.cli.drill.report import json_report, summary
from gangline.cli.drill.timeline import LASTING_FAULTS, DrillTimeline, InjectedFault, is_running
from gangline.cli.exit_codes import SUCCEEDED, UNFINISHED
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, NotFound, StreamBroken, Unreachable
from gangline.summary.job_state import is_finished, job_state
from gangline.summary.objects import NODES, PODS, ServerJob
from gangline.summary.replicas import list_replicas, pod_selector, replica_name, replica_selector

NODE_VERSION_MARK = "+gangline-"
"""Part of the kubelet version that gangline's node reports."""
NODE_ANSWER_TIMEOUT = timedelta(seconds=10)
POLL_INTERVAL = timedelta(milliseconds=200)


def server_for_job(server: ServerOptions, job: str) -> ServerOptions:
    """The server that the options select; without any, that of a local run that has the job."""
    if server.kubeconfig or server.context or server.cluster or server.user:
        return server
    from gangline.cli.connect.live_runs import find_run_kubeconfig

    file = find_run_kubeconfig(server.namespace or "default", job.rpartition("/")[2])
    return server if file is None else server._replace(kubeconfig=str(file))


class ClusterOptions(NamedTuple):
    """How a drill goes in a cluster."""

    # Whether it is done, and not only shown.
    confirmed: bool = False
    # The image of the pod that sends signals; empty: that of the victim.
    image: str = ""


class FaultMaker(Protocol):
    """Makes a fault: our own nodes do, or whoever uses what a cluster offers."""

    def injected(self, victims: Sequence[JSON]) -> AbstractAsyncContextManager[None]:
        """Make the fault; it is undone when the block ends, as far as it can be. Raises `InputError`."""
        ...


class DrillRunner:
    """Runs one drill: injects the fault, watches the job, and prints the outcome."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        hold: timedelta,
        timeout: timedelta,
        *,
        as_json: bool,
        explainable: bool = True,
        cluster: ClusterOptions | None = None,
    ) -> None:
        """`explainable`: whether the job is still there after the drill, for `gangline why`."""
        self._cluster = cluster or ClusterOptions()
        self._request: FaultRequest | None = None
        self._client, self._clock, self._as_json, self._explainable = client, clock, as_json, explainable
        self._hold, self._timeout = hold, timeout
        self._changed, self._plane_gone = asyncio.Event(), False
        # The answers of the nodes, by pod name.
        self.answers: dict[str, FaultResponse] = {}

    async def run(self, job: ServerJob, request: FaultRequest, replica: str) -> int:
        """Run the drill and return the exit code; `replica` may be empty. Raises `InputError` if nothing was done."""
        self._request = request
        if is_finished(job.body):
            raise InputError(f"{job.display_name} has ended ({job_state(job.body)}); a drill needs a running job")
        pods = await list_replicas(self._client, job)
        victims = victim_pods(job, pods, request.fault, replica)
        nodes = sorted({pod["spec"].get("nodeName", "") for pod in victims})
        injector: FaultMaker = self
        if not all([await self._is_own_node(node) for node in nodes]):
            cluster = ClusterInjector(self._client, self._clock, request, self._cluster.image)
            if not await self._confirm_cluster(cluster, request, victims):
                return SUCCEEDED
            injector = cluster
        names = tuple(replica_name(job, pod) for pod in victims)
        fault = InjectedFault(
            request.fault.value,
            names,
            self._clock.monotonic(),
            duration=request.seconds if request.fault.value in LASTING_FAULTS else 0.0,
            hold_seconds=self._hold.total_seconds(),
        )
        timeline = DrillTimeline(job, pods, fault)
        code = UNFINISHED
        try:
            async with asyncio.timeout(self._timeout.total_seconds()), asyncio.TaskGroup() as group:
                # The watches start before the fault: a pod may be replaced at once.
                tasks = [group.create_task(work) for work in self._watch_tasks(job, request, timeline)]
                async with injector.injected(victims):
                    for pod in victims:
                        answer = self.answers.get(pod["metadata"]["name"])
                        does = answer.does if answer is not None else f"{request.fault} as planned"
                        click.echo(f"{replica_name(job, pod)}: {does}", err=True)
                    code = await self._wait_for_verdict(timeline)
                for task in tasks:
                    task.cancel()
        except TimeoutError:
            pass
        return self._print_outcome(job, timeline, code)

    async def _is_own_node(self, node: str) -> bool:
        """Whether gangline runs the node: then the node itself injects the fault."""
        try:
            body = await self._client.get(NODES, Key("", node))
        except ApiError:
            return False
        return NODE_VERSION_MARK in str(((body.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", ""))

    async def _confirm_cluster(self, injector: ClusterInjector, request: FaultRequest, victims: Sequence[JSON]) -> bool:
        """Print what a drill does in a cluster, and check the rights. False: only that was asked for.

        Raises `InputError` if it cannot be done.
        """
        plan = cluster_plan(request, victims, self._cluster.image)
        if plan.refusal:
            raise InputError(plan.refusal)
        missing = await missing_rights(self._client, plan)
        for line in plan.does:
            click.echo(f"{'' if self._cluster.confirmed else 'would '}{line}", err=True)
        for right in plan.rights:
            click.echo(f"needs: {right}{' (you do not have it)' if right in missing else ''}", err=True)
        if missing:
            raise InputError(f"you lack the right to {missing[0]}; ask for it, or choose another fault")
        await injector.check(victims)
        if not self._cluster.confirmed:
            click.echo("nothing was done; to do it: add --yes")
        return self._cluster.confirmed

    @asynccontextmanager
    async def injected(self, victims: Sequence[JSON]) -> AsyncIterator[None]:
        """Have the nodes of the pods inject the fault. Raises `InputError` if one refuses."""
        assert self._request is not None
        await self._inject_fault(victims, self._request)
        yield

    async def _inject_fault(self, victims: Sequence[JSON], request: FaultRequest) -> None:
        """Annotate the pods with the request, and wait for their nodes to answer. Raises `InputError` if one refuses."""
        annotations = {DRILL_ANNOTATION: msgspec.json.encode(request).decode()}
        for pod in victims:
            metadata = pod["metadata"]
            body: JSON = {"metadata": {"uid": metadata["uid"], "annotations": annotations}}
            try:
                await self._client.patch(PODS, Key(metadata["namespace"], metadata["name"]), body)
            except (NotFound, Conflict):
                raise InputError(f"{metadata['name']} is gone; try again") from None
        deadline = self._clock.monotonic() + NODE_ANSWER_TIMEOUT.total_seconds()
        for name in (pod["metadata"]["name"] for pod in victims):
            while name not in self.answers:
                if self._clock.monotonic() > deadline or self._plane_gone:
                    raise InputError(f"the node of {name} does not answer; is its plane running?")
                await self._wait_for_change()
            if self.answers[name].refuses:
                raise InputError(f"{name}: {self.answers[name].refuses}")

    def _watch_tasks(
        self, job: ServerJob, request: FaultRequest, timeline: DrillTimeline
    ) -> Iterator[Coroutine[Any, Any, None]]:
        job_selector = Selector(job.key.namespace, fields=f"metadata.name={job.key.name}")
        uid = job.body["metadata"].get("uid")

        def on_job(body: JSON, deleted: bool) -> None:
            if body["metadata"].get("uid") == uid:
                timeline.update_job(body, self._clock.monotonic(), deleted=deleted)

        def on_pod(body: JSON, deleted: bool) -> None:
            answer = fault_response(body["metadata"].get("annotations") or {})
            if answer is not None and answer.id == request.id:
                self.answers[body["metadata"]["name"]] = answer
            timeline.update_pod(body, self._clock.monotonic(), deleted=deleted)

        yield self._watch(job.resource, job_selector, on_job)
        yield self._watch(PODS, pod_selector(job), on_pod)

    async def _watch(
        self, resource: Resource[JSON], selector: Selector, on_change: Callable[[JSON, bool], None]
    ) -> None:
        try:
            async with aclosing(watch_objects(self._client, resource, selector)) as objects:
                async for change in objects:
                    if change.body is not None:
                        on_change(change.body, change.deleted)
                        self._changed.set()
        except (Unreachable, StreamBroken):
            # The plane of a run ends with the run.
            self._plane_gone = True
            self._changed.set()

    async def _wait_for_change(self) -> None:
        """Wait until a watch delivers a change, at most for `POLL_INTERVAL`."""
        self._changed.clear()
        timer = self._clock.call_later(POLL_INTERVAL, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    async def _wait_for_verdict(self, timeline: DrillTimeline) -> int:
        while True:
            code = timeline.exit_code(self._clock.monotonic())
            for line in timeline.drain_lines():
                click.echo(line, err=True)
            if code is not None:
                return code
            if self._plane_gone:
                click.echo("the plane of the job has stopped, so its run has ended", err=True)
                return UNFINISHED
            await self._wait_for_change()

    def _print_outcome(self, job: ServerJob, timeline: DrillTimeline, code: int) -> int:
        outcome = timeline.outcome(code, self._clock.monotonic())
        for line in timeline.drain_lines():
            click.echo(line, err=True)
        if self._as_json:
            click.echo(json.dumps(json_report(outcome), indent=2))
        else:
            click.echo(summary(outcome))
        if code != SUCCEEDED and self._explainable:
            click.echo(with_own_command(f"why: gangline why {job.key.name}"), err=True)
        return code


def victim_pods(job: ServerJob, pods: Sequence[JSON], fault: FaultKind, replica: str) -> list[JSON]:
    """The pods that the fault hits. Raises `InputError` if there is no such running pod.

    That is the named replica; without a name the last worker, or for a lost node all pods of one node.
    """
    running = [pod for pod in pods if is_running(pod)]
    if not pods:
        raise InputError(f"{job.display_name} has no pods yet")
    if replica:
        selector = replica_selector(replica)
        matches = [pod for pod in pods if selector.matches(pod)]
        names = ", ".join(replica_name(job, pod) for pod in pods)
        if not matches:
            raise InputError(f'{job.display_name} has no replica "{replica}"; there is {names}')
        if selector.number is None and len(matches) > 1:
            first = replica_name(job, matches[0])
            raise InputError(f'"{replica}" is {len(matches)} replicas; name one, such as {first}')
        if matches[0] not in running:
            raise InputError(f"{replica_name(job, matches[0])} does not run, so no fault can be injected")
        return matches
    if not running:
        raise InputError(f"no replica of {job.display_name} runs, so no fault can be injected")
    if fault is FaultKind.NODE_LOST:
        node = running[-1]["spec"].get("nodeName")
        return [pod for pod in running if pod["spec"].get("nodeName") == node]
    workers = [pod for pod in running if replica_selector("worker").matches(pod)]
    return [(workers or running)[-1]]

"""`gangline drill`: a fault on purpose, to see whether a training survives it."""

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any, TypeVar

import click
import msgspec

from gangline.api.drill import FaultKind, FaultRequest, FaultResponse, fault_response
from gangline.api.kubeflow.training import DRILL_ANNOTATION
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.drill.timeline import DrillTimeline, InjectedFault, is_running
from gangline.cli.exit_codes import NOT_FOUND, SUCCEEDED, UNFINISHED
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.job_rows import is_finished, job_state
from gangline.cli.resources.lookup import NODES, PODS, ServerJob, find_job
from gangline.cli.resources.replicas import list_replicas, pod_selector, replica_name, replica_selector
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, NotFound, StreamBroken, Unreachable

F = TypeVar("F", bound=Callable[..., Any])

CHOOSE_ONE_FAULT = "choose one fault: --kill worker-1, --oom, --port, --disk, --node-lost or --slow 200ms"
NODE_VERSION_MARK = "+gangline-"
"""In the version that a node of ours says it has."""
NODE_ANSWER_TIMEOUT = timedelta(seconds=10)
"""How long a node may take to answer."""
POLL_INTERVAL = timedelta(milliseconds=200)
PORT_FAULT_DURATION = timedelta(seconds=30)
"""How long a port is taken: a program may need some time until it wants it."""
FAULT_DURATION = timedelta(seconds=10)


def _fault_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar="[REPLICA]", is_flag=False, flag_value="", help=text)


@cli_command()
@click.argument("job", required=False, metavar="JOB", shell_complete=completed_by("jobs"))
@_fault_option("--kill", "Kill its processes (SIGKILL).")
@_fault_option("--oom", "Have its node kill it for its memory (OOMKilled).")
@_fault_option("--port", "Kill it, and take its port before it starts again.")
@_fault_option("--disk", "Fill its emptyDir that has a sizeLimit; without one, evict it as for a full disk.")
@_fault_option("--node-lost", "Lose the node with it for a while; without a name, with all of the job's.")
@click.option("--slow", type=DURATION, metavar="PAUSE", help="Let it stand still for PAUSE, again and again.")
@click.option("--replica", "chosen", metavar="REPLICA", help="Whom to slow down; the last worker by default.")
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    metavar="DURATION",
    help="How long a fault lasts that lasts: 10s; a taken port 30s.",
)
@click.option(
    "--hold",
    type=DURATION,
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="Survived is who runs for so long.",
)
@click.option("--timeout", type=DURATION, default="2m", show_default=True, metavar="DURATION", help="Give up after.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The outcome for programs.")
@server_options
def drill(
    job: str | None,
    kill: str | None,
    oom: str | None,
    port: str | None,
    disk: str | None,
    node_lost: str | None,
    slow: timedelta | None,
    chosen: str | None,
    lasts: timedelta | None,
    hold: timedelta,
    timeout: timedelta,
    output: str | None,
    server: ServerOptions,
) -> int:
    r"""Provoke a fault in a job of this machine, and tell whether its training survives.

    The job may be one of `gangline up`, or of a `gangline run` that goes on in another terminal. The faults are real:
    processes die, ports are taken, volumes fill up. Nothing is done to a cluster: only gangline's own node obeys.

    \b
      gangline drill linear --kill worker-1
      gangline drill linear --oom                     the last worker
      gangline drill linear --node-lost --for 20s
      gangline drill linear --slow 200ms --replica worker-2

    Exit codes: 0 survived; 100 the job failed; 101 not clear within --timeout; 102 no such job; 103 the job was
    deleted; 1 an error, and nothing was done.
    """
    asked = {
        FaultKind.KILL: kill,
        FaultKind.OOM: oom,
        FaultKind.PORT: port,
        FaultKind.DISK: disk,
        FaultKind.NODE_LOST: node_lost,
    }
    wanted = [(fault, whom) for fault, whom in asked.items() if whom is not None]
    wanted += [(FaultKind.SLOW, "")] if slow is not None else []
    if len(wanted) != 1:
        raise InputError(CHOOSE_ONE_FAULT)
    if job is None:
        # The name of the job was taken for that of a replica.
        raise InputError("name the job before the fault: gangline drill JOB --kill worker-1")
    fault, whom = wanted[0]
    stays = lasts or (PORT_FAULT_DURATION if fault is FaultKind.PORT else FAULT_DURATION)
    order = FaultRequest(
        id=uuid.uuid4().hex,
        fault=fault,
        seconds=stays.total_seconds(),
        pause=slow.total_seconds() if slow is not None else 0.0,
    )
    if fault is FaultKind.SLOW and order.pause <= 0:
        raise InputError("--slow: write how long it is to stand still each time, such as 200ms")

    async def work(client: Client, place: ServerTarget) -> int:
        if place.archive is not None:
            raise InputError("no plane runs on this machine; start the job with gangline run or gangline up")
        drilling = DrillRunner(client, SystemClock(), hold, timeout, as_json=output == "json")
        return await drilling.run(await find_job(client, place.object_namespace, job), order, whom or chosen or "")

    return run_async(server_for_job(server, job), work, missing=NOT_FOUND)


def server_for_job(server: ServerOptions, job: str) -> ServerOptions:
    """The server as asked for; if none is, that of a run on this machine that has the job."""
    if server.kubeconfig or server.context or server.cluster or server.user:
        return server
    from gangline.cli.connect.live_runs import find_run_kubeconfig

    file = find_run_kubeconfig(server.namespace or "default", job.rpartition("/")[2])
    return server if file is None else server._replace(kubeconfig=str(file))


class DrillRunner:
    """One fault, and what becomes of it."""

    def __init__(self, client: Client, clock: Clock, hold: timedelta, timeout: timedelta, *, as_json: bool) -> None:
        self._client, self._clock, self._as_json = client, clock, as_json
        self._hold, self._timeout = hold, timeout
        self._changed, self._plane_gone = asyncio.Event(), False
        # What nodes said, by pod name.
        self.answers: dict[str, FaultResponse] = {}

    async def run(self, job: ServerJob, order: FaultRequest, whom: str) -> int:
        """Gives the exit code. Raises `InputError` when nothing was done."""
        if is_finished(job.body):
            raise InputError(f"{job.display_name} has ended ({job_state(job.body)}); there is nothing left to survive")
        pods = await list_replicas(self._client, job)
        victims = victim_pods(job, pods, order.fault, whom)
        for node in sorted({pod["spec"].get("nodeName", "") for pod in victims}):
            await self._require_own_node(node)
        names = tuple(replica_name(job, pod) for pod in victims)
        lasts = order.seconds if order.fault is FaultKind.SLOW else 0.0
        trial = InjectedFault(order.fault.value, names, self._clock.monotonic(), lasts, self._hold.total_seconds())
        story = DrillTimeline(job, pods, trial)
        code = UNFINISHED
        try:
            async with asyncio.timeout(self._timeout.total_seconds()), asyncio.TaskGroup() as group:
                # Watched from before the fault: a pod may be replaced before anybody could ask for it.
                tasks = [group.create_task(work) for work in self._watch_tasks(job, order, story)]
                await self._inject_fault(victims, order)
                for pod in victims:
                    answer = self.answers[pod["metadata"]["name"]]
                    click.echo(f"{replica_name(job, pod)}: {answer.does}", err=True)
                code = await self._wait_for_verdict(story)
                for task in tasks:
                    task.cancel()
        except TimeoutError:
            pass
        return self._print_outcome(job, story, code)

    async def _require_own_node(self, node: str) -> None:
        """Raises `InputError` unless the node is one of ours: nothing is done to a cluster."""
        told = (
            f"node {node} is not gangline's own, and a drill harms local runs only; "
            "to have a replica made anew in a cluster: gangline restart JOB --replica worker/1"
        )
        try:
            found = await self._client.get(NODES, Key("", node))
        except ApiError as error:
            raise InputError(told) from error
        if NODE_VERSION_MARK not in str(((found.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", "")):
            raise InputError(told)

    async def _inject_fault(self, victims: Sequence[JSON], order: FaultRequest) -> None:
        """Write the order on the pods, and wait for what their nodes say. Raises `InputError` when one refuses."""
        note = {DRILL_ANNOTATION: msgspec.json.encode(order).decode()}
        for pod in victims:
            metadata = pod["metadata"]
            body: JSON = {"metadata": {"uid": metadata["uid"], "annotations": note}}
            try:
                await self._client.patch(PODS, Key(metadata["namespace"], metadata["name"]), body)
            except (NotFound, Conflict):
                raise InputError(f"{metadata['name']} is gone; try again") from None
        end = self._clock.monotonic() + NODE_ANSWER_TIMEOUT.total_seconds()
        for name in (pod["metadata"]["name"] for pod in victims):
            while name not in self.answers:
                if self._clock.monotonic() > end or self._plane_gone:
                    raise InputError(f"the node of {name} does not answer; is its plane running?")
                await self._wait_for_change()
            if self.answers[name].refuses:
                raise InputError(f"{name}: {self.answers[name].refuses}")

    # What is seen

    def _watch_tasks(
        self, job: ServerJob, order: FaultRequest, story: DrillTimeline
    ) -> Iterator[Coroutine[Any, Any, None]]:
        itself = Selector(job.key.namespace, fields=f"metadata.name={job.key.name}")
        uid = job.body["metadata"].get("uid")

        def saw_job(body: JSON, deleted: bool) -> None:
            if body["metadata"].get("uid") == uid:
                story.update_job(body, self._clock.monotonic(), deleted=deleted)

        def saw_pod(body: JSON, deleted: bool) -> None:
            said = fault_response(body["metadata"].get("annotations") or {})
            if said is not None and said.id == order.id:
                self.answers[body["metadata"]["name"]] = said
            story.update_pod(body, self._clock.monotonic(), deleted=deleted)

        yield self._watch(job.resource, itself, saw_job)
        yield self._watch(PODS, pod_selector(job), saw_pod)

    async def _watch(self, resource: Resource[JSON], where: Selector, saw: Callable[[JSON, bool], None]) -> None:
        try:
            async with aclosing(watch_objects(self._client, resource, where)) as seen:
                async for each in seen:
                    if each.body is not None:
                        saw(each.body, each.deleted)
                        self._changed.set()
        except (Unreachable, StreamBroken):
            # The plane of a run goes with it.
            self._plane_gone = True
            self._changed.set()

    async def _wait_for_change(self) -> None:
        """Wait for one, or for a moment."""
        self._changed.clear()
        timer = self._clock.call_later(POLL_INTERVAL, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    # Afterwards

    async def _wait_for_verdict(self, story: DrillTimeline) -> int:
        while True:
            code = story.exit_code(self._clock.monotonic())
            for line in story.drain_lines():
                click.echo(line, err=True)
            if code is not None:
                return code
            if self._plane_gone:
                click.echo("the plane of the job is gone, so its run has ended", err=True)
                return UNFINISHED
            await self._wait_for_change()

    def _print_outcome(self, job: ServerJob, story: DrillTimeline, code: int) -> int:
        now = self._clock.monotonic()
        for line in story.drain_lines():
            click.echo(line, err=True)
        if self._as_json:
            click.echo(json.dumps(story.json_report(code, now), indent=2))
        else:
            click.echo(story.summary(code, now))
        if code != SUCCEEDED:
            click.echo(f"why: gangline why {job.key.name}", err=True)
        return code


def victim_pods(job: ServerJob, pods: Sequence[JSON], fault: FaultKind, whom: str) -> list[JSON]:
    """Whom it strikes: the one named; else the last worker, or all when the node is lost. Raises `InputError`."""
    going = [pod for pod in pods if is_running(pod)]
    if not pods:
        raise InputError(f"{job.display_name} has no pods yet")
    if whom:
        wanted = replica_selector(whom)
        named = [pod for pod in pods if wanted.matches(pod)]
        there = ", ".join(replica_name(job, pod) for pod in pods)
        if not named:
            raise InputError(f'{job.display_name} has no replica "{whom}"; there is {there}')
        if wanted.number is None and len(named) > 1:
            raise InputError(f'"{whom}" is {len(named)} replicas; name one, such as {replica_name(job, named[0])}')
        if named[0] not in going:
            raise InputError(f"{replica_name(job, named[0])} does not run, so nothing can be done to it")
        return named
    if not going:
        raise InputError(f"no replica of {job.display_name} runs, so nothing can be done to one")
    if fault is FaultKind.NODE_LOST:
        node = going[-1]["spec"].get("nodeName")
        return [pod for pod in going if pod["spec"].get("nodeName") == node]
    workers = [pod for pod in going if replica_selector("worker").matches(pod)]
    return [(workers or going)[-1]]

"""The job of a drill that names none: the example that `gangline demo` trains, on a plane of its own."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta

import msgspec

from gangline.api.meta import JSON
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.cli.cleanup.processes import with_watchdog
from gangline.cli.connect.live_runs import publish_kubeconfig
from gangline.cli.drill.timeline import is_running, last_report
from gangline.cli.manifests.jobs import read_jobs_and_others
from gangline.cli.resources.lookup import find_job
from gangline.cli.resources.watch import watch_objects
from gangline.cli.run.demo import demo_settings, examples_folder
from gangline.cli.run.request import DEFAULT_CAPACITY, RunJob
from gangline.cli.run.result import silence_operator_log
from gangline.cli.run.submit import submit_job
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings, temporary_plane
from gangline.node.options import node_settings
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.summary.objects import PODS, ServerJob
from gangline.summary.replicas import list_replicas, pod_selector

EXAMPLE = "tfjob-numpy.yaml"
STEP_SECONDS = 0.15
"""With 400 steps the example trains for a minute: longer than a drill takes."""
START_TIMEOUT = timedelta(minutes=1)


def read_demo_job() -> RunJob:
    """The example, slowed down."""
    file = examples_folder() / EXAMPLE
    [(kind, document)], _ = read_jobs_and_others(file, demo_settings(STEP_SECONDS))
    return RunJob(kind, document.body, file.parent.resolve(), document=document)


def check_demo_replica(job: RunJob, replica: str) -> None:
    """Raise `InputError` if the example has no such replica, before anything is started."""
    names = [
        f"{name.lower()}-{index}"
        for name, spec in job.body["spec"]["tfReplicaSpecs"].items()
        for index in range(spec.get("replicas", 1))
    ]
    if replica and replica.lower().replace("/", "-") not in names:
        raise InputError(
            f'the demo job has no replica "{replica}"; write one of {", ".join(names)}, '
            f"or name your job before the fault: gangline drill JOB --kill"
        )


@asynccontextmanager
async def running_demo_job(job: RunJob, clock: Clock) -> AsyncIterator[tuple[Client, ServerJob]]:
    """The job on a plane of this machine, with all replicas reporting progress. When the block ends nothing is left."""
    silence_operator_log()
    operator = msgspec.structs.replace(LOCAL_SETTINGS, kinds=(job.kind.scheme,))
    with with_watchdog() as state:
        node = node_settings(capacity=DEFAULT_CAPACITY)
        settings = LocalSettings(folder=job.folder, logs=state, plane=temporary_plane(), node=node)
        async with embedded_plane(settings, clock, operator) as plane:
            publish_kubeconfig(state, plane.access, [job.key()])
            await submit_job(plane.client, job.kind, job.body)
            server_job = await find_job(plane.client, job.key().namespace, job.name)
            await _wait_until_training(plane.client, server_job, clock)
            yield plane.client, server_job


async def _wait_until_training(client: Client, job: ServerJob, clock: Clock) -> None:
    """Wait until all pods run and a worker reports progress. Raises `InputError` after `START_TIMEOUT`."""
    deadline = clock.monotonic() + START_TIMEOUT.total_seconds()
    async with aclosing(watch_objects(client, PODS, pod_selector(job))) as changes:
        async for _ in changes:
            pods: list[JSON] = await list_replicas(client, job)
            if pods and all(map(is_running, pods)) and any(map(last_report, pods)):
                return
            if clock.monotonic() > deadline:
                raise InputError("the demo job did not start within a minute; look at it with: gangline demo")

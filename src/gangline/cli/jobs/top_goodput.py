"""`gangline top --goodput`: what the time of replicas went into, by namespace and queue."""

import click

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import ServerTarget
from gangline.cli.output import tables
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.summary.goodput_rows import HEADER, goodput_row, goodput_sums
from gangline.summary.objects import JOB_KINDS


async def show_goodput(job: str | None, client: Client, target: ServerTarget, *, headers: bool) -> None:
    """Show the ledgers of one job, or of all jobs by namespace and queue."""
    if job is not None:
        jobs = [(await find_job(client, target.object_namespace, job)).body]
    else:
        jobs = await _all_jobs(client, target.namespace)
    sums = goodput_sums(jobs, SystemClock().now())
    rows = [[*([] if target.namespace else [group.namespace]), *goodput_row(group)] for group in sums]
    header = (*(() if target.namespace else ("NAMESPACE",)), *HEADER)
    tables.write_stdout(tables.render(header, rows, headers=headers))
    if not rows:
        click.echo("no job has a ledger of its time; the operator begins one when it sees a job", err=True)


async def _all_jobs(client: Client, namespace: str) -> list[JSON]:
    """The jobs of all kinds that the server has, each once: versions of one kind show the same jobs."""
    jobs: dict[str, JSON] = {}
    for resource in JOB_KINDS:
        try:
            async for page in client.pages(resource, Selector(namespace)):
                jobs.update((body["metadata"]["uid"], body) for body in page.items)
        except NotFound:
            continue
    return list(jobs.values())

"""`gangline run` and `gangline demo`: a job from a file on an ephemeral local plane; its verdict is the exit code."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import click

from gangline.api.training import JobKind
from gangline.cli.nodeoptions import NodeOptions, node_options
from gangline.local.node.settings import NodeSettings

SUCCEEDED, FAILED, UNFINISHED = 0, 100, 101
# One job, and nobody else here: a file that asks for a cluster's cores runs on the few there are, only slower.
CAPACITY = ("cpu=1000",)


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long (exit code 101).")
@node_options
def run_file(file: Path, timeout: float | None, **node: Any) -> int:
    """Run the job in FILE on this machine, follow its logs, exit with its verdict."""
    return run_job(file, timeout, NodeOptions(**node))


@click.command()
def demo() -> int:
    """Train a small model with one parameter server and three workers, on this machine."""
    return run_job(examples() / "tfjob-numpy.yaml", timeout=300.0)


def examples() -> Path:
    """The examples: inside the package when installed from a wheel, at the root of a clone."""
    package = Path(__file__).parents[1]
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parents[1] / "examples"


def run_job(file: Path, timeout: float | None, node: NodeOptions = NodeOptions()) -> int:  # noqa: B008 - frozen
    """Read, run, follow. Bad input is found before anything starts."""
    # Imported here, because the command line must start fast and only `run` needs a server and a client.
    import logging

    from gangline.base.log import LogFormat, configure
    from gangline.base.tasks import unwrapped
    from gangline.cli.manifest import read_job
    from gangline.local.node.choosing import settings

    # What the operator would warn of is told by the view; its log is for operators.
    configure(logging.ERROR, LogFormat.TEXT)
    facts, body = read_job(file)
    chosen = settings(**node._replace(capacity=(*CAPACITY, *node.capacity))._asdict())
    with unwrapped():
        return asyncio.run(_run(facts, body, file.parent.resolve(), timeout, chosen))


async def _run(
    facts: JobKind, body: dict[str, object], folder: Path, timeout: float | None, node: NodeSettings
) -> int:
    from gangline.api.training import ConditionType
    from gangline.base.clock import SystemClock
    from gangline.cli.follow import Follower
    from gangline.local.cluster import LocalSettings
    from gangline.operator.wire import embedded

    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="gangline-") as logs:
        settings = LocalSettings(folder=folder, logs=Path(logs), node=node)
        async with embedded(settings, clock) as plane:
            click.echo(f"local control plane ready: {plane.url}", err=True)
            follower = Follower(plane.client, facts, settings.logs, clock)
            try:
                async with asyncio.timeout(timeout):
                    job = await follower.follow(body)
            except TimeoutError:
                click.echo(f"not finished after {timeout:g} s; everything was stopped", err=True)
                return UNFINISHED
    return SUCCEEDED if job.status.holds(ConditionType.SUCCEEDED) else FAILED

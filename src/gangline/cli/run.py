"""`gangline run` and `gangline demo`: a job from a file on an ephemeral local plane; its verdict is the exit code."""

import asyncio
import tempfile
from pathlib import Path

import click

from gangline.api.training import JobKind

SUCCEEDED, FAILED, UNFINISHED = 0, 100, 101
# One job, and nobody else here: a file that asks for a cluster's cores runs on the few there are, only slower.
CAPACITY = {"cpu": "1000"}


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long (exit code 101).")
@click.option(
    "--images",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What stands for images on this machine.",
)
def run_file(file: Path, timeout: float | None, images: Path | None) -> int:
    """Run the job in FILE on this machine, follow its logs, exit with its verdict."""
    return run_job(file, timeout, images)


@click.command()
def demo() -> int:
    """Train a small model with one parameter server and three workers, on this machine."""
    return run_job(examples() / "tfjob-numpy.yaml", timeout=300.0)


def examples() -> Path:
    """The examples: inside the package when installed from a wheel, at the root of a clone."""
    package = Path(__file__).parents[1]
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parents[1] / "examples"


def run_job(file: Path, timeout: float | None, images: Path | None = None) -> int:
    """Read, run, follow. Bad input is found before anything starts."""
    # Imported here, because the command line must start fast and only `run` needs a server and a client.
    from gangline.base.tasks import unwrapped
    from gangline.cli.manifest import read_job
    from gangline.local.node.images import Images

    facts, body = read_job(file)
    if images is not None:
        Images.load(images)
    with unwrapped():
        return asyncio.run(_run(facts, body, file.parent.resolve(), timeout, images))


async def _run(
    facts: JobKind, body: dict[str, object], folder: Path, timeout: float | None, images: Path | None
) -> int:
    from gangline.api.training import ConditionType
    from gangline.base.clock import SystemClock
    from gangline.cli.follow import Follower
    from gangline.local.cluster import LocalSettings
    from gangline.local.node.settings import NodeSettings
    from gangline.operator.wire import embedded

    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="gangline-") as logs:
        settings = LocalSettings(
            folder=folder, logs=Path(logs), node=NodeSettings(images=images, capacity=CAPACITY)
        )
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

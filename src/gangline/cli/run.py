"""`gangline run` and `gangline demo`: a job from a file on an ephemeral local plane; its verdict is the exit code."""

import asyncio
import tempfile
from pathlib import Path

import click

SUCCEEDED, FAILED, UNFINISHED = 0, 100, 101


@click.command("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long (exit code 101).")
def run_file(file: Path, timeout: float | None) -> int:
    """Run the job in FILE on this machine, follow its logs, exit with its verdict."""
    return run_job(file, timeout)


@click.command()
def demo() -> int:
    """Train a small model with one parameter server and three workers, on this machine."""
    return run_job(examples() / "tfjob-numpy.yaml", timeout=300.0)


def examples() -> Path:
    """The examples: inside the package when installed from a wheel, at the root of a clone."""
    package = Path(__file__).parents[1]
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parents[1] / "examples"


def run_job(file: Path, timeout: float | None) -> int:
    """Read, run, follow. Bad input is found before anything starts."""
    # Imported here, because the command line must start fast and only `run` needs a server and a client.
    from gangline.api.tfjob import TFJob
    from gangline.cli.manifest import read_job

    body = read_job(file, TFJob)
    return asyncio.run(_run(body, file.parent.resolve(), timeout))


async def _run(body: dict[str, object], folder: Path, timeout: float | None) -> int:
    from gangline.api.training import ConditionType
    from gangline.base.clock import SystemClock
    from gangline.cli.follow import Follower
    from gangline.local.cluster import LocalSettings
    from gangline.operator.wire import embedded

    clock = SystemClock()
    with tempfile.TemporaryDirectory(prefix="gangline-") as logs:
        settings = LocalSettings(folder=folder, logs=Path(logs))
        async with embedded(settings, clock) as plane:
            click.echo(f"local control plane ready: {plane.url}", err=True)
            follower = Follower(plane.client, settings.logs, clock)
            try:
                async with asyncio.timeout(timeout):
                    job = await follower.follow(body)
            except TimeoutError:
                click.echo(f"not finished after {timeout:g} s; everything was stopped", err=True)
                return UNFINISHED
    return SUCCEEDED if job.status.holds(ConditionType.SUCCEEDED) else FAILED

"""`gangline demo`: a real training, in the middle of which one worker is killed and comes back."""

from pathlib import Path

import click

from gangline.cli.nodeoptions import NodeOptions
from gangline.cli.run import OFFERED, RUNS, Asked, run_job

VICTIM = "worker-1"
MOMENT = 0.35
"""How far the victim is when it is killed."""
# Slow enough to watch, and a curve that takes its time. The file itself trains in a second.
PARTS = "spec.tfReplicaSpecs.{}.template.spec.containers.0.command=[python, linear.py, {}]"
SETTINGS = (
    PARTS.format("PS", "--rate, '0.012'"),
    PARTS.format("Worker", "--steps, '400', --pace, '0.025'"),
)
PATIENCE = 300.0


@click.command()
@click.option(
    "--runs", type=click.Path(path_type=Path), default=RUNS, metavar="FOLDER", help="Where logs and curve go."
)
def demo(runs: Path) -> int:
    """Watch a training job survive: a parameter server, three workers, one of which is killed on the way.

    It really trains (linear regression, numpy alone) and takes about 15 seconds. Exit codes are those of run.
    """
    file = examples() / "tfjob-numpy.yaml"
    from gangline.cli.accident import accident

    node = NodeOptions(capacity=OFFERED)
    return run_job(
        Asked(
            file=file,
            settings=SETTINGS,
            timeout=PATIENCE,
            runs=runs,
            curve=True,
            node=node,
            watcher=lambda state: accident(state, VICTIM, MOMENT),
            following=f"gangline run {shown(file)} · gangline run --help · edit the file and run it again",
        )
    )


def examples() -> Path:
    """The examples: inside the package when installed from a wheel, at the root of a clone."""
    package = Path(__file__).parents[1]
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parents[1] / "examples"


def shown(file: Path) -> str:
    """A path as short as it can be written from here."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)

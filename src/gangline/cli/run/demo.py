"""`gangline demo`: a real training, in the middle of which one worker is killed and comes back."""

from pathlib import Path

import click

from gangline.cli.flags.node_options import NodeOptions
from gangline.cli.flags.verb import verb
from gangline.cli.run.command import OFFERED, RUNS, Asked, run_job

JOB, VICTIM = "linear", "worker-1"
MOMENT = 0.35
"""How far the victim is when it is killed."""
# Slow enough to watch, and a curve that takes its time. The file itself trains in a second.
PARTS = "spec.tfReplicaSpecs.{}.template.spec.containers.0.command=[python, linear.py, {}]"
PACE = 0.025
PATIENCE = 300.0


@verb()
@click.option(
    "--runs", type=click.Path(path_type=Path), default=RUNS, metavar="FOLDER", help="Where logs and curve go."
)
@click.option(
    "--pace",
    type=float,
    default=PACE,
    show_default=True,
    metavar="SECONDS",
    help="What a step takes at least.",
)
def demo(runs: Path, pace: float) -> int:
    r"""Watch a training job survive: a parameter server, three workers, one of which is killed on the way.

    It really trains (linear regression, numpy alone) and takes about 15 seconds. Curve and logs stay in runs/linear/.

    \b
      gangline demo
      gangline demo --pace 0.2 --runs /tmp/demo     slower, kept elsewhere

    Exit codes: those of run.
    """
    file = examples() / "tfjob-numpy.yaml"
    from gangline.cli.run.accident import accident
    from gangline.cli.run.nextsteps import verbs

    node = NodeOptions(capacity=OFFERED)
    return run_job(
        Asked(
            files=(file,),
            settings=settings(pace),
            timeout=PATIENCE,
            runs=runs,
            curve=True,
            node=node,
            watcher=lambda state: accident(state, VICTIM, MOMENT),
            following=" · ".join((*verbs("get", f"why {JOB}", f"logs {JOB}"), f"gangline run {shown(file)}")),
        )
    )


def settings(pace: float) -> tuple[str, str]:
    """What the demo changes in the example."""
    workers = f"--steps, '400', --pace, '{pace:g}'"
    return PARTS.format("PS", "--rate, '0.012'"), PARTS.format("Worker", workers)


def examples() -> Path:
    """The examples: inside the package when installed from a wheel, at the root of a clone."""
    package = Path(__file__).parents[2]
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parents[1] / "examples"


def shown(file: Path) -> str:
    """A path as short as it can be written from here."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)

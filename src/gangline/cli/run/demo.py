"""`gangline demo`: a real training job in which one worker is killed and restarted."""

from collections.abc import Callable
from pathlib import Path

import click

from gangline.api.meta import Key
from gangline.base.invocation import own_command, shown_path
from gangline.base.options import value_option
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.node_options import NodeOptions
from gangline.cli.flags.run_options import DEFAULT_RUNS_FOLDER
from gangline.cli.run.request import DEFAULT_CAPACITY, JobSource, RunRequest
from gangline.cli.run.run import run_request
from gangline.progress.line import Progress

JOB, VICTIM = "linear", "worker-1"
KILL_AT_SHARE = 0.35
"""The share of its steps after which the victim is killed."""
# Slow enough to watch: as written in the file, the example trains in a second.
COMMAND_SETTING = "spec.tfReplicaSpecs.{}.template.spec.containers.0.command=[python, linear.py, {}]"
STEP_SECONDS = 0.025
TIMEOUT_SECONDS = 300.0


@cli_command()
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=DEFAULT_RUNS_FOLDER,
    metavar="FOLDER",
    help="The folder for logs and curve.",
)
@value_option("--pace", STEP_SECONDS, "The minimal duration of a step.", type=float, metavar="SECONDS")
def demo(runs: Path, pace: float) -> int:
    r"""Watch a training job survive a failure: one of its three workers is killed and restarted.

    It really trains (a linear regression with numpy) and takes about 15 seconds. Curve and logs are kept in runs/linear/.

    \b
      gangline demo
      gangline demo --pace 0.2 --runs /tmp/demo     slower, kept elsewhere

    Exit codes: those of run.
    """
    file = examples_folder() / "tfjob-numpy.yaml"
    from gangline.cli.run.result import next_commands

    node = NodeOptions(capacity=DEFAULT_CAPACITY)
    return run_request(
        RunRequest(
            source=JobSource(files=(file,), settings=demo_settings(pace)),
            timeout=TIMEOUT_SECONDS,
            runs=runs,
            curves=("loss",),
            node=node,
            hook_factory=lambda state: kill_once(state, VICTIM, KILL_AT_SHARE),
            next_steps=(
                *next_commands("get", f"why {JOB}", f"logs {JOB}"),
                f"{own_command()} run {shown_path(file)}",
            ),
        )
    )


def demo_settings(pace: float) -> tuple[str, str]:
    """The `--set` options with which the demo slows the example down."""
    workers = f"--steps, '400', --pace, '{pace:g}'"
    return COMMAND_SETTING.format("PS", "--rate, '0.012'"), COMMAND_SETTING.format("Worker", workers)


def examples_folder() -> Path:
    """The folder of the examples: inside an installed package, or at the root of a clone."""
    package = Path(__file__).parents[2]
    installed = package / "examples"
    return installed if installed.is_dir() else package.parents[1] / "examples"


def kill_once(state: Path, victim: str, share: float, *, job: str = "linear") -> Callable[[str, Progress], str | None]:
    """A progress hook that kills the victim's process once, when its progress reaches `share`."""
    from gangline.cli.cleanup.processes import kill_pod

    killed = False

    def on_progress(replica: str, progress: Progress) -> str | None:
        nonlocal killed
        if killed or replica != victim or (progress.fraction or 0.0) < share:
            return None
        pid = kill_pod(state, Key("default", f"{job}-{victim}"))
        killed = pid is not None
        return f"demo: SIGKILL to {victim} (pid {pid}); watch it heal" if killed else None

    return on_progress

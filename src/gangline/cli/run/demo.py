"""`gangline demo`: a real training, in the middle of which one worker is killed and comes back."""

from pathlib import Path

import click

from gangline.api.meta import Key
from gangline.cli.cleanup.processes import kill_pod
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.node_options import NodeOptions
from gangline.cli.follow.follower import ProgressHook
from gangline.cli.run.command import DEFAULT_CAPACITY, DEFAULT_RUNS_FOLDER, RunRequest, run_request
from gangline.progress.line import Progress

JOB, VICTIM = "linear", "worker-1"
KILL_AT_SHARE = 0.35
"""How far the victim is when it is killed."""
# Slow enough to watch, and a curve that takes its time. The file itself trains in a second.
COMMAND_SETTING = "spec.tfReplicaSpecs.{}.template.spec.containers.0.command=[python, linear.py, {}]"
STEP_SECONDS = 0.025
TIMEOUT_SECONDS = 300.0


@cli_command()
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=DEFAULT_RUNS_FOLDER,
    metavar="FOLDER",
    help="Where logs and curve go.",
)
@click.option(
    "--pace",
    type=float,
    default=STEP_SECONDS,
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
    file = examples_folder() / "tfjob-numpy.yaml"
    from gangline.cli.run.demo import kill_once
    from gangline.cli.run.result import next_commands

    node = NodeOptions(capacity=DEFAULT_CAPACITY)
    return run_request(
        RunRequest(
            files=(file,),
            settings=demo_settings(pace),
            timeout=TIMEOUT_SECONDS,
            runs=runs,
            curve=True,
            node=node,
            hook_factory=lambda state: kill_once(state, VICTIM, KILL_AT_SHARE),
            next_steps=" · ".join(
                (*next_commands("get", f"why {JOB}", f"logs {JOB}"), f"gangline run {short_path(file)}")
            ),
        )
    )


def demo_settings(pace: float) -> tuple[str, str]:
    """What the demo changes in the example."""
    workers = f"--steps, '400', --pace, '{pace:g}'"
    return COMMAND_SETTING.format("PS", "--rate, '0.012'"), COMMAND_SETTING.format("Worker", workers)


def examples_folder() -> Path:
    """The examples: inside the package when installed from a wheel, at the root of a clone."""
    package = Path(__file__).parents[2]
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parents[1] / "examples"


def short_path(file: Path) -> str:
    """A path as short as it can be written from here."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def kill_once(state: Path, victim: str, moment: float, *, job: str = "linear") -> ProgressHook:
    """Tell it progress: at the moment it sends SIGKILL to the victim's process, and says so."""
    done = False

    def watch(member: str, progress: Progress) -> str | None:
        nonlocal done
        if done or member != victim or (progress.fraction or 0.0) < moment:
            return None
        pid = kill_pod(state, Key("default", f"{job}-{victim}"))
        done = pid is not None
        return f"demo: SIGKILL to {victim} (pid {pid}); watch it heal" if done else None

    return watch

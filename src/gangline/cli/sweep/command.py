"""`gangline sweep`: one job with many values, tried on this machine; a leaderboard says which are best."""

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click

from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.node_options import NodeOptions, node_options
from gangline.cli.run.command import DEFAULT_CAPACITY, DEFAULT_RUNS_FOLDER


class SweepRequest(NamedTuple):
    """A sweep as it was asked for: how its trials are run and judged."""

    metric: str
    maximize: bool
    parallel: int
    timeout: float | None
    runs: Path
    output: str
    node: NodeOptions


@cli_command("sweep")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE | -- COMMAND...")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUES",
    help="What to try: lr=0.1,0.01; or with --random also a range: lr=log(1e-4..1e-1), batch=16..256.",
)
@click.option("--random", "draws", type=int, metavar="N", help="Draw N combinations instead of trying all.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="The same seed draws the same.")
@click.option("--parallel", type=int, default=1, show_default=True, metavar="N", help="So many jobs at once.")
@click.option("--metric", default="loss", show_default=True, metavar="NAME", help="The reported number that counts.")
@click.option("--goal", type=click.Choice(["min", "max"]), default="min", show_default=True, help="What is better.")
@click.option("--nproc", type=int, metavar="N", help="Try COMMAND as a job of N processes; no file is needed.")
@click.option("--kind", default="PyTorchJob", show_default=True, help="What kind of job a COMMAND becomes.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Give up a trial after so long, as 90s or 5m.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=DEFAULT_RUNS_FOLDER,
    show_default=True,
    metavar="FOLDER",
    help="Where <job>-sweep/ is made.",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the leaderboard for programs, not for people.")
@node_options
def sweep(
    words: tuple[str, ...],
    settings: tuple[str, ...],
    draws: int | None,
    seed: int,
    nproc: int | None,
    kind: str,
    goal: str,
    output: str | None,
    **rest: Any,
) -> int:
    r"""Try a job with many values, some at a time, and say which are best.

    \b
      gangline sweep job.yaml --set lr=0.1,0.01 --set batch=32,64 --parallel 2
      gangline sweep job.yaml --set "lr=log(1e-4..1e-1)" --set batch=16..256 --random 20
      gangline sweep job.yaml --set spec.tfReplicaSpecs.Worker.replicas=1,2,4
      gangline sweep --nproc 2 --set lr=0.1,0.01 --metric accuracy --goal max -- python train.py --lr {lr}

    A NAME without dots is a variable of every replica, which its command may use as $(lr); in a COMMAND, {lr} stands
    for it. One with dots is a place in the job, as in run. What counts is what a trial reported last
    (docs/progress.md). Table, picture and logs go to runs/<job>-sweep/, also when you stop it with Ctrl-C.

    Exit codes: 0 a trial succeeded, 100 none did, 130 interrupted, 1 an error.
    """
    options = {name: rest.pop(name) for name in NodeOptions._fields}
    node = NodeOptions(**options)
    limit: timedelta | None = rest.pop("timeout")
    asked = SweepRequest(
        maximize=goal == "max",
        output=output or "",
        timeout=limit.total_seconds() if limit is not None else None,
        node=node._replace(capacity=(*DEFAULT_CAPACITY, *node.capacity)),
        **rest,
    )
    if asked.parallel < 1:
        raise InputError(f"--parallel {asked.parallel}: expected 1 or more")
    if not settings:
        raise InputError("nothing to try; write: --set lr=0.1,0.01")
    # Imported here: help and mistakes must come fast.
    from gangline.cli.sweep.space import parse_parameters, trial_values
    from gangline.cli.sweep.trial_jobs import SweepSource, trial_jobs

    if nproc is not None:
        source = SweepSource(command=words, nproc=nproc, kind=kind)
    elif len(words) == 1:
        source = SweepSource(file=Path(words[0]))
    else:
        raise InputError(
            "expected one FILE; or for a script: gangline sweep --nproc 2 --set lr=0.1,0.01 -- python train.py"
        )
    found = trial_values(parse_parameters(settings), draws, seed)
    facts, bodies = trial_jobs(source, found)
    from gangline.cli.sweep.run import run_sweep

    return run_sweep(asked, source, facts, bodies, found)

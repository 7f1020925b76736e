"""`gangline sweep`: runs one job with many values on this machine, and ranks them on a leaderboard."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gangline.base.errors import InputError
from gangline.base.options import choice_option, value_option
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.dashboard_options import DashboardOptions, dashboard_options
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.node_options import NodeOptions, node_options
from gangline.cli.flags.run_options import kind_option, nproc_option, runs_option
from gangline.cli.run.request import DEFAULT_CAPACITY
from gangline.cli.sweep.request import SweepRequest, SweepSource


@cli_command("sweep")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE | -- COMMAND...")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUES",
    help="A parameter and the values to try, such as lr=0.1,0.01; with --random also a range: lr=log(1e-4..1e-1), "
    "batch=16..256; may be repeated.",
)
@click.option("--random", "draws", type=int, metavar="N", help="Try N random combinations instead of all.")
@value_option("--seed", 0, "Seed of --random; the same seed tries the same combinations.", type=int, metavar="S")
@value_option("--parallel", 1, "How many trials run at the same time.", type=int, metavar="N")
@value_option(
    "--metric", "loss", "Metric by which trials are ranked; the program reports it (docs/progress.md).", metavar="NAME"
)
@choice_option("--goal", ["min", "max"], "Whether small (min) or large (max) values of the metric are better.")
@nproc_option("Try COMMAND as a job of so many processes, without a file")
@kind_option
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Stop a trial after this time, such as 90s or 5m.  [default: no limit]",
)
@runs_option("Folder in which <job>-sweep/ is written: table, picture, logs.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="json: print the ranking for programs.")
@dashboard_options
@node_options
def sweep(
    words: tuple[str, ...],
    settings: tuple[str, ...],
    draws: int | None,
    seed: int,
    nproc: str | None,
    kind: str,
    goal: str,
    output: str | None,
    **options: Any,
) -> int:
    r"""Try a job with many parameter values on this machine, and rank the results.

    \b
      gangline sweep job.yaml --set lr=0.1,0.01 --set batch=32,64 --parallel 2
      gangline sweep job.yaml --set "lr=log(1e-4..1e-1)" --set batch=16..256 --random 20
      gangline sweep job.yaml --set spec.tfReplicaSpecs.Worker.replicas=1,2,4
      gangline sweep --nproc 2 --set lr=0.1,0.01 --metric accuracy --goal max -- python train.py --lr {lr}

    A NAME without dots is a variable of every replica, which its command may use as $(lr); in a COMMAND, {lr} stands
    for it. One with dots is a path in the job, as in run. Trials are ranked by the value that they reported last
    (docs/progress.md). Table, picture and logs are written to runs/<job>-sweep/, also if you stop it with Ctrl-C.

    Exit codes: 0 a trial succeeded; 100 none did; 130 interrupted; 1 an error.
    """
    node = NodeOptions(**{name: options.pop(name) for name in NodeOptions._fields})
    dashboard = DashboardOptions.take_from(options)
    timeout: timedelta | None = options.pop("timeout")
    if options["parallel"] < 1:
        raise InputError(f"--parallel {options['parallel']}: expected 1 or more")
    if not settings:
        raise InputError("nothing to try; write: --set lr=0.1,0.01")
    if nproc is not None:
        source = SweepSource(command=words, nproc=nproc, kind=kind)
    elif len(words) == 1:
        source = SweepSource(file=Path(words[0]))
    else:
        raise InputError(
            "expected one FILE; or for a script: gangline sweep --nproc 2 --set lr=0.1,0.01 -- python train.py"
        )
    request = SweepRequest(
        source=source,
        maximize=goal == "max",
        output=output or "",
        timeout=timeout.total_seconds() if timeout is not None else None,
        node=node._replace(capacity=(*DEFAULT_CAPACITY, *node.capacity)),
        dashboard=dashboard,
        **options,
    )
    # Imported here: --help and mistakes in the flags must be fast.
    from gangline.cli.sweep.space import parse_parameters, trial_values
    from gangline.cli.sweep.trial_jobs import trial_jobs

    values = trial_values(parse_parameters(settings), draws, seed)
    job_kind, bodies = trial_jobs(source, values)
    from gangline.cli.sweep.run import run_sweep

    return run_sweep(request, job_kind, bodies, values)

"""The options of commands that run jobs: the kind of a job made from a command, and the folder of kept runs."""

from collections.abc import Callable
from pathlib import Path

import click

from gangline.base.options import F, value_option

DEFAULT_RUNS_FOLDER = Path("runs")

kind_option = value_option("--kind", "PyTorchJob", "Kind of job to make from COMMAND.", metavar="KIND")
progress_option = click.option(
    "--no-progress-endpoint",
    "progress_endpoint",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not tell programs where to report progress, as transformers does by itself; they may still print it.",
)
hang_watch_option = click.option(
    "--no-hang-watch",
    "hang_watch",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not look for jobs that make no progress; without it they get condition Stalled.",
)


def nproc_option(text: str) -> Callable[[F], F]:
    """The option for the number of processes of a command, as `process_count` reads it."""
    return click.option(
        "--nproc",
        metavar="N",
        help=f"{text}: a number, auto (one per GPU, else per core), gpu, cpu, or MIN:MAX for an elastic PyTorchJob.",
    )


def runs_option(text: str) -> Callable[[F], F]:
    """The option for the folder of kept runs."""
    return value_option("--runs", DEFAULT_RUNS_FOLDER, text, type=click.Path(path_type=Path), metavar="FOLDER")

"""`gangline simulate`: runs the scheduler's engine on virtual time, with the jobs of a trace or generated ones."""

import sys
from pathlib import Path

import click

from gangline.base.options import value_option
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.durations import DURATION
from gangline.cli.simulate.defaults import MAX_NODES, NODE_CAPACITY


@cli_command()
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), default=100, show_default=True, help="Number of nodes.")
@click.option(
    "--node",
    "parks",
    multiple=True,
    metavar="[COUNT*]AMOUNTS",
    help="What one node offers; with COUNT*, several kinds of node instead of --nodes; may be repeated.  "
    f"[default: {NODE_CAPACITY}]",
)
@click.option(
    "--trace",
    type=click.Path(),
    metavar="FILE",
    help="Read the jobs from this file instead of generating them: CSV, or one JSON object per line; - is stdin.",
)
@click.option("--jobs", type=click.IntRange(1), default=1000, show_default=True, help="Number of jobs to generate.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated jobs.")
@click.option(
    "--mix",
    metavar="SIZE:SHARE,...",
    help="How many members generated gangs have: 1:5,8:1 is five jobs of one member for each of eight.  "
    "[default: 1 to 512, more where few jobs meet many nodes]",
)
@click.option(
    "--request",
    metavar="AMOUNTS",
    help="What each member of a generated gang requests, such as cpu=8,nvidia.com/gpu=1.",
)
@value_option(
    "--load",
    0.9,
    "Generated work as a share of what the nodes can do; above 1 the queue only grows.",
    type=click.FloatRange(0.0, min_open=True),
)
@value_option("--duration", "30m", "Median duration of generated jobs.", type=DURATION, metavar="DURATION")
@click.option(
    "--priorities",
    metavar="PRIORITY:SHARE,...",
    help="Priorities of generated jobs: 0:9,10:1 gives one job in ten the priority 10.  [default: all 0]",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=WEIGHT][,AMOUNTS]",
    help="A queue, its weight, and the most that it may use: product=1,nvidia.com/gpu=200; may be repeated.",
)
@value_option(
    "--patience",
    "5m",
    "How long smaller gangs may overtake one that waits; 0 is without limit.",
    type=DURATION,
    metavar="DURATION",
)
@click.option("--no-preemption", is_flag=True, help="Never stop running jobs for one of higher priority.")
@click.option("--no-reclaim", is_flag=True, help="Never stop jobs of a queue that uses more than its share.")
@value_option("--grace", "30s", "How long a stopped pod takes to end.", type=DURATION, metavar="DURATION")
@click.option(
    "--checkpoint",
    type=DURATION,
    default="0",
    metavar="DURATION",
    help="How often jobs save their work.  [default: never; a stopped job starts from the beginning]",
)
@value_option("--cycle", "1s", "Shortest time between two scheduling cycles.", type=DURATION, metavar="DURATION")
@click.option(
    "--log", type=click.Path(dir_okay=False), metavar="FILE", help="Write every event to FILE, as JSON lines."
)
@click.option(
    "--plots",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Draw utilisation and waiting jobs over time as SVG files in FOLDER.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text for people, json for programs.",
)
def simulate(**options: object) -> int:
    r"""Simulate the queue of a cluster: how long jobs would wait, and how full the nodes would be.

    \b
      gangline simulate --nodes 1000 --jobs 200                  1,000 nodes with 8 GPUs each
      gangline simulate --nodes 100 --jobs 2000 --load 1.1       more work than the nodes can do
      gangline simulate --queue research=3 --queue product=1,nvidia.com/gpu=200 --priorities 0:9,10:1
      gangline simulate --node 80*cpu=96,memory=1Ti,nvidia.com/gpu=8 --node 20*cpu=64,memory=256Gi --trace jobs.csv

    Needs no cluster: the engine of `gangline scheduler` decides in virtual time, hours in seconds, with gangs,
    priorities, queues, preemption. The same options give the same result. The columns of a trace are in
    docs/simulate.md.

    Exit codes: 0 simulated; 1 an error of input.
    """
    # Imported here: the engine and numpy take a while to load.
    from gangline.cli.simulate.report import as_json, as_text, write_plots
    from gangline.cli.simulate.request import simulate_request
    from gangline.cli.simulate.run import run_simulation

    result = run_simulation(simulate_request(options), Path(str(options["log"])) if options["log"] else None)
    if options["plots"]:
        write_plots(result, Path(str(options["plots"])))
    sys.stdout.write(as_json(result) if options["form"] == "json" else as_text(result))
    return 0

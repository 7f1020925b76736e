"""`gangline simulate`: runs the scheduler's engine on virtual time, with the jobs of a trace or generated ones."""

import sys
from pathlib import Path

import click

from gangline.base.options import value_option
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.durations import DURATION
from gangline.cli.simulate.defaults import MAX_NODES, NODE_CAPACITY


@cli_command()
@click.option("--nodes", type=click.IntRange(1, MAX_NODES), default=100, show_default=True, help="The number of nodes.")
@click.option(
    "--node",
    "parks",
    multiple=True,
    metavar="[COUNT*]AMOUNTS",
    help=f"What a node offers ({NODE_CAPACITY}); with counts, several kinds of node, instead of --nodes.",
)
@click.option(
    "--trace", type=click.Path(), metavar="FILE", help="The jobs: CSV, or a JSON object per line; - is stdin."
)
@click.option("--jobs", type=click.IntRange(1), default=1000, show_default=True, help="The number of generated jobs.")
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of the generated jobs.")
@click.option("--mix", metavar="SIZE:SHARE,...", help="Sizes of generated gangs, and how common they are.")
@click.option("--request", metavar="AMOUNTS", help="The resources that each member of a generated gang requests.")
@value_option(
    "--load",
    0.9,
    "The generated work as a share of what the nodes can do.",
    type=click.FloatRange(0.0, min_open=True),
)
@value_option("--duration", "30m", "The median duration of generated jobs.", type=DURATION)
@click.option(
    "--priorities", metavar="PRIORITY:SHARE,...", help="Priorities of generated jobs, and how common they are."
)
@click.option(
    "--queue", "queues", multiple=True, metavar="NAME[=WEIGHT][,AMOUNTS]", help="A queue with its weight and cap."
)
@value_option("--patience", "5m", "How long smaller gangs may overtake a waiting one; 0: for ever.", type=DURATION)
@click.option("--no-preemption", is_flag=True, help="Never preempt pods for a gang of higher priority.")
@click.option("--no-reclaim", is_flag=True, help="Queues do not reclaim their share from each other.")
@value_option("--grace", "30s", "How long a preempted pod takes to end.", type=DURATION)
@click.option(
    "--checkpoint",
    type=DURATION,
    default="0",
    help="How often jobs save their work; by default a preempted job loses all of it.",
)
@value_option("--cycle", "1s", "Minimal time between two cycles.", type=DURATION)
@click.option("--log", type=click.Path(dir_okay=False), metavar="FILE", help="Write every event there, as JSON lines.")
@click.option(
    "--plots",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Draw resource use and waiting jobs over time there, as SVG.",
)
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", help="Output format.")
def simulate(**options: object) -> int:
    r"""Simulate how long gangs wait and how full the nodes are: hours of a cluster in seconds.

    The scheduler's own engine decides, on virtual time: whole gangs, priorities, queues with weights and caps,
    preemption, patience. The same jobs, nodes and options give the same result, and the same log, byte for byte.

    \b
      gangline simulate --nodes 100 --jobs 2000 --load 1.1
      gangline simulate --node 80*cpu=96,memory=1Ti,nvidia.com/gpu=8 --node 20*cpu=64,memory=256Gi --trace jobs.csv
      gangline simulate --queue research=3 --queue product=1,nvidia.com/gpu=200 --priorities 0:9,10:1 -o json

    A trace has the columns arrival, members, request, duration, and optionally queue, priority, name and least; times
    are seconds, and a request is cpu=8 memory=64Gi. More in docs/simulate.md.

    Exit codes: 0; 1 an error of input.
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

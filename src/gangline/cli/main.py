"""The command tree, and the one place where errors become a line and an exit code."""

import sys
from collections.abc import Sequence

import click

from gangline import __version__
from gangline.base.errors import GanglineError
from gangline.cli.lazy import LazyGroup
from gangline.cli.verbs import ALIASES, VERBS

COMMANDS = {
    **VERBS,
    "crds": ("gangline.cli.crds:crds", "Print the definitions of the job kinds."),
    "demo": ("gangline.cli.demo:demo", "See a team train, lose a worker and heal, on this machine."),
    "down": ("gangline.cli.up:down", "Stop the control plane of this machine. What it stored stays."),
    "node": ("gangline.cli.node:node", "Run the pods that a server binds to this machine, as processes."),
    "operator": ("gangline.cli.operator:operator", "Run the training jobs of a cluster."),
    "run": ("gangline.cli.run:run_file", "Run a job on this machine; its verdict is the exit code."),
    "up": ("gangline.cli.up:up", "Start a control plane on this machine that stays."),
    "version": ("gangline.cli.version:version", "The versions of gangline and of a server."),
    "why": ("gangline.cli.why:why", "Why a job waits or failed: the cause, the evidence, the next step."),
}

INTERRUPTED = 130


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gangline", message="%(prog)s %(version)s")
def cli() -> None:
    """Distributed training jobs from one YAML, on any Kubernetes and on this machine.

    Exit codes of run and demo: 0 succeeded, 100 failed, 101 not finished in time, 130 interrupted; 1 is an error
    of input or use.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code. Bad input is one line on stderr and 1."""
    try:
        code = cli.main(list(arguments), prog_name="gangline", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 1
    except click.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except GanglineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0

"""The command tree, and the one place where errors become a line and an exit code."""

import sys
from collections.abc import Sequence

import click

from gangline import __version__
from gangline.base.errors import GanglineError
from gangline.cli.crds import crds
from gangline.cli.node import node
from gangline.cli.operator import operator
from gangline.cli.run import demo, run_file
from gangline.cli.up import down, up
from gangline.cli.version import version

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gangline", message="%(prog)s %(version)s")
def cli() -> None:
    """Distributed training jobs from one YAML, on any Kubernetes and on this machine.

    Exit codes of run and demo: 0 succeeded, 100 failed, 101 not finished in time, 130 interrupted; 1 is an error
    of input or use.
    """


cli.add_command(run_file)
cli.add_command(demo)
cli.add_command(up)
cli.add_command(node)
cli.add_command(operator)
cli.add_command(crds)
cli.add_command(down)
cli.add_command(version)


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

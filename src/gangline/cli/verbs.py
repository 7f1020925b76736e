"""The verbs that speak to a server: where each command is, and what it is in a few words."""

import sys
from collections.abc import Sequence

import click

from gangline.base.errors import GanglineError
from gangline.cli.flags.commands import LazyGroup, print_usage_error

SERVER_COMMANDS = {
    "apply": ("gangline.cli.jobs.apply:apply", "Make objects as files say, or change them to that."),
    "check": ("gangline.cli.authoring.check:check", "Find mistakes in files, without a server."),
    "completion": (
        "gangline.cli.completion.command:completion",
        "Print what makes a shell complete our words.",
    ),
    "create": ("gangline.cli.jobs.apply:create", "Create what files hold."),
    "delete": ("gangline.cli.jobs.delete:delete", "Delete jobs or other objects."),
    "describe": (
        "gangline.cli.jobs.describe:describe",
        "All about one job: replicas, conditions, failure, events.",
    ),
    "doctor": ("gangline.cli.services.doctor:doctor", "Look whether everything is in place for jobs to run."),
    "drill": (
        "gangline.cli.drill.command:drill",
        "Provoke a fault, and see whether the training survives it.",
    ),
    "events": ("gangline.cli.jobs.events:events", "What happened to a job and its replicas, oldest first."),
    "exec": ("gangline.cli.jobs.exec:exec_", "Run a command in a replica."),
    "get": ("gangline.cli.get.command:get", "Print jobs, or objects of any kind."),
    "list": ("gangline.cli.get.aliases:list_", "The same as get jobs."),
    "logs": ("gangline.cli.logs.command:logs", "What all replicas of a job say, in order of time."),
    "plan": ("gangline.cli.plan.command:plan", "Show what a job in a file would create."),
    "ps": ("gangline.cli.get.aliases:ps", "The replicas of jobs: their pods."),
    "restart": ("gangline.cli.jobs.restart:restart", "Start replicas anew: one, a type, or the whole team."),
    "resume": ("gangline.cli.jobs.suspend:resume", "Let a suspended job go on."),
    "scale": ("gangline.cli.jobs.scale:scale", "Change how many replicas of a type a job has."),
    "suspend": ("gangline.cli.jobs.suspend:suspend", "Stop a job's replicas and keep the job."),
    "top": ("gangline.cli.jobs.top:top", "CPU and memory of replicas."),
    "wait": ("gangline.cli.jobs.wait:wait", "Wait for a job, and exit with its verdict."),
}
COMMAND_ALIASES = {"status": "describe", "cancel": "delete", "submit": "apply", "log": "logs"}


@click.group(
    cls=LazyGroup,
    lazy=SERVER_COMMANDS,
    aliases=COMMAND_ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def verbs() -> None:
    """The verbs of gangline that speak to a server."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line of these, for tests. Gives the exit code."""
    try:
        code = verbs.main(list(arguments), prog_name="gangline", standalone_mode=False)
    except click.ClickException as error:
        print_usage_error(error)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except GanglineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))

"""The command tree. Errors that a command raises become one line on standard error and an exit code here."""

import os
import sys
from collections.abc import Sequence

import click

from gangline import __version__
from gangline.base.errors import GanglineError
from gangline.cli.exit_codes import ERROR, INTERRUPTED
from gangline.cli.flags.commands import LazyGroup, print_usage_error

COMMANDS = {
    "run": ("gangline.cli.run.command:run", "Run a script or a job file, here or in a cluster, and watch it."),
    "demo": ("gangline.cli.run.demo:demo", "Watch a job train, lose a worker and recover, on this machine."),
    "get": ("gangline.cli.get.command:get", "List jobs, or objects of any kind."),
    "list": ("gangline.cli.get.command:list_", "List jobs; the same as `get jobs`."),
    "ps": ("gangline.cli.get.command:ps", "List the replicas (pods) of a job."),
    "logs": ("gangline.cli.logs.command:logs", "Print the logs of all replicas of a job, merged by time."),
    "wait": ("gangline.cli.jobs.wait:wait", "Wait until a job ends; the exit code tells how."),
    "sweep": ("gangline.cli.sweep.command:sweep", "Try a job with many parameter values and rank the results."),
    "why": ("gangline.cli.jobs.why:why", "Explain why a job waits, fails or hangs, and what to do."),
    "stacks": ("gangline.cli.jobs.stacks:stacks", "Show where every rank of a job stands, and who holds it up."),
    "describe": ("gangline.cli.jobs.describe:describe", "Show one job in full: replicas, conditions, events."),
    "events": ("gangline.cli.jobs.events:events", "List what happened to a job and its pods, oldest first."),
    "at": ("gangline.cli.history.command:at", "Show jobs, pods, events and logs as they were at a moment."),
    "record": ("gangline.cli.history.record:record", "Record a job with its faults in one file, to play it here."),
    "top": ("gangline.cli.jobs.top:top", "Show the CPU and memory that jobs, or this machine, use."),
    "doctor": ("gangline.cli.services.doctor:doctor", "Check this machine and the cluster for what jobs need."),
    "check": ("gangline.cli.authoring.check:check", "Find mistakes in job files; needs no cluster."),
    "plan": ("gangline.cli.plan.command:plan", "Preview what a job file would create, and whether it fits."),
    "drill": ("gangline.cli.drill.command:drill", "Break a running job on purpose and see whether it recovers."),
    "simulate": ("gangline.cli.simulate.command:simulate", "Simulate a cluster's queue: how long jobs would wait."),
    "apply": ("gangline.cli.jobs.apply:apply", "Create or update the jobs and objects in files."),
    "create": ("gangline.cli.jobs.apply:create", "Create the objects in files; fail if one exists."),
    "delete": ("gangline.cli.jobs.delete:delete", "Delete jobs or other objects."),
    "suspend": ("gangline.cli.jobs.suspend:suspend", "Stop a job's replicas but keep the job."),
    "resume": ("gangline.cli.jobs.suspend:resume", "Start the replicas of a suspended job again."),
    "restart": ("gangline.cli.jobs.restart:restart", "Restart one replica, all of a type, or a whole job."),
    "scale": ("gangline.cli.jobs.scale:scale", "Change the number of replicas of a job."),
    "exec": ("gangline.cli.jobs.exec:exec_", "Run a command inside a replica of a job."),
    "up": ("gangline.cli.services.up:up", "Start a local control plane that keeps running."),
    "dashboard": ("gangline.cli.dashboard.command:dashboard", "Show jobs, teams, logs and curves in a browser."),
    "down": ("gangline.cli.services.up:down", "Stop the local control plane; its state is kept."),
    "backup": ("gangline.cli.services.backup:backup", "Write the objects of the local control plane to a file."),
    "restore": ("gangline.cli.services.backup:restore", "Put a backup in place of the objects of a stopped plane."),
    "install": ("gangline.cli.install.command:install", "Install the operator in a cluster."),
    "upgrade": ("gangline.cli.install.command:upgrade", "Bring an installation to this version, or change its values."),
    "uninstall": ("gangline.cli.install.command:uninstall", "Remove an installation; jobs and CRDs stay."),
    "handover": ("gangline.cli.handover.command:handover", "Move jobs from the Kubeflow operator, and back."),
    "operator": ("gangline.operator.main:operator", "Run the training operator for a cluster."),
    "scheduler": ("gangline.cli.services.scheduler:scheduler", "Run the gang scheduler for a cluster."),
    "node": ("gangline.cli.services.node:node", "Offer this machine to a server as a node."),
    "crds": ("gangline.cli.authoring.crds:crds", "Print the CRDs to install in a cluster."),
    "new": ("gangline.cli.authoring.new:new", "Create an operator project for a job kind of your own."),
    "crd": ("gangline.cli.authoring.crds:crd", "Print the CRDs of the job kinds in your Python file."),
    "convert": ("gangline.cli.authoring.convert:convert", "Convert jobs to TrainJobs of Kubeflow Trainer v2."),
    "completion": ("gangline.cli.completion.command:completion", "Print a shell script that enables tab completion."),
    "version": ("gangline.cli.version:version", "Print the versions of gangline and of the server."),
}
COMMAND_SECTIONS = {
    "Run and look": ("run", "demo", "get", "list", "ps", "logs", "wait", "sweep", "dashboard"),
    "Understand": ("why", "stacks", "describe", "events", "at", "record", "top", "doctor"),
    "Try before it runs": ("check", "plan", "simulate", "drill"),
    "Change jobs": ("apply", "create", "delete", "suspend", "resume", "restart", "scale", "exec"),
    "Into a cluster": ("install", "upgrade", "uninstall", "handover", "crds"),
    "Services": ("up", "down", "backup", "restore", "operator", "scheduler", "node"),
    "Build your own": ("new", "crd", "convert"),
    "This tool": ("completion", "version"),
}
COMMAND_ALIASES = {"status": "describe", "cancel": "delete", "submit": "apply", "log": "logs"}

FOREIGN_COMMANDS = {
    **dict.fromkeys(("stop", "kill", "rm", "remove", "terminate"), "delete JOB"),
    **dict.fromkeys(("start", "launch", "train", "torchrun"), "run --nproc 4 -- python train.py"),
    **dict.fromkeys(("attach", "tail", "follow"), "logs -f JOB"),
    **dict.fromkeys(("ls", "jobs", "queue", "show"), "get jobs"),
    "help": "--help",
    "init": "new --help",
}
"""Words of torchrun, Ray, SkyPilot and docker, and what is typed here."""


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    aliases=COMMAND_ALIASES,
    foreign=FOREIGN_COMMANDS,
    sections=COMMAND_SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gangline", message="%(prog)s %(version)s")
def cli() -> None:
    r"""Run distributed training jobs (PyTorch, TensorFlow, JAX, MPI, XGBoost, Paddle) on this machine or a cluster.

    \b
      gangline demo                               watch a job lose a worker and recover
      gangline run --nproc 4 -- python train.py   your script as 4 processes
      gangline run job.yaml                       a Kubeflow job file, on this machine
      gangline get jobs                           the state of your jobs
      gangline why linear                         why the job "linear" waits or failed

    Every command has examples: gangline COMMAND --help.

    Exit codes: 0 success; 1 an error of input or use; 100 the job failed; 101 not finished in time; 102 no such job;
    103 the job was deleted; 130 interrupted. The help of each command lists its own.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. An error is printed in one line."""
    if os.environ.get("_GANGLINE_COMPLETE", "").startswith("powershell"):
        # PowerShell asks for candidates; the import registers it with click.
        import gangline.cli.completion.powershell  # noqa: F401
    try:
        code = cli.main(list(arguments), prog_name="gangline", standalone_mode=False, obj=tuple(arguments))
    except click.ClickException as error:
        print_usage_error(error, arguments[0] if arguments and arguments[0] in COMMANDS else "")
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except GanglineError as error:
        from gangline.base.invocation import with_own_command

        print(with_own_command(f"error: {error}"), file=sys.stderr)
        return ERROR
    except OSError as error:
        from gangline.cli.errors import print_os_error

        return print_os_error(error)
    return code if isinstance(code, int) else 0

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
    "apply": ("gangline.cli.jobs.apply:apply", "Create or update the objects in files."),
    "check": ("gangline.cli.authoring.check:check", "Find mistakes in files, without a server."),
    "completion": ("gangline.cli.completion.command:completion", "Print the completion script of a shell."),
    "convert": ("gangline.cli.authoring.convert:convert", "Print jobs as TrainJobs of Kubeflow Trainer v2."),
    "crd": ("gangline.cli.authoring.crds:crd", "Print the CRDs of the kinds in a custom operator's file."),
    "crds": ("gangline.cli.authoring.crds:crds", "Print the CRDs of the job kinds."),
    "create": ("gangline.cli.jobs.apply:create", "Create the objects in files."),
    "delete": ("gangline.cli.jobs.delete:delete", "Delete jobs or other objects."),
    "demo": ("gangline.cli.run.demo:demo", "Watch a job train, lose a worker and recover, on this machine."),
    "describe": (
        "gangline.cli.jobs.describe:describe",
        "Print all about a job: replicas, conditions, failure, events.",
    ),
    "doctor": ("gangline.cli.services.doctor:doctor", "Check whether everything is in place for jobs to run."),
    "down": ("gangline.cli.services.up:down", "Stop the control plane of this machine and keep its state."),
    "drill": ("gangline.cli.drill.command:drill", "Inject a fault, and see whether the training survives it."),
    "events": ("gangline.cli.jobs.events:events", "Print the events of a job and its replicas, oldest first."),
    "exec": ("gangline.cli.jobs.exec:exec_", "Run a command in a replica."),
    "get": ("gangline.cli.get.command:get", "Print jobs, or objects of any kind."),
    "list": ("gangline.cli.get.command:list_", "The same as get jobs."),
    "logs": ("gangline.cli.logs.command:logs", "Print the logs of all replicas of a job, in order of time."),
    "new": ("gangline.cli.authoring.new:new", "Write an operator for a job kind of your own, to start from."),
    "node": ("gangline.cli.services.node:node", "Run the pods that a server binds to this machine, as processes."),
    "operator": ("gangline.operator.main:operator", "Run the training jobs of a cluster."),
    "plan": ("gangline.cli.plan.command:plan", "Show what a job in a file would create."),
    "ps": ("gangline.cli.get.command:ps", "Print the replicas (pods) of jobs."),
    "restart": ("gangline.cli.jobs.restart:restart", "Restart replicas: one, all of a type, or all of a job."),
    "resume": ("gangline.cli.jobs.suspend:resume", "Resume a suspended job."),
    "run": ("gangline.cli.run.command:run", "Run jobs here or in a cluster; the exit code is their verdict."),
    "scale": ("gangline.cli.jobs.scale:scale", "Change how many replicas of a type a job has."),
    "scheduler": ("gangline.cli.services.scheduler:scheduler", "Schedule the gangs of a cluster, all or nothing."),
    "simulate": ("gangline.cli.simulate.command:simulate", "Simulate how gangs wait and fill nodes, in virtual time."),
    "suspend": ("gangline.cli.jobs.suspend:suspend", "Stop a job's replicas and keep the job."),
    "sweep": ("gangline.cli.sweep.command:sweep", "Try a job with many values on this machine and rank the results."),
    "top": ("gangline.cli.jobs.top:top", "Print the CPU and memory that replicas use."),
    "up": ("gangline.cli.services.up:up", "Start a control plane on this machine that keeps running."),
    "version": ("gangline.cli.version:version", "Print the versions of gangline and of the server."),
    "wait": ("gangline.cli.jobs.wait:wait", "Wait for a job, and exit with its verdict."),
    "why": ("gangline.cli.jobs.why:why", "Why a job waits or failed: the cause, the evidence, the next step."),
}
COMMAND_ALIASES = {"status": "describe", "cancel": "delete", "submit": "apply", "log": "logs"}


@click.group(
    cls=LazyGroup, lazy=COMMANDS, aliases=COMMAND_ALIASES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="gangline", message="%(prog)s %(version)s")
def cli() -> None:
    r"""Distributed training jobs from one YAML, on any Kubernetes and on this machine.

    \b
      gangline demo                                watch a job train, lose a worker and recover
      gangline run job.yaml                        a job on this machine; the exit code is its verdict
      gangline run --nproc 4 -- python train.py    a script, without any YAML
      gangline get jobs                            the state of jobs, here or in a cluster
      gangline why linear                          why a job waits or failed

    Exit codes: 0 succeeded, 100 the job failed, 101 not finished in time, 102 no such job, 103 deleted, 130
    interrupted; 1 is an error of input or use. The help of each command lists its own.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. An error is printed in one line."""
    if os.environ.get("_GANGLINE_COMPLETE", "").startswith("powershell"):
        # PowerShell asks for candidates; the import registers it with click.
        import gangline.cli.completion.powershell  # noqa: F401
    try:
        code = cli.main(list(arguments), prog_name="gangline", standalone_mode=False, obj=tuple(arguments))
    except click.ClickException as error:
        print_usage_error(error)
        return ERROR
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except GanglineError as error:
        print(f"error: {error}", file=sys.stderr)
        return ERROR
    except OSError as error:
        from gangline.cli.errors import print_os_error

        return print_os_error(error)
    return code if isinstance(code, int) else 0

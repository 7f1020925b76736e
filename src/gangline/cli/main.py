"""The command tree, and the one place where errors become a line and an exit code."""

import os
import sys
from collections.abc import Sequence

import click

from gangline import __version__
from gangline.base.errors import GanglineError
from gangline.cli.flags.commands import LazyGroup, print_usage_error

COMMANDS = {
    "apply": ("gangline.cli.jobs.apply:apply", "Make objects as files say, or change them to that."),
    "check": ("gangline.cli.authoring.check:check", "Find mistakes in files, without a server."),
    "completion": ("gangline.cli.completion.command:completion", "Print what makes a shell complete our words."),
    "convert": ("gangline.cli.authoring.convert:convert", "Print jobs as TrainJobs of Kubeflow Trainer v2."),
    "crd": ("gangline.cli.authoring.crds:crd", "Print the definitions of the kinds in a custom operator's file."),
    "crds": ("gangline.cli.authoring.crds:crds", "Print the definitions of the job kinds."),
    "create": ("gangline.cli.jobs.apply:create", "Create what files hold."),
    "delete": ("gangline.cli.jobs.delete:delete", "Delete jobs or other objects."),
    "demo": ("gangline.cli.run.demo:demo", "See a team train, lose a worker and heal, on this machine."),
    "describe": ("gangline.cli.jobs.describe:describe", "All about one job: replicas, conditions, failure, events."),
    "doctor": ("gangline.cli.services.doctor:doctor", "Look whether everything is in place for jobs to run."),
    "down": ("gangline.cli.services.up:down", "Stop the control plane of this machine. What it stored stays."),
    "drill": ("gangline.cli.drill.command:drill", "Provoke a fault, and see whether the training survives it."),
    "events": ("gangline.cli.jobs.events:events", "What happened to a job and its replicas, oldest first."),
    "exec": ("gangline.cli.jobs.exec:exec_", "Run a command in a replica."),
    "get": ("gangline.cli.get.command:get", "Print jobs, or objects of any kind."),
    "list": ("gangline.cli.get.command:list_", "The same as get jobs."),
    "logs": ("gangline.cli.logs.command:logs", "What all replicas of a job say, in order of time."),
    "new": ("gangline.cli.authoring.new:new", "Begin an operator for a kind of job of your own."),
    "node": ("gangline.cli.services.node:node", "Run the pods that a server binds to this machine, as processes."),
    "operator": ("gangline.operator.main:operator", "Run the training jobs of a cluster."),
    "plan": ("gangline.cli.plan.command:plan", "Show what a job in a file would create."),
    "ps": ("gangline.cli.get.command:ps", "The replicas of jobs: their pods."),
    "restart": ("gangline.cli.jobs.restart:restart", "Start replicas anew: one, a type, or the whole team."),
    "resume": ("gangline.cli.jobs.suspend:resume", "Let a suspended job go on."),
    "run": ("gangline.cli.run.command:run", "Run jobs here or in a cluster; their verdict is the exit code."),
    "scale": ("gangline.cli.jobs.scale:scale", "Change how many replicas of a type a job has."),
    "scheduler": ("gangline.cli.services.scheduler:scheduler", "Place the gangs of a cluster, whole or not at all."),
    "simulate": (
        "gangline.cli.simulate.command:simulate",
        "See how long gangs wait and how full nodes are, on virtual time.",
    ),
    "suspend": ("gangline.cli.jobs.suspend:suspend", "Stop a job's replicas and keep the job."),
    "sweep": ("gangline.cli.sweep.command:sweep", "Try a job with many values on this machine; the best come first."),
    "top": ("gangline.cli.jobs.top:top", "CPU and memory of replicas."),
    "up": ("gangline.cli.services.up:up", "Start a control plane on this machine that stays."),
    "version": ("gangline.cli.version:version", "The versions of gangline and of a server."),
    "wait": ("gangline.cli.jobs.wait:wait", "Wait for a job, and exit with its verdict."),
    "why": ("gangline.cli.jobs.why:why", "Why a job waits or failed: the cause, the evidence, the next step."),
}
COMMAND_ALIASES = {"status": "describe", "cancel": "delete", "submit": "apply", "log": "logs"}

EXIT_INTERRUPTED = 130


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    aliases=COMMAND_ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gangline", message="%(prog)s %(version)s")
def cli() -> None:
    r"""Distributed training jobs from one YAML, on any Kubernetes and on this machine.

    \b
      gangline demo                                see a team train, lose a worker and heal
      gangline run job.yaml                        a job on this machine; the exit code is its verdict
      gangline run --nproc 4 -- python train.py    a script, without any YAML
      gangline get jobs                            how jobs stand, here or in a cluster
      gangline why linear                          why one waits or failed

    Exit codes: 0 succeeded, 100 the job failed, 101 not finished in time, 102 no such job, 103 deleted, 130
    interrupted; 1 is an error of input or use. The help of each command tells its own.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code. Bad input is one line on stderr and 1."""
    if os.environ.get("_GANGLINE_COMPLETE", "").startswith("powershell"):
        # A shell asks, of which click has to be told.
        import gangline.cli.completion.powershell  # noqa: F401
    try:
        code = cli.main(list(arguments), prog_name="gangline", standalone_mode=False)
    except click.ClickException as error:
        print_usage_error(error)
        return 1
    except click.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except GanglineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        from gangline.cli.errors import print_os_error

        return print_os_error(error)
    return code if isinstance(code, int) else 0

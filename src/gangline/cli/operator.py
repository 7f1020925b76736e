"""`gangline operator`: the training jobs of a cluster, run by this process."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from gangline.base.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR", "panic": "CRITICAL"}
IGNORED = (
    "--webhook-server-port",
    "--webhook-service-name",
    "--webhook-secret-name",
    "--zap-devel",
    "--zap-stacktrace-level",
    "--zap-time-encoding",
)
"""Flags of the Kubeflow operator that mean nothing here: no webhook is needed, and logging is another."""


class GoCommand(click.Command):
    """Takes flags as Go programs do, so that the arguments of an existing Deployment fit; complains in one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, [_two_dashes(argument) for argument in args])
        except click.UsageError as error:
            raise InputError(f"{error.format_message()} See gangline operator --help.") from None


def _two_dashes(argument: str) -> str:
    """Go does not tell `-flag` from `--flag`."""
    long = argument[:1] == "-" and argument[1:2].isalpha() and argument != "-h"
    return f"-{argument}" if long else argument


def switch(name: str, text: str) -> Callable[[F], F]:
    """A boolean as Go has it: `--x`, `--x=true`, `--x=false`."""
    return click.option(
        name, type=bool, is_flag=False, flag_value=True, default=False, metavar="[true|false]", help=text
    )


def ignored(command: F) -> F:
    """Options that are taken and do nothing."""
    for name in IGNORED:
        command = click.option(name, is_flag=False, flag_value="true", hidden=True)(command)
    return command


@click.command(cls=GoCommand)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig to use instead of KUBECONFIG and ~/.kube/config; without any, the pod's service account.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
@click.option(
    "--namespace",
    envvar="KUBEFLOW_NAMESPACE",
    default="",
    metavar="NAME",
    help="Serve the jobs of this namespace alone, with rights in it alone; by default all. Also as variable "
    "KUBEFLOW_NAMESPACE.",
)
@click.option(
    "--enable-scheme",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Serve this kind; may be given several times; by default all six.",
)
@click.option(
    "--workers",
    "--controller-threads",
    "workers",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Jobs of each kind that are worked on at the same time.",
)
@click.option(
    "--services",
    type=click.Choice(["per-replica", "per-job"]),
    default="per-replica",
    show_default=True,
    help="Headless services: one for each replica, or one for each job, which needs far fewer objects.",
)
@click.option(
    "--qps",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Most requests per second to the API server; 0 leaves it to the server to slow us down.",
)
@click.option(
    "--burst",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --qps: most requests at once; 0 is as many as in a second.",
)
@switch("--leader-elect", "Act only while holding a Lease, so that of several operators one acts.")
@click.option(
    "--leader-election-id",
    default="1ca428e5.training-operator.kubeflow.org",
    show_default=True,
    metavar="NAME",
    help="Name of that Lease.",
)
@click.option(
    "--leader-election-namespace",
    default="",
    metavar="NAME",
    help="Namespace of that Lease; by default the one served, or the operator's own.",
)
@switch("--take-over", "Act even if another operator for these jobs was found.")
@switch("--install-crds", "Bring the definitions of the kinds on the server to this version first.")
@click.option(
    "--metrics-bind-address",
    default=":8080",
    show_default=True,
    metavar="ADDRESS",
    help="Where /metrics is; 0 is nowhere.",
)
@click.option(
    "--health-probe-bind-address",
    default=":8081",
    show_default=True,
    metavar="ADDRESS",
    help="Where /healthz and /readyz are; 0 is nowhere.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long passes under way may take to finish when the operator is asked to end.",
)
@click.option(
    "--gang-scheduler-name",
    default="",
    metavar="NAME",
    help="Gang scheduling: volcano, or the name under which scheduler-plugins run; off when empty.",
)
@click.option(
    "--pytorch-init-container-image",
    default="alpine:3.10",
    show_default=True,
    metavar="IMAGE",
    help="Image with which PyTorch workers wait for their master; empty: they do not.",
)
@click.option(
    "--pytorch-init-container-template-file",
    default="/etc/config/initContainer.yaml",
    show_default=True,
    metavar="FILE",
    help="Template of that container; the default file need not exist.",
)
@click.option(
    "--pytorch-init-container-max-tries",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How often that container looks for the master.",
)
@click.option(
    "--mpi-kubectl-delivery-image",
    default="kubeflow/kubectl-delivery:latest",
    show_default=True,
    metavar="IMAGE",
    help="Image that brings kubectl to MPI launchers; empty: no such container.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="How log lines look; auto is text on a terminal, else JSON.",
)
@click.option(
    "--log-level",
    "--zap-log-level",
    "level",
    default="info",
    show_default=True,
    metavar="LEVEL",
    help="Least level to log: debug, info, warn, error, or a number, of which every one above 0 is debug.",
)
@click.option(
    "--zap-encoder",
    "encoder",
    type=click.Choice(["console", "json"]),
    help="The same as --log-format text or json.",
)
@ignored
@click.pass_context
def operator(context: click.Context, /, **flags: Any) -> int:
    """Run the training jobs of a cluster, until interrupted.

    The flags of the Kubeflow training operator are taken as they are. Those of its webhooks, and of its logging
    beyond level and format, do nothing.

    Environment: KUBECONFIG, KUBEFLOW_NAMESPACE; CUSTOM_CLUSTER_DOMAIN, the cluster's domain in TF_CONFIG; POD_NAME,
    by which an operator whose pod has another host name knows itself.
    """
    given = [name for name in IGNORED if flags[name.removeprefix("--").replace("-", "_")] is not None]
    return asyncio.run(_run(flags, given))


async def _run(flags: Mapping[str, Any], without_effect: list[str]) -> int:
    import logging

    from gangline.base.clock import SystemClock
    from gangline.base.log import LogFormat, configure
    from gangline.kube.config import load
    from gangline.operator.flags import settings_of
    from gangline.operator.process import run_operator

    configure(log_level(flags["level"]), LogFormat(_log_format(flags)))
    if without_effect:
        told = {"flags": " ".join(without_effect)}
        logging.getLogger(__name__).warning("flags without effect here", extra=told)
    settings = settings_of(flags, os.environ)
    connection = load(
        kubeconfig=flags["kubeconfig"], context=flags["context"], environ=os.environ, home=Path.home()
    )
    await run_operator(connection, settings, SystemClock())
    return 0


def log_level(text: str) -> str:
    """The standard library's word for one of zap's. Raises `InputError`."""
    if text.isdecimal():
        return "DEBUG" if int(text) else "INFO"
    if text.lower() not in LEVELS:
        raise InputError(f'--log-level: is "{text}"; write one of {", ".join(LEVELS)}, or a number')
    return LEVELS[text.lower()]


def _log_format(flags: Mapping[str, Any]) -> str:
    asked: str = flags["log_format"]
    if asked == "auto" and flags["encoder"]:
        return "json" if flags["encoder"] == "json" else "text"
    return asked

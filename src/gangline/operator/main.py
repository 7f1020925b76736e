"""The command `gangline operator`, and `run` for custom operators, which take the same flags."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gangline.base.errors import GanglineError
from gangline.base.options import F, choice_option, option_group, seconds_option, value_option
from gangline.jobs.framework import Framework
from gangline.operator.go_flags import CONNECTION_OPTIONS, GoCommand, go_flag, log_level

IGNORED_FLAGS = (
    "--webhook-server-port",
    "--webhook-service-name",
    "--webhook-secret-name",
    "--zap-devel",
    "--zap-stacktrace-level",
    "--zap-time-encoding",
)
"""Flags of the Kubeflow operator without effect here: there is no webhook, and logging is another one."""


def accept_ignored_flags(command: F) -> F:
    """Add the options of the Kubeflow operator that have no effect here."""
    for name in IGNORED_FLAGS:
        command = click.option(name, is_flag=False, flag_value="true", hidden=True)(command)
    return command


GENERAL_OPTIONS = (
    *CONNECTION_OPTIONS,
    value_option(
        "--namespace",
        "",
        "Serve the jobs of this namespace alone, with rights in it alone; by default all. Also as variable "
        "KUBEFLOW_NAMESPACE.",
        envvar="KUBEFLOW_NAMESPACE",
        metavar="NAME",
    ),
    click.option(
        "--workers",
        "--controller-threads",
        "workers",
        type=click.IntRange(min=1),
        default=16,
        show_default=True,
        help="Jobs of each kind that are reconciled at the same time.",
    ),
    choice_option(
        "--services",
        ["per-replica", "per-job"],
        "Headless services: one for each replica, or one for each job, which needs far fewer objects.",
    ),
    go_flag(
        "--legacy-labels", "Label pods also as the operators before 1.4 did: the SDKs of their time find pods by that."
    ),
    value_option(
        "--qps",
        0.0,
        "Most requests per second to the API server; 0 leaves it to the server to slow us down.",
        type=click.FloatRange(min=0),
    ),
    value_option(
        "--burst", 0, "With --qps: most requests at once; 0 is as many as in a second.", type=click.IntRange(min=0)
    ),
    go_flag("--leader-elect", "Act only while holding a Lease, so that of several operators one acts."),
    value_option(
        "--leader-election-id", "1ca428e5.training-operator.kubeflow.org", "Name of that Lease.", metavar="NAME"
    ),
    value_option(
        "--leader-election-namespace",
        "",
        "Namespace of that Lease; by default the one served, or the operator's own.",
        metavar="NAME",
    ),
    go_flag("--take-over", "Act even if another operator for these jobs is detected."),
    go_flag("--install-crds", "Bring the definitions of the kinds on the server to this version first."),
    value_option("--metrics-bind-address", ":8080", "Where /metrics is; 0 is nowhere.", metavar="ADDRESS"),
    value_option(
        "--health-probe-bind-address", ":8081", "Where /healthz and /readyz are; 0 is nowhere.", metavar="ADDRESS"
    ),
    seconds_option("--grace", 10.0, "How long running reconciles may take to finish when the operator stops."),
    value_option(
        "--gang-scheduler-name",
        "",
        "Gang scheduling: gangline, volcano, kubernetes, or the name under which scheduler-plugins run; off when "
        "empty or none. Several by commas: the first for all jobs, the others for jobs that ask for them.",
        metavar="NAME",
    ),
    go_flag(
        "--protect-gangs",
        "Ask autoscalers to leave the nodes of gangs alone (with gangline and kubernetes).",
        default=True,
    ),
    choice_option(
        "--log-format", ["auto", "text", "json"], "How log lines look; auto is text on a terminal, else JSON."
    ),
    click.option(
        "--log-level",
        "--zap-log-level",
        "level",
        default="info",
        show_default=True,
        metavar="LEVEL",
        help="Least level to log: debug, info, warn, error, or a number, of which every one above 0 is debug.",
    ),
    click.option(
        "--zap-encoder",
        "encoder",
        type=click.Choice(["console", "json"]),
        help="The same as --log-format text or json.",
    ),
)
BUILTIN_KIND_OPTIONS = (
    click.option(
        "--enable-scheme",
        "kinds",
        multiple=True,
        metavar="KIND",
        help="Serve this kind; may be given several times; by default all six.",
    ),
    value_option(
        "--pytorch-init-container-image",
        "alpine:3.10",
        "Image with which PyTorch workers wait for their master; empty: they do not.",
        metavar="IMAGE",
    ),
    value_option(
        "--pytorch-init-container-template-file",
        "/etc/config/initContainer.yaml",
        "Template of that container; the default file need not exist.",
        metavar="FILE",
    ),
    value_option(
        "--pytorch-init-container-max-tries",
        100,
        "How often that container looks for the master.",
        type=click.IntRange(min=1),
    ),
    value_option(
        "--mpi-kubectl-delivery-image",
        "kubeflow/kubectl-delivery:latest",
        "Image that brings kubectl to MPI launchers; empty: no such container.",
        metavar="IMAGE",
    ),
)

# The flags of the built-in kinds, for an operator that serves other kinds.
_CUSTOM_OPERATOR_FLAGS: Mapping[str, Any] = {
    "kinds": (),
    "pytorch_init_container_image": "",
    "pytorch_init_container_template_file": "/etc/config/initContainer.yaml",
    "pytorch_init_container_max_tries": 1,
    "mpi_kubectl_delivery_image": "",
}


@click.command(cls=GoCommand)
@option_group(*GENERAL_OPTIONS, *BUILTIN_KIND_OPTIONS)
@accept_ignored_flags
@click.pass_context
def operator(context: click.Context, /, **flags: Any) -> int:
    r"""Run the training jobs of a cluster, until interrupted.

    \b
      gangline crds | kubectl apply -f - && gangline operator
      gangline operator --context prod --namespace team-a
      gangline operator --leader-elect --gang-scheduler-name gangline

    The flags of the Kubeflow training operator are taken as they are. Those of its webhooks, and of its logging
    beyond level and format, do nothing.

    Environment: KUBECONFIG, KUBEFLOW_NAMESPACE; CUSTOM_CLUSTER_DOMAIN, the cluster's domain in TF_CONFIG; POD_NAME,
    by which an operator whose pod has another host name knows itself.

    Exit codes: 0 interrupted; 1 an error.
    """
    ignored = [name for name in IGNORED_FLAGS if flags[name.removeprefix("--").replace("-", "_")] is not None]
    return asyncio.run(_run_operator(flags, ignored))


def run(*frameworks: Framework[Any], arguments: Sequence[str] | None = None) -> None:
    """Run the jobs of these frameworks in a cluster until interrupted: the whole program of a custom operator.

    `arguments` are the flags of `gangline operator` without those of the built-in kinds (`--help` lists them); by
    default those of the command line. An error is printed in one line, and the exit code is 1.
    """

    @click.command(cls=GoCommand, help=f"Run {_kind_names(frameworks)} of a cluster, until interrupted.")
    @option_group(*GENERAL_OPTIONS)
    def command(**flags: Any) -> int:
        if not is_option_given("leader_election_id"):
            flags["leader_election_id"] = f"{frameworks[0].facts.resource.name}-operator".replace("/", "-")
        return asyncio.run(_run_operator({**_CUSTOM_OPERATOR_FLAGS, **flags}, [], frameworks))

    try:
        command.main(None if arguments is None else list(arguments), standalone_mode=False)
    except (click.ClickException, GanglineError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"error: {message}", err=True)
        sys.exit(1)


def is_option_given(name: str) -> bool:
    """Whether an option was given, on the command line or by a variable, and not left at its default."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def _kind_names(frameworks: Sequence[Framework[Any]]) -> str:
    return ", ".join(framework.facts.kind for framework in frameworks)


async def _run_operator(
    flags: Mapping[str, Any], ignored_flags: list[str], frameworks: Sequence[Framework[Any]] | None = None
) -> int:
    import logging

    from gangline.base.clock import SystemClock
    from gangline.base.log import LogFormat, configure_logging
    from gangline.kube.config.connection import load_connection
    from gangline.operator.flags import settings_from_flags
    from gangline.operator.operator_process import run_operator

    configure_logging(log_level(flags["level"]), LogFormat(_log_format(flags)))
    if ignored_flags:
        fields = {"flags": " ".join(ignored_flags)}
        logging.getLogger(__name__).warning("flags without effect here", extra=fields)
    settings = settings_from_flags(flags, os.environ)
    connection = load_connection(
        kubeconfig=flags["kubeconfig"], context=flags["context"], environ=os.environ, home=Path.home()
    )
    await run_operator(connection, settings, SystemClock(), frameworks)
    return 0


def _log_format(flags: Mapping[str, Any]) -> str:
    log_format: str = flags["log_format"]
    if log_format == "auto" and flags["encoder"]:
        return "json" if flags["encoder"] == "json" else "text"
    return log_format

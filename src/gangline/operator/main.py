"""The command `gangline operator`, and `run` for custom operators, which take the same flags."""

import asyncio
import gc
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
from gangline.operator.go_flags import CONNECTION_OPTIONS, METRICS_OPTIONS, GoCommand, go_flag, log_level

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
    click.option(
        "--namespace",
        "namespaces",
        multiple=True,
        envvar="KUBEFLOW_NAMESPACE",
        metavar="NAME",
        help="Serve only the jobs of this namespace, with permissions in it only; several with commas, or by repeating "
        "it; also by the variable KUBEFLOW_NAMESPACE.  [default: all]",
    ),
    click.option(
        "--workers",
        "--controller-threads",
        "workers",
        type=click.IntRange(min=1),
        default=16,
        show_default=True,
        help="How many jobs of each kind are reconciled at the same time.",
    ),
    choice_option(
        "--services",
        ["per-replica", "per-job"],
        "Create a headless service for each replica, or one for each job, which needs far fewer objects.",
    ),
    go_flag("--legacy-labels", "Add the labels of training operators before 1.4, by which old SDKs find pods."),
    value_option(
        "--qps",
        0.0,
        "Most requests per second to the API server; 0: no limit but the server's own.",
        type=click.FloatRange(min=0),
    ),
    value_option(
        "--burst", 0, "Most requests at once, with --qps; 0: as many as in a second.", type=click.IntRange(min=0)
    ),
    go_flag("--leader-elect", "Run as one of several replicas, of which only the one that holds a Lease acts."),
    value_option(
        "--leader-election-id", "1ca428e5.training-operator.kubeflow.org", "Name of that Lease.", metavar="NAME"
    ),
    value_option(
        "--leader-election-namespace",
        "",
        "Namespace of that Lease.  [default: the one served if it is one, else the operator's own]",
        metavar="NAME",
    ),
    go_flag("--take-over", "Start although another operator for these jobs is running."),
    go_flag("--install-crds", "Install or update the CRDs of the job kinds first."),
    *METRICS_OPTIONS,
    value_option(
        "--health-probe-bind-address",
        ":8081",
        "Address on which /healthz and /readyz are served; 0: none.",
        metavar="ADDRESS",
    ),
    value_option(
        "--progress-bind-address",
        "0",
        "Address on which pods report the progress of their training; 0: none.",
        metavar="ADDRESS",
    ),
    value_option(
        "--progress-url",
        "",
        "URL of that address as pods reach it, http://SERVICE.NAMESPACE.svc:8082. Pods of jobs with the annotation "
        "training.gangline.dev/report-progress=true are told.  [default: none]",
        metavar="URL",
    ),
    go_flag("--inject-progress", "Tell the pods of all jobs, except where that annotation is false."),
    value_option(
        "--progress-cert-path",
        "",
        "Folder with tls.crt, tls.key and ca.crt, to receive progress by TLS.  [default: plain HTTP]",
        metavar="FOLDER",
    ),
    value_option(
        "--progress-log-streams",
        0,
        "Read the progress lines in the logs of running jobs, of so many at most; 0: read no logs for it.",
        type=click.IntRange(min=0),
    ),
    go_flag("--hang-watch", "Look for running jobs that make no progress: they get condition Stalled.", default=True),
    seconds_option("--hung-after", 60.0, "Look into a job that has given no sign of life for so long, at least."),
    go_flag(
        "--hang-stacks",
        "Read the stacks of such a job by py-spy in its pods, where it is, to be sure within two minutes; needs the "
        "rights to get and create pods/exec.",
    ),
    seconds_option("--grace", 10.0, "How long work in progress may take to finish when the operator stops."),
    value_option(
        "--gang-scheduler-name",
        "",
        "Start jobs as gangs with this scheduler: gangline, volcano, kubernetes, or the name of a scheduler-plugins "
        "scheduler; several with commas: the first is for all jobs, the others for jobs that name them.  "
        "[default: none]",
        metavar="NAME",
    ),
    go_flag(
        "--protect-gangs",
        "Ask autoscalers to leave the nodes of gangs alone (with gangline and kubernetes).",
        default=True,
    ),
    value_option(
        "--bad-node-share",
        0.1,
        "Largest share of all nodes that jobs with runPolicy.recovery avoid because jobs of several owners failed there; "
        "0: none is avoided (docs/recovery.md).",
        type=click.FloatRange(min=0, max=1),
    ),
    seconds_option("--bad-node-forgive-after", 3600.0, "How long a failure of a job counts against its node."),
    click.option(
        "--notifications-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Who hears of the states of jobs, by which webhook (docs/notifications.md); also as text in the variable "
        "GANGLINE_NOTIFICATIONS.  [default: nobody]",
    ),
    choice_option(
        "--log-format", ["auto", "text", "json"], "Format of log lines; auto is text on a terminal, else JSON."
    ),
    click.option(
        "--log-level",
        "--zap-log-level",
        "level",
        default="info",
        show_default=True,
        metavar="LEVEL",
        help="Lowest level to log: debug, info, warn, error; a number above 0 is debug.",
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
        help="Serve only this kind; may be repeated.  [default: all six]",
    ),
    value_option(
        "--pytorch-init-container-image",
        None,
        "Image of an init container in which PyTorch workers wait for their master, as in v1 (alpine:3.10).  "
        "[default: none with an agent's image, torch waits; else alpine:3.10]",
        metavar="IMAGE",
    ),
    value_option(
        "--pytorch-init-container-template-file",
        "/etc/config/initContainer.yaml",
        "Template of that init container; with one, the image is alpine:3.10 by default. The default file need not exist.",
        metavar="FILE",
    ),
    value_option(
        "--pytorch-init-container-max-tries",
        100,
        "How often that init container looks for the master before it gives up.",
        type=click.IntRange(min=1),
    ),
    value_option(
        "--agent-image",
        "",
        "Image with the agent by which MPI launchers reach their workers, gangline's own; also by the variable "
        "GANGLINE_IMAGE.  [default: none; then launchers use kubectl]",
        envvar="GANGLINE_IMAGE",
        metavar="IMAGE",
    ),
    value_option(
        "--mpi-kubectl-delivery-image",
        None,
        "Image of an init container that brings kubectl to MPI launchers, as in v1, instead of the agent; empty: they "
        "have one.  [default: kubeflow/kubectl-delivery:latest without an agent's image]",
        metavar="IMAGE",
    ),
    value_option(
        "--mpi-launcher-service-account",
        "",
        "Service account of MPI launchers, which you have made in every namespace with jobs; the operator then creates "
        "no roles.  [default: one for each job, with a role for its workers]",
        metavar="NAME",
    ),
)

# The flags of the built-in kinds, for an operator that serves other kinds.
_CUSTOM_OPERATOR_FLAGS: Mapping[str, Any] = {
    "kinds": (),
    "pytorch_init_container_image": "",
    "pytorch_init_container_template_file": "/etc/config/initContainer.yaml",
    "pytorch_init_container_max_tries": 1,
    "agent_image": "",
    "mpi_kubectl_delivery_image": "",
    "mpi_launcher_service_account": "",
}


@click.command(cls=GoCommand)
@option_group(*GENERAL_OPTIONS, *BUILTIN_KIND_OPTIONS)
@accept_ignored_flags
@click.pass_context
def operator(context: click.Context, /, **flags: Any) -> int:
    r"""Run the training operator for a cluster: it creates the pods of jobs and restarts them, until interrupted.

    \b
      gangline crds | kubectl apply -f - && gangline operator           try it from your machine
      gangline operator --context prod --namespace team-a,team-b
      gangline operator --leader-elect --gang-scheduler-name gangline   as in a Deployment (docs/operator.md)

    It replaces the Kubeflow training operator v1 and accepts its flags; those of its webhooks, and of its logging
    beyond level and format, do nothing.

    Variables: KUBECONFIG; KUBEFLOW_NAMESPACE as --namespace; CUSTOM_CLUSTER_DOMAIN, the domain of the cluster in
    TF_CONFIG; POD_NAME, the name of the operator's pod if that is not its host name; GANGLINE_IMAGE as --agent-image;
    GANGLINE_NOTIFICATIONS, the text of a --notifications-file.

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
    from gangline.operator.tracing import tracing

    # Objects are either cached for long or freed at once by reference counts: frequent cycle collections find little.
    # Failed requests leave cycles, with the memory of their frames: not too many may pile up.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    configure_logging(log_level(flags["level"]), LogFormat(_log_format(flags)))
    if ignored_flags:
        fields = {"flags": " ".join(ignored_flags)}
        logging.getLogger(__name__).warning("flags without effect here", extra=fields)
    settings = settings_from_flags(flags, os.environ)
    connection = load_connection(
        kubeconfig=flags["kubeconfig"], context=flags["context"], environ=os.environ, home=Path.home()
    )
    async with tracing("gangline-operator", os.environ):
        await run_operator(connection, settings, SystemClock(), frameworks)
    return 0


def _log_format(flags: Mapping[str, Any]) -> str:
    log_format: str = flags["log_format"]
    if log_format == "auto" and flags["encoder"]:
        return "json" if flags["encoder"] == "json" else "text"
    return log_format

"""`gangline scheduler`: runs the gang scheduler for a cluster."""

import asyncio
import gc
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gangline.operator.go_flags import GoCommand, go_flag, log_level


@click.command(cls=GoCommand)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig to use instead of KUBECONFIG and ~/.kube/config; without any, the pod's service account.",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
@click.option(
    "--scheduler-name",
    default="gangline",
    show_default=True,
    metavar="NAME",
    help="Place pods with this schedulerName.",
)
@click.option(
    "--commit",
    type=click.Choice(["both", "bind", "pin"]),
    default="both",
    show_default=True,
    help="bind: bind pods with this schedulerName. pin: pin gated pods of another scheduler to a node, and remove "
    "the gate.",
)
@go_flag("--no-preemption", "Never preempt pods for gangs of higher priority, or for a queue below its share.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="After this time, freed capacity is reserved for the gang that has waited longest; 0: never.",
)
@click.option(
    "--undo-after",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Roll back a gang that stays partly bound for this time, unless its PodGroup says otherwise; 0: never.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="The maximal number of concurrent bindings.",
)
@click.option(
    "--leader-elect",
    type=bool,
    is_flag=False,
    flag_value=True,
    default=True,
    show_default=True,
    metavar="[true|false]",
    help="Act only while holding a Lease, so that only one of several schedulers acts.",
)
@click.option(
    "--leader-election-id", default="gangline-scheduler", show_default=True, metavar="NAME", help="Name of that Lease."
)
@click.option(
    "--leader-election-namespace",
    default="",
    metavar="NAME",
    help="Namespace of that Lease; by default the one of the context, or the pod's own.",
)
@go_flag("--install-crds", "First update the CRDs of PodGroup and Queue on the server to this version.")
@click.option(
    "--metrics-bind-address",
    default=":8080",
    show_default=True,
    metavar="ADDRESS",
    help="The address of /metrics; 0: none.",
)
@click.option(
    "--health-probe-bind-address",
    default=":8081",
    show_default=True,
    metavar="ADDRESS",
    help="The address of /healthz and /readyz; 0: none.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="The format of log lines; auto is text on a terminal, else JSON.",
)
@click.option(
    "--log-level",
    "level",
    default="info",
    show_default=True,
    metavar="LEVEL",
    help="The lowest level to log: debug, info, warn, error.",
)
def scheduler(**flags: Any) -> int:
    r"""Schedule the gangs of a cluster, each as a whole or not at all, until interrupted.

    \b
      gangline scheduler
      gangline scheduler --context prod --leader-elect --patience 300

    Runs beside kube-scheduler. Needs the definitions of PodGroup and Queue: gangline crds | kubectl apply -f -

    Exit codes: 0 interrupted; 1 an error.
    """
    return asyncio.run(_run_scheduler(flags))


async def _run_scheduler(flags: Mapping[str, Any]) -> int:
    from gangline.base.clock import SystemClock
    from gangline.base.log import LogFormat, configure_logging
    from gangline.kube.config.connection import load_connection
    from gangline.operator.scheduler_process import run_scheduler

    # Objects are either cached for long or freed at once by reference counts: frequent cycle collections find nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    configure_logging(log_level(flags["level"]), LogFormat(flags["log_format"]))
    connection = load_connection(
        kubeconfig=flags["kubeconfig"], context=flags["context"], environ=os.environ, home=Path.home()
    )
    await run_scheduler(connection, process_settings(flags), SystemClock())
    return 0


def process_settings(flags: Mapping[str, Any]) -> Any:
    """The `SchedulerProcessSettings` of the flags, which are keyed by click parameter name."""
    from gangline.scheduler.settings import SchedulerProcessSettings, SchedulerSettings
    from gangline.scheduler.types.cycle import SchedulerPolicy

    preemption = not flags["no_preemption"]
    patience = timedelta(seconds=flags["patience"]) if flags["patience"] else None
    rollback_after = flags["undo_after"]
    scheduler_settings = SchedulerSettings(
        name=flags["scheduler_name"],
        bind_pods=flags["commit"] in ("both", "bind"),
        pin_pods=flags["commit"] in ("both", "pin"),
        policy=SchedulerPolicy(starvation_timeout=patience, preemption=preemption, reclaim=preemption),
        start_timeout=timedelta(seconds=rollback_after) if rollback_after else SchedulerSettings().start_timeout,
        roll_back=bool(rollback_after),
        concurrency=flags["in_flight"],
    )
    return SchedulerProcessSettings(
        scheduler=scheduler_settings,
        metrics_address=flags["metrics_bind_address"],
        probe_address=flags["health_probe_bind_address"],
        leader_elect=flags["leader_elect"],
        lease=flags["leader_election_id"],
        lease_namespace=flags["leader_election_namespace"],
        install_crds=flags["install_crds"],
    )

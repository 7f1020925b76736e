"""`gangline scheduler`: runs the gang scheduler for a cluster."""

import asyncio
import gc
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gangline.base.options import choice_option, option_group, seconds_option, value_option
from gangline.operator.go_flags import CONNECTION_OPTIONS, METRICS_OPTIONS, GoCommand, go_flag, log_level, process_flags


@click.command(cls=GoCommand)
@option_group(*CONNECTION_OPTIONS)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="Place only the gangs of this namespace, with permissions to write in it only; several with commas, or by "
    "repeating it.  [default: all]",
)
@value_option("--scheduler-name", "gangline", "Place the pods that have this schedulerName.", metavar="NAME")
@choice_option(
    "--commit",
    ["both", "bind", "pin"],
    "bind: bind pods with this schedulerName. pin: pin gated pods of another scheduler to a node, and remove the gate.",
)
@go_flag("--no-preemption", "Never preempt pods for gangs of higher priority, or for a queue below its share.")
@seconds_option(
    "--patience",
    300.0,
    "After this wait, free capacity is reserved for the gang that has waited longest; 0: never.",
)
@seconds_option(
    "--undo-after",
    60.0,
    "Evict a gang that has been only partly placed for this time, unless its PodGroup says otherwise; 0: never.",
)
@value_option("--in-flight", 32, "How many pods may be bound at the same time.", type=click.IntRange(min=1))
@go_flag(
    "--leader-elect", "Run as one of several replicas, of which only the one that holds a Lease acts.", default=True
)
@value_option("--leader-election-id", "gangline-scheduler", "Name of that Lease.", metavar="NAME")
@value_option(
    "--leader-election-namespace",
    "",
    "Namespace of that Lease.  [default: that of the context, or the pod's own]",
    metavar="NAME",
)
@go_flag("--install-crds", "Install or update the CRDs of PodGroup and Queue first.")
@option_group(*METRICS_OPTIONS)
@value_option(
    "--health-probe-bind-address",
    ":8081",
    "Address on which /healthz and /readyz are served; 0: none.",
    metavar="ADDRESS",
)
@choice_option(
    "--log-format", ["auto", "text", "json"], "The format of log lines; auto is text on a terminal, else JSON."
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
    r"""Run the gang scheduler for a cluster: the pods of a gang start together or not at all. Until interrupted.

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
    from gangline.operator.tracing import tracing

    # Objects are either cached for long or freed at once by reference counts: frequent cycle collections find nothing.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    configure_logging(log_level(flags["level"]), LogFormat(flags["log_format"]))
    connection = load_connection(
        kubeconfig=flags["kubeconfig"], context=flags["context"], environ=os.environ, home=Path.home()
    )
    async with tracing("gangline-scheduler", os.environ):
        await run_scheduler(connection, process_settings(flags), SystemClock())
    return 0


def process_settings(flags: Mapping[str, Any]) -> Any:
    """The `SchedulerProcessSettings` of the flags, which are keyed by click parameter name."""
    from gangline.operator.flags import namespace_list
    from gangline.operator.scheduler_process import SchedulerProcessSettings
    from gangline.scheduler.settings import SchedulerSettings
    from gangline.scheduler.types.cycle import SchedulerPolicy

    preemption = not flags["no_preemption"]
    patience = timedelta(seconds=flags["patience"]) if flags["patience"] else None
    rollback_after = flags["undo_after"]
    scheduler_settings = SchedulerSettings(
        name=flags["scheduler_name"],
        namespaces=namespace_list(flags["namespaces"]),
        bind_pods=flags["commit"] in ("both", "bind"),
        pin_pods=flags["commit"] in ("both", "pin"),
        policy=SchedulerPolicy(starvation_timeout=patience, preemption=preemption, reclaim=preemption),
        start_timeout=timedelta(seconds=rollback_after) if rollback_after else SchedulerSettings().start_timeout,
        roll_back=bool(rollback_after),
        concurrency=flags["in_flight"],
    )
    return SchedulerProcessSettings(scheduler=scheduler_settings, **process_flags(flags))

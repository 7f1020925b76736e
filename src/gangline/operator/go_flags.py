"""Command-line flags as Go programs have them, so that the arguments of an existing Deployment fit."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from gangline.base.errors import InputError
from gangline.base.help_layout import HelpLayout
from gangline.base.options import F, value_option

LOG_LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR", "panic": "CRITICAL"}


class GoCommand(HelpLayout):
    """A command with Go's flags, so that the arguments of an existing Deployment fit. Usage errors are one line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, [_with_two_dashes(argument) for argument in args])
        except click.UsageError as error:
            raise InputError(f"{error.format_message()} See {ctx.command_path} --help.") from None


def _with_two_dashes(argument: str) -> str:
    """The argument with two dashes if it is a long flag with one: for Go both are the same."""
    is_long = argument[:1] == "-" and argument[1:2].isalpha() and argument != "-h"
    return f"-{argument}" if is_long else argument


def go_flag(name: str, text: str, *, default: bool = False) -> Callable[[F], F]:
    """An option for a boolean as in Go: `--x`, `--x=true`, `--x=false`."""
    return click.option(
        name,
        type=bool,
        is_flag=False,
        flag_value=True,
        default=default,
        show_default=default,
        metavar="[true|false]",
        help=text,
    )


CONNECTION_OPTIONS = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file that names the cluster.  [default: KUBECONFIG, ~/.kube/config, or the pod's service account]",
    ),
    click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.  [default: the current one]"),
)
"""Which server a process of its own acts on."""


METRICS_OPTIONS = (
    value_option("--metrics-bind-address", ":8080", "Address on which /metrics is served; 0: none.", metavar="ADDRESS"),
    go_flag(
        "--metrics-secure",
        "Serve /metrics by TLS, and only to users whom the API server allows to get that path.",
    ),
    value_option(
        "--metrics-cert-path",
        "",
        "Folder with tls.crt and tls.key, with --metrics-secure.  [default: a certificate of its own]",
        metavar="FOLDER",
    ),
)
"""How the metrics of a process of its own are served."""


def process_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ProcessSettings` from the flags that operator and scheduler share."""
    return {
        "metrics_address": flags["metrics_bind_address"],
        "probe_address": flags["health_probe_bind_address"],
        "metrics_secure": flags["metrics_secure"],
        "metrics_cert_path": flags["metrics_cert_path"],
        "leader_elect": flags["leader_elect"],
        "lease": flags["leader_election_id"],
        "lease_namespace": flags["leader_election_namespace"],
        "install_crds": flags["install_crds"],
    }


def log_level(text: str) -> str:
    """The level of the standard library for a level of zap. Raises `InputError`."""
    if text.isdecimal():
        return "DEBUG" if int(text) else "INFO"
    if text.lower() not in LOG_LEVELS:
        raise InputError(f'--log-level: is "{text}"; write one of {", ".join(LOG_LEVELS)}, or a number')
    return LOG_LEVELS[text.lower()]

"""The options that say which server, the same for every verb."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar

import click

from gangline.cli.connect.server import (
    FIELD_MANAGER,
    ServerOptions,
    ServerTarget,
    ServerWork,
    find_server,
    run_async,
    run_blocking,
)
from gangline.cli.errors import ERROR, NOT_FOUND, error_line, print_error
from gangline.cli.flags.commands import completed_by
from gangline.cli.flags.durations import DURATION

__all__ = [
    "ERROR",
    "FIELD_MANAGER",
    "NOT_FOUND",
    "ServerOptions",
    "ServerTarget",
    "ServerWork",
    "error_line",
    "find_server",
    "print_error",
    "run_async",
    "run_blocking",
    "server_options",
    "server_options_all",
]

F = TypeVar("F", bound=Callable[..., Any])


def server_options(command: F) -> F:
    """The options of every verb, for a command that takes them as `server`."""
    return _add_server_options(command, every=False)


def server_options_all(command: F) -> F:
    """The same, with `-A`."""
    return _add_server_options(command, every=True)


def _add_server_options(command: F, *, every: bool) -> F:
    def collected(*args: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in ServerOptions._fields if name in given}
        words = given.get("words") or ("",)
        about = str(given.get("job") or words[-1])
        return command(*args, server=ServerOptions(**own, job_hint=about), **given)

    update_wrapper(collected, command)
    namespaces = (
        click.option("-A", "--all-namespaces", "all_namespaces", is_flag=True, help="Look in all namespaces."),
    )
    for option in reversed((_NAMESPACE_OPTION, *(namespaces if every else ()), *_CONNECTION_OPTIONS)):
        option(collected)
    return collected  # type: ignore[return-value]


_NAMESPACE_OPTION = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace; by default the one of the context.",
    shell_complete=completed_by("namespaces"),
)
_CONNECTION_OPTIONS = (
    click.option("--kubeconfig", metavar="FILE", help="Kubeconfig to use instead of KUBECONFIG."),
    click.option(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig to use.",
        shell_complete=completed_by("contexts"),
    ),
    click.option("--cluster", metavar="NAME", help="Cluster of the kubeconfig to use."),
    click.option("--user", metavar="NAME", help="User of the kubeconfig to be."),
    click.option("--as", "as_user", metavar="USER", help="Act as somebody else."),
    click.option("--as-group", "as_groups", metavar="GROUP", multiple=True, help="A group of that somebody."),
    click.option("--as-uid", "as_uid", metavar="UID", help="The uid of that somebody."),
    click.option(
        "--request-timeout",
        type=DURATION,
        metavar="DURATION",
        help="How long one request may take; 0 is the default, a minute.",
    ),
    click.option("-v", "--verbose", count=True, help="Say which server; twice: log requests too."),
)

"""The options that say which server, the same for every command."""

from functools import update_wrapper
from typing import Any

import click

from gangline.base.options import F, option_group
from gangline.cli.connect.server import ServerOptions
from gangline.cli.flags.commands import completed_by
from gangline.cli.flags.durations import DURATION


def server_options(command: F) -> F:
    """Add the server options to a command, which takes them as `server: ServerOptions`."""
    return _add_server_options(command, all_namespaces=False)


def server_options_all(command: F) -> F:
    """The same, with `-A`."""
    return _add_server_options(command, all_namespaces=True)


def connection_options(command: F) -> F:
    """The same without any namespace, for a command that has options of its own for that."""
    return option_group(*_CONNECTION_OPTIONS)(_with_server(command))


def _add_server_options(command: F, *, all_namespaces: bool) -> F:
    namespaces = (_NAMESPACE_OPTION, *((_ALL_NAMESPACES_OPTION,) if all_namespaces else ()))
    return option_group(*namespaces, *_CONNECTION_OPTIONS)(_with_server(command))


def _with_server(command: F) -> F:
    """The command, called with the values of its server options as one value."""

    def with_server(*args: Any, **params: Any) -> Any:
        fields = {name: params.pop(name) for name in ServerOptions._fields if name in params}
        words = params.get("words") or ("",)
        job_hint = str(params.get("job") or words[-1])
        return command(*args, server=ServerOptions(**fields, job_hint=job_hint), **params)

    update_wrapper(with_server, command)
    return with_server  # type: ignore[return-value]


_NAMESPACE_OPTION = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of the job.  [default: that of the context]",
    shell_complete=completed_by("namespaces"),
)
_ALL_NAMESPACES_OPTION = click.option(
    "-A", "--all-namespaces", "all_namespaces", is_flag=True, help="Use all namespaces instead of one."
)
_CONNECTION_OPTIONS = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file that names the cluster.  [default: KUBECONFIG, or ~/.kube/config]",
    ),
    click.option(
        "--context",
        metavar="NAME",
        help="Context to use: a cluster of the kubeconfig, or gangline for this machine.",
        shell_complete=completed_by("contexts"),
    ),
    click.option("--cluster", metavar="NAME", help="Cluster of the kubeconfig to use instead of that of the context."),
    click.option("--user", metavar="NAME", help="User of the kubeconfig to use instead of that of the context."),
    click.option("--as", "as_user", metavar="USER", help="Act as this user (impersonation)."),
    click.option(
        "--as-group",
        "as_groups",
        metavar="GROUP",
        multiple=True,
        help="Act as a member of this group; may be repeated.",
    ),
    click.option("--as-uid", "as_uid", metavar="UID", help="Act as the user with this UID."),
    click.option(
        "--request-timeout",
        type=DURATION,
        metavar="DURATION",
        help="How long one request may take, such as 30s.  [default: 1m]",
    ),
    click.option("-v", "--verbose", count=True, help="Print which server is used; -vv also logs every request."),
)

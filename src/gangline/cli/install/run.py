"""Runs the work of these commands on a cluster, and finds the installation in it."""

from collections.abc import Awaitable, Callable

import click

from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.errors import error_line
from gangline.cli.exit_codes import ERROR, SUCCEEDED, UNFINISHED
from gangline.kube.client import Client

NOTHING_TO_INSTALL = (
    "nothing needs to be installed on this machine: its control plane has the operator built in; for a cluster, name it"
    " with --context or --kubeconfig"
)
INTERRUPTED = "interrupted; what was changed so far stays: write the same command again, and it goes on from there"


def run_on_cluster(server: ServerOptions, work: Callable[[Client, ServerTarget], Awaitable[int]]) -> int:
    """Run the work on a cluster. On a plane of this machine, say that it needs no installation."""
    from gangline.cli.install.waiting import NotReady

    async def guarded(client: Client, target: ServerTarget) -> int:
        if target.plane_folder is not None or target.run_folder is not None:
            click.echo(NOTHING_TO_INSTALL, err=True)
            return SUCCEEDED
        try:
            return await work(client, target)
        except NotReady as error:
            click.echo(error_line(error), err=True)
            return UNFINISHED if error.timed_out else ERROR
        except KeyboardInterrupt:
            click.echo(INTERRUPTED, err=True)
            raise

    return run_blocking(server, guarded, alive=True)


async def find_installation(client: Client, target: ServerTarget, namespace: str) -> str:
    """The namespace of the installation: the one that is given, else the only one that can be found."""
    from gangline.cli.install.cluster_objects import DEFAULT_NAMESPACE, ClusterObjects

    if namespace:
        return namespace
    found = await ClusterObjects(client).installed_namespaces(target.object_namespace)
    if len(found) > 1:
        raise InputError(f"gangline is installed in several namespaces; name one: --namespace {' or '.join(found)}")
    return found[0] if found else DEFAULT_NAMESPACE

"""`gangline handover`: its flags."""

from typing import Any

import click

from gangline.base.options import choice_option
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import connection_options
from gangline.cli.install.options import install_request, namespace_option, value_options, wait_options
from gangline.cli.install.run import find_installation, run_on_cluster
from gangline.kube.client import Client


@cli_command()
@choice_option("--from", ["kubeflow"], "The operator that serves the jobs now: the Kubeflow training operator.")
@click.option("--back", is_flag=True, help="Back to that operator, with everything that was taken away.")
@click.option("--rehearse", is_flag=True, help="Say what would change, and change nothing. So without --yes, too.")
@click.option("-y", "--yes", "confirmed", is_flag=True, help="Do it.")
@namespace_option
@value_options
@wait_options
@connection_options
def handover(server: ServerOptions, back: bool, rehearse: bool, confirmed: bool, **params: Any) -> int:
    r"""Move all jobs from the Kubeflow training operator to gangline while they run, or back. No pod is restarted.

    \b
      gangline handover                    a rehearsal: what would change, which jobs
      gangline handover --yes              do it
      gangline handover --back             a rehearsal of the way back
      gangline handover --back --yes

    The other operator is scaled to 0 and its webhook is removed, the definitions (CRDs) are brought to ours, and our
    operator is installed. What is removed or changed is kept in the cluster for --back. Interrupted, it can be repeated.

    Exit codes: 0 done, or rehearsed; 1 an error, or jobs cannot run; 101 not ready in time.
    """
    params |= {"dry_run": False}
    request = install_request(params)

    async def work(client: Client, target: ServerTarget) -> int:
        from gangline.cli.handover.handover import Handover
        from gangline.cli.install.request import default_namespace
        from gangline.cli.install.screen import choose_install_screen
        from gangline.kube.transport.blocking import BlockingClock

        namespace = request.namespace or (await find_installation(client, target, "") if back else "")
        placed = request._replace(namespace=namespace or default_namespace(request.values))
        task = Handover(client, placed, choose_install_screen(), BlockingClock())
        acts = confirmed and not rehearse
        return await (task.run_back(confirmed=acts) if back else task.run(target, confirmed=acts))

    return run_on_cluster(server, work)

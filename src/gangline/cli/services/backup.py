"""`gangline backup` and `gangline restore`: the objects of a plane as one file, and back."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gangline.base.errors import InputError
from gangline.base.invocation import with_own_command
from gangline.cli.flags.commands import cli_command
from gangline.cli.services.up import folder_option
from gangline.local.paths import BACKUP_PATH, home_folder

if TYPE_CHECKING:
    from gangline.apiserver.store.backup import BackupHeader
    from gangline.local.home import PlaneHome

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@cli_command()
@file_argument
@folder_option
def backup(file: Path, folder: Path | None) -> int:
    r"""Write all objects of the control plane of this machine to a file, while it runs or while it is stopped.

    \b
      gangline backup plane.backup
      gangline backup plane.backup --dir /tmp/plane    started with --dir
      gangline up --detach --backup /mnt/backups       a backup every 10 minutes

    The file has the objects at one moment, Secrets included: only you can read it. It has no certificates, tokens and
    logs, and no files of programs. It is verified before it gets its name.

    Exit codes: 0 written; 1 an error, such as a full disk.
    """
    from gangline.local.backups import back_up_stopped
    from gangline.local.home import PlaneHome

    home = PlaneHome(home_folder(folder))
    is_running = home.lock.running_pid() is not None
    header = _back_up_running(home, file) if is_running else back_up_stopped(home, file)
    click.echo(f"{file}: {header.objects} objects at revision {header.revision}", err=True)
    return 0


def _back_up_running(home: "PlaneHome", file: Path) -> "BackupHeader":
    from gangline.apiserver.store.backup import save_backup
    from gangline.kube.config.connection import load_connection
    from gangline.kube.transport.api import Request, response_error
    from gangline.kube.transport.blocking import BlockingTransport, run_without_loop

    connection = load_connection(kubeconfig=str(home.kubeconfig_file), environ={}, home=home.folder)
    with BlockingTransport(connection) as transport:
        response = run_without_loop(transport.send(Request("GET", BACKUP_PATH, accept="application/octet-stream")))
    error = response_error(response)
    if error is not None:
        raise error
    return save_backup(file, response.body)


@cli_command()
@file_argument
@folder_option
def restore(file: Path, folder: Path | None) -> int:
    r"""Replace the objects of a stopped control plane by those of a backup.

    \b
      gangline down
      gangline restore plane.backup
      gangline up --detach

    What is replaced is kept beside it, in a folder state.replaced-TIME. Certificates, token, port, logs and files of
    programs stay as they are. Clients see a new revision, and list everything again.

    Exit codes: 0 restored; 1 an error, such as a plane that runs or a damaged file; then nothing has changed.
    """
    from gangline.base.clock import SystemClock
    from gangline.local.backups import restore as restore_backup
    from gangline.local.home import PlaneHome

    home = PlaneHome(home_folder(folder))
    running = home.lock.running_pid()
    if running is not None:
        raise InputError(f"{home.folder}: a plane is running (process {running}); stop it first with gangline down")
    count, replaced = restore_backup(home, file, SystemClock().now())
    click.echo(with_own_command(f"restored {count} objects; start the plane with gangline up"), err=True)
    if replaced is not None:
        click.echo(f"what was there before: {replaced}", err=True)
    return 0

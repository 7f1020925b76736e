"""Which server a command talks to.

With `gangline at TIME` it is the history. Else, in this order: the flags, `KUBECONFIG`, a control plane that runs on this machine, `~/.kube/config`, the service account of
the pod, the plane of a `gangline run` in progress, and last the read-only archive of ended runs and stopped planes. A
run in progress comes late, because a user with a cluster does not expect commands to turn away from it while a job
trains on this machine.

Nothing here imports click, which takes as long to import as everything else together: `gangline.cli.get_fastpath` does
without it.
"""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.cli.connect.past import PastView, shown_past
from gangline.kube.config.connection import Connection, Impersonation, load_connection
from gangline.kube.errors import ConfigError

FIELD_MANAGER = "gangline-cli"
"""The owner, in managedFields, of what a command writes for a person."""
LOCAL_CONTEXT = "gangline"
"""The context of this machine, as its plane's kubeconfig calls it. It works without a kubeconfig, too; a context of the
user's kubeconfig with that name wins."""


START_SERVER_HINT = "start a server on this machine: gangline up --detach"


class ServerOptions(NamedTuple):
    """The server options, as given on the command line."""

    kubeconfig: str | None = None
    context: str | None = None
    cluster: str | None = None
    user: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()
    as_uid: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False
    request_timeout: timedelta | None = None
    verbose: int = 0
    # The job that the command is about, if any: it selects among several runs in progress.
    job_hint: str = ""

    @property
    def kubeconfig_flags(self) -> dict[str, str | None]:
        """The flags that choose an entry of a kubeconfig, by name."""
        return {name: getattr(self, name) for name in ("kubeconfig", "context", "cluster", "user")}


class ServerTarget(NamedTuple):
    """A resolved server, and the namespace to work in."""

    connection: Connection
    # Empty: all namespaces.
    namespace: str
    # The folder of the control plane, if the server is a plane of this machine.
    plane_folder: Path | None = None
    # The value of --namespace, or empty.
    flag_namespace: str = ""
    # The folder with the archive of runs and planes, if there is no server to ask.
    archive: Path | None = None
    # The folder of the `gangline run` in progress, if the server is its plane.
    run_folder: Path | None = None
    # The recorded moment that is shown; `archive` is then the state folder.
    past: PastView | None = None

    @property
    def object_namespace(self) -> str:
        """The namespace of an object that is given by name."""
        return self.namespace or self.connection.namespace


class NoServer(ConfigError):
    """No server is configured, and none runs on this machine."""


def find_server(
    options: ServerOptions, environ: Mapping[str, str] | None = None, home: Path | None = None
) -> ServerTarget:
    """The server that the options, the environment and this machine lead to. Raises `ConfigError`."""
    environ, home = os.environ if environ is None else environ, home or Path.home()
    if (past := shown_past()) is not None:
        return _local_target(options, _state_folder(environ))._replace(past=past)
    try:
        return _configured_server(options, environ, home)
    except ConfigError as error:
        return _local_fallback(options, environ, home, error)


def _configured_server(options: ServerOptions, environ: Mapping[str, str], home: Path) -> ServerTarget:
    """The server of the flags, the environment, the running plane or the kubeconfig. Raises `ConfigError` without one."""
    plane = None if _names_server(options, environ) else _running_plane(environ)
    flags: dict[str, Any] = {**options.kubeconfig_flags}
    if plane is not None:
        flags["kubeconfig"] = str(plane / "kubeconfig")
    connection = _with_impersonation(
        load_connection(**flags, namespace=options.namespace, environ=environ, home=home), options
    )
    target = ServerTarget(
        connection,
        "" if options.all_namespaces else connection.namespace,
        plane or _plane_folder(connection, home),
        options.namespace or "",
    )
    hides_kubeconfig = plane is not None and (home / ".kube" / "config").exists()
    if options.verbose or hides_kubeconfig:
        _print_server(target)
    return target


def _local_fallback(options: ServerOptions, environ: Mapping[str, str], home: Path, error: ConfigError) -> ServerTarget:
    """What this machine offers where `_configured_server` failed with `error`: a plane, a run in progress, the archive.

    Only if the user asks for this machine by its context, or nothing is configured at all. Raises `NoServer` or `error`.
    """
    asks_local = options.context == LOCAL_CONTEXT and not (options.kubeconfig or options.cluster or options.user)
    plane = _running_plane(environ) if asks_local else None
    if plane is not None:
        return _configured_server(options._replace(kubeconfig=str(plane / "kubeconfig")), environ, home)
    unconfigured = "not a pod" in str(error)
    if not asks_local and not unconfigured:
        raise error
    archive = _archive_folder(environ)
    run = _live_run(options, _state_folder(environ), must_have_job=archive is not None)
    if run is not None:
        run_options = options._replace(kubeconfig=str(run), context=None)
        return _configured_server(run_options, environ, home)._replace(run_folder=run.parent)
    if archive is not None:
        return _local_target(options, archive)
    if unconfigured:
        raise NoServer(
            "no cluster is configured, and nothing has run on this machine yet\n"
            "  run a job here:       gangline run --nproc 2 -- python train.py\n"
            "  or see one:           gangline demo\n"
            "  a server that stays:  gangline up --detach\n"
            "  a cluster:            pass --kubeconfig FILE, or set KUBECONFIG"
        ) from None
    raise error


def _local_target(options: ServerOptions, archive: Path) -> ServerTarget:
    """The archive in a state folder, instead of a server."""
    connection = Connection(server="", namespace=options.namespace or "default", context=LOCAL_CONTEXT)
    namespace = "" if options.all_namespaces else connection.namespace
    return ServerTarget(connection, namespace, flag_namespace=options.namespace or "", archive=archive)


def _names_server(options: ServerOptions, environ: Mapping[str, str]) -> bool:
    return any(options.kubeconfig_flags.values()) or bool(environ.get("KUBECONFIG"))


def _running_plane(environ: Mapping[str, str]) -> Path | None:
    """The folder of the control plane that runs on this machine, if one does."""
    folder = _state_folder(environ)
    if not (folder / "pid").exists():
        return None
    from gangline.apiserver.store.folder_lock import lock_holder

    return folder if lock_holder(folder) is not None else None


def _live_run(options: ServerOptions, folder: Path, *, must_have_job: bool) -> Path | None:
    """The kubeconfig of a run in progress: of the run with the job in question, else of the newest run.

    With `must_have_job`, a run without the job in question is not used: the archive may have the job.
    """
    from gangline.cli.connect.live_runs import find_run_kubeconfig, live_runs

    name = options.job_hint.rpartition("/")[2]
    kubeconfig = find_run_kubeconfig(options.namespace or "default", name, folder) if name else None
    if kubeconfig is None and not (name and must_have_job):
        kubeconfig = next((run.kubeconfig for run in live_runs(folder)), None)
    return kubeconfig


def _archive_folder(environ: Mapping[str, str]) -> Path | None:
    """The state folder, if a stopped plane or an ended run left anything to read in it."""
    folder = _state_folder(environ)
    has_state = (folder / "state" / "state.db").exists() or any((folder / "runs").glob("*_*_*_*"))
    return folder if has_state else None


def _state_folder(environ: Mapping[str, str]) -> Path:
    from gangline.local.paths import home_folder

    return home_folder(environ=environ)


def archive_flags(environ: Mapping[str, str] | None = None, home: Path | None = None) -> str | None:
    """The flags with which a command reads the archive of a run that ended: none if no server is configured.

    None while a plane runs on this machine: commands then talk to the plane.
    """
    environ, home = os.environ if environ is None else environ, home or Path.home()
    if _running_plane(environ) is not None:
        return None
    configured = environ.get("KUBECONFIG") or environ.get("KUBERNETES_SERVICE_HOST")
    return f" --context {LOCAL_CONTEXT}" if configured or (home / ".kube" / "config").exists() else ""


def _plane_folder(connection: Connection, home: Path) -> Path | None:
    """The folder of the running plane whose own kubeconfig the connection was read from."""
    source = connection.source
    file = Path(source.replace("~", str(home), 1) if source.startswith("~/") else source)
    return file.parent if file.name == "kubeconfig" and (file.parent / "pid").exists() else None


def _print_server(target: ServerTarget) -> None:
    connection = target.connection
    name = "the plane of this machine" if target.plane_folder is not None else f"context {connection.context}"
    print(f"server: {name} ({connection.server})", file=sys.stderr)


def _with_impersonation(connection: Connection, options: ServerOptions) -> Connection:
    if not options.as_user:
        if options.as_groups or options.as_uid:
            raise ConfigError("--as: is missing; --as-group and --as-uid need it")
        return connection
    impersonation = Impersonation(options.as_user, options.as_groups, options.as_uid or "")
    return msgspec.structs.replace(connection, impersonate=impersonation)

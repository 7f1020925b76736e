"""Which server a command talks to, and how work on it ends."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.archived_runs import READ_ONLY_ERROR
from gangline.cli.connect.live_runs import KUBECONFIG_NAME, publish_kubeconfig
from gangline.cli.connect.run_work import run_async, run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget, archive_flags, find_server
from gangline.cli.errors import error_line, error_with_server, single_error
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options_all
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.kube.errors import (
    ConfigError,
    Invalid,
    NotFound,
    Status,
    StatusDetails,
    Unauthorized,
    Unreachable,
)
from gangline.local.archive.runs import archive_run
from support.builders.runs import RECORDED_AT, job_path, recorded_job, stored_objects

JOBS: Resource[JSON] = Resource("kubeflow.org", "v1", "TFJob", "tfjobs", dict[str, Any])


def kubeconfig(file: Path, server: str, namespace: str = "") -> Path:
    context = {"cluster": "c", "user": "u", **({"namespace": namespace} if namespace else {})}
    file.parent.mkdir(parents=True, exist_ok=True)
    body = {
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": context}, {"name": "there", "context": context}],
    }
    file.write_text(yaml.safe_dump(body))
    return file


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Path]:
    """The folder of a plane that seems to run: its lock is held."""
    folder = tmp_path / "plane"
    kubeconfig(folder / "kubeconfig", "http://plane:1")
    (folder / "pid").write_text(str(os.getpid()))
    with (folder / "lock").open("w+b") as lock:
        lock.write(str(os.getpid()).encode())
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture
def going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of two runs in progress: with the job `old`, and later with `new`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    for age, name in enumerate(("old", "new")):
        folder = tmp_path / "tmp" / f"gangline-{name}"
        folder.mkdir()
        publish_kubeconfig(folder, PlaneAccess(f"http://{name}:1", "secret"), [Key("default", name)])
        os.utime(folder / KUBECONFIG_NAME, (age, age))
    return tmp_path / "home"


def test_without_a_server_a_run_in_progress_is_used(going: Path, tmp_path: Path) -> None:
    environ = {"GANGLINE_HOME": str(going)}
    assert find_server(ServerOptions(), environ, tmp_path).connection.server == "http://new:1"
    assert find_server(ServerOptions(context="gangline"), environ, tmp_path).connection.server == "http://new:1"
    old = find_server(ServerOptions(job_hint="tfjob/old"), environ, tmp_path)
    assert (old.connection.server, old.run_folder) == ("http://old:1", tmp_path / "tmp" / "gangline-old")


def test_a_run_hides_neither_a_cluster_nor_a_plane_nor_the_archive_of_another_job(
    going: Path, plane: Path, left: Path, tmp_path: Path
) -> None:
    assert find_server(ServerOptions(), {"GANGLINE_HOME": str(plane)}, tmp_path).plane_folder == plane
    variable = {"KUBECONFIG": str(kubeconfig(tmp_path / "variable", "http://variable:1"))}
    assert find_server(ServerOptions(), variable, tmp_path).connection.server == "http://variable:1"
    # Runs of another state folder are ignored.
    assert find_server(ServerOptions(), {"GANGLINE_HOME": str(left)}, tmp_path).archive == left
    shutil.copytree(left, going)
    assert find_server(ServerOptions(job_hint="small"), {"GANGLINE_HOME": str(going)}, tmp_path).archive == going
    assert find_server(ServerOptions(job_hint="old"), {"GANGLINE_HOME": str(going)}, tmp_path).run_folder is not None


def test_a_lost_server_is_one_error_however_many_tasks_use_it() -> None:
    errors = [Unreachable("first"), ExceptionGroup("", [Unreachable("second"), Unreachable("third")])]
    with pytest.raises(Unreachable, match="first"), single_error():
        raise ExceptionGroup("", errors)
    with pytest.raises(ExceptionGroup), single_error():
        raise ExceptionGroup("", [*errors, RuntimeError("a mistake of ours")])


def test_flags_win_over_the_environment_and_that_over_a_plane(tmp_path: Path, plane: Path) -> None:
    flag, variable = (kubeconfig(tmp_path / name, f"http://{name}:1") for name in ("flag", "variable"))
    environ = {"KUBECONFIG": str(variable), "GANGLINE_HOME": str(plane)}
    assert find_server(ServerOptions(kubeconfig=str(flag)), environ, tmp_path).connection.server == "http://flag:1"
    assert find_server(ServerOptions(), environ, tmp_path).connection.server == "http://variable:1"


def test_a_running_plane_wins_over_the_default_kubeconfig_and_is_printed(
    tmp_path: Path, plane: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    target = find_server(ServerOptions(), {"GANGLINE_HOME": str(plane)}, tmp_path)
    assert (target.connection.server, target.plane_folder) == ("http://plane:1", plane)
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "server: the plane of this machine (http://plane:1)\n")


def test_a_context_is_looked_for_in_the_kubeconfig_even_if_a_plane_runs(tmp_path: Path, plane: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    target = find_server(ServerOptions(context="there"), {"GANGLINE_HOME": str(plane)}, tmp_path)
    assert (target.connection.server, target.connection.context) == ("http://default:1", "there")


def test_a_plane_that_died_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    kubeconfig(folder / "kubeconfig", "http://plane:1")
    (folder / "pid").write_text("1")
    (folder / "lock").write_text("1")
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    assert (
        find_server(ServerOptions(), {"GANGLINE_HOME": str(folder)}, tmp_path).connection.server == "http://default:1"
    )


def test_a_plane_is_recognised_by_its_own_kubeconfig(tmp_path: Path, plane: Path) -> None:
    assert find_server(ServerOptions(), {"KUBECONFIG": str(plane / "kubeconfig")}, tmp_path).plane_folder == plane


def test_without_any_server_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gangline up"):
        find_server(ServerOptions(), {"GANGLINE_HOME": str(tmp_path / "none")}, tmp_path)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A state folder with an archived run."""
    folder = tmp_path / "left"
    archive_run(
        folder / "runs",
        job_path(),
        stored_objects(recorded_job("small", "Succeeded")),
        tmp_path / "none",
        RECORDED_AT,
    )
    return folder


def test_the_archive_is_read_if_there_is_no_server(tmp_path: Path, left: Path) -> None:
    environ = {"GANGLINE_HOME": str(left)}
    target = find_server(ServerOptions(), environ, tmp_path)
    assert (target.archive, target.plane_folder, target.namespace) == (left, None, "default")
    assert find_server(ServerOptions(namespace="mine"), environ, tmp_path).object_namespace == "mine"
    everywhere = find_server(ServerOptions(all_namespaces=True), environ, tmp_path)
    assert (everywhere.namespace, everywhere.object_namespace) == ("", "default")


def test_the_store_of_a_stopped_plane_is_an_archive(tmp_path: Path) -> None:
    (tmp_path / "plane" / "state").mkdir(parents=True)
    (tmp_path / "plane" / "state" / "state.db").write_text("")
    target = find_server(ServerOptions(), {"GANGLINE_HOME": str(tmp_path / "plane")}, tmp_path)
    assert target.archive == tmp_path / "plane"


def test_every_server_wins_over_the_archive(tmp_path: Path, left: Path) -> None:
    environ = {"GANGLINE_HOME": str(left)}
    variable = kubeconfig(tmp_path / "variable", "http://variable:1")
    assert find_server(ServerOptions(), {**environ, "KUBECONFIG": str(variable)}, tmp_path).archive is None
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    target = find_server(ServerOptions(), environ, tmp_path)
    assert (target.archive, target.connection.server) == (None, "http://default:1")


def test_a_missing_server_that_was_named_is_an_error(tmp_path: Path, left: Path) -> None:
    environ = {"GANGLINE_HOME": str(left)}
    for options in (
        ServerOptions(context="prod"),
        ServerOptions(kubeconfig="none"),
        ServerOptions(user="me"),
    ):
        with pytest.raises(ConfigError):
            find_server(options, environ, tmp_path)
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        find_server(ServerOptions(), {**environ, "KUBECONFIG": str(tmp_path / "none")}, tmp_path)


def test_this_machine_has_a_context_of_its_own(tmp_path: Path, left: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    target = find_server(ServerOptions(context="gangline"), {"GANGLINE_HOME": str(left)}, tmp_path)
    assert target.archive == left
    with pytest.raises(ConfigError, match="gangline"):
        find_server(ServerOptions(context="gangline"), {"GANGLINE_HOME": str(tmp_path / "none")}, tmp_path)


def test_the_context_of_this_machine_is_its_plane_while_it_runs(tmp_path: Path, plane: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    body = yaml.safe_load((plane / "kubeconfig").read_text())
    body["contexts"][0]["name"] = "gangline"
    (plane / "kubeconfig").write_text(yaml.safe_dump(body))
    target = find_server(ServerOptions(context="gangline"), {"GANGLINE_HOME": str(plane)}, tmp_path)
    assert (target.connection.server, target.plane_folder) == ("http://plane:1", plane)


def test_archive_flags_lead_to_the_archive_of_a_run(tmp_path: Path, left: Path, plane: Path) -> None:
    environ = {"GANGLINE_HOME": str(left)}
    assert archive_flags(environ, tmp_path) == ""
    assert archive_flags({**environ, "KUBECONFIG": "x"}, tmp_path) == " --context gangline"
    assert archive_flags({**environ, "KUBERNETES_SERVICE_HOST": "x"}, tmp_path) == " --context gangline"
    assert archive_flags({"GANGLINE_HOME": str(plane)}, tmp_path) is None
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    assert archive_flags(environ, tmp_path) == " --context gangline"


@pytest.fixture
def nowhere(tmp_path: Path, left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server, but an archived run."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(left))


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("way", [run_blocking, run_async])
def test_work_reads_the_archive_and_one_line_says_so(way: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def work(client: Client, target: ServerTarget) -> int:
        job = await client.get(JOBS, Key(target.object_namespace, "small"))
        return 7 if job["metadata"]["name"] == "small" else 1

    assert way(ServerOptions(), work) == 7
    assert capsys.readouterr().err == "no server is running; reading what earlier runs left\n"


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("way", [run_blocking, run_async])
def test_errors_of_the_archive_are_printed_as_those_of_a_server(way: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def missing(client: Client, target: ServerTarget) -> None:
        await client.get(JOBS, Key(target.object_namespace, "none"))

    async def writing(client: Client, target: ServerTarget) -> None:
        await client.delete(JOBS, Key(target.object_namespace, "small"))

    assert way(ServerOptions(), missing, missing=102) == 102
    assert way(ServerOptions(), writing) == 1
    output = capsys.readouterr().err.splitlines()
    assert output[1].startswith("Error from server (NotFound): ")
    assert output[3] == f"error: {READ_ONLY_ERROR}"


@pytest.mark.usefixtures("nowhere")
def test_work_that_needs_a_live_server_refuses_the_archive(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(client: Client, target: ServerTarget) -> None:
        raise AssertionError

    assert run_blocking(ServerOptions(), work, alive=True) == 1
    assert "gangline up --detach" in capsys.readouterr().err


def test_the_namespace_is_that_of_the_flag_or_of_the_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "http://x:1", "team")
    environ = {"KUBECONFIG": str(file)}
    assert find_server(ServerOptions(), environ, tmp_path).namespace == "team"
    assert find_server(ServerOptions(namespace="mine"), environ, tmp_path).namespace == "mine"
    everywhere = find_server(ServerOptions(all_namespaces=True), environ, tmp_path)
    assert (everywhere.namespace, everywhere.object_namespace) == ("", "team")


def test_impersonation_is_part_of_the_connection(tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(kubeconfig(tmp_path / "k", "http://x:1"))}
    impersonation = find_server(
        ServerOptions(as_user="ann", as_groups=("a", "b")), environ, tmp_path
    ).connection.impersonate
    assert impersonation is not None
    assert impersonation.headers() == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    with pytest.raises(ConfigError, match="--as"):
        find_server(ServerOptions(as_groups=("a",)), environ, tmp_path)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            NotFound(Status(reason="NotFound", message='pods "x" not found', code=404)),
            'Error from server (NotFound): pods "x" not found',
        ),
        (
            Invalid(Status(reason="Invalid", message='TFJob "x" is invalid: a', details=StatusDetails(kind="TFJob"))),
            'The TFJob "x" is invalid: a',
        ),
        (NotFound(Status(message="odd", code=404)), "error: odd"),
        (Unreachable("https://x: refused"), "error: https://x: refused"),
        (InputError("wrong"), "error: wrong"),
    ],
)
def test_errors_are_one_line_in_kubectls_words(error: Any, line: str) -> None:
    assert error_line(error) == line


def test_an_error_becomes_a_line_and_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServerOptions(kubeconfig=str(kubeconfig(tmp_path / "k", "http://127.0.0.1:1")))

    async def missing(client: Client, target: ServerTarget) -> int:
        raise NotFound(Status(reason="NotFound", message="gone", code=404))

    async def unreachable(client: Client, target: ServerTarget) -> int:
        await client.list(client.unstructured(next(iter(client.scheme))))
        return 0

    assert run_blocking(options, missing, missing=102) == 102
    assert run_blocking(options, unreachable) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines()[0] == "Error from server (NotFound): gone"
    assert output.err.splitlines()[1] == (
        "error: http://127.0.0.1:1: Connection refused; is that server up, and is context "
        f"here in {tmp_path / 'k'} the one you mean?"
    )


def test_unauthorized_names_the_source_of_the_credentials(tmp_path: Path) -> None:
    connection = find_server(ServerOptions(kubeconfig=str(kubeconfig(tmp_path / "k", "http://127.0.0.1:1")))).connection
    error = Unauthorized(Status(reason="Unauthorized", message="Unauthorized", code=401))
    assert error_with_server(error, connection) == (
        f"Error from server (Unauthorized): Unauthorized; the credentials of context here in {tmp_path / 'k'} "
        "are wrong or have expired: log in again"
    )


def test_blocking_and_async_work_print_the_same_for_an_unreachable_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(client: Client, target: ServerTarget) -> int:
        await client.list(client.unstructured(next(iter(client.scheme))))
        return 0

    for server, reason in (("https://127.0.0.1:1", "Connection refused"), ("http://nobody.invalid", "")):
        options = ServerOptions(kubeconfig=str(kubeconfig(tmp_path / "k", server)))
        assert run_blocking(options, work) == run_async(options, work) == 1
        first, second = capsys.readouterr().err.splitlines()
        assert first == second
        assert first.startswith(f"error: {server}: {reason}")


def test_options_of_the_server_arrive_as_one_value() -> None:
    received: list[ServerOptions] = []

    @cli_command()
    @server_options_all
    def look(server: ServerOptions) -> None:
        """Look."""
        received.append(server)

    completed = CliRunner().invoke(
        look, ["-A", "-n", "x", "--as", "ann", "--as-group", "g", "--request-timeout", "5s", "-vv"]
    )
    assert completed.exit_code == 0, completed.output
    (options,) = received
    assert (options.all_namespaces, options.namespace, options.as_user, options.as_groups) == (
        True,
        "x",
        "ann",
        ("g",),
    )
    assert options.request_timeout is not None
    assert options.request_timeout.total_seconds() == 5
    assert options.verbose == 2

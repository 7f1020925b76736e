"""Which server a command speaks to."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gangline.base.errors import InputError
from gangline.cli.servers import Place, ServerOptions, ask, find, sentence, server_options_all
from gangline.cli.verb import verb
from gangline.kube.client import Client
from gangline.kube.errors import ConfigError, Invalid, NotFound, Status, StatusDetails, Unreachable


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
    """The folder of a plane that looks as if it ran: somebody holds its lock."""
    folder = tmp_path / "plane"
    kubeconfig(folder / "kubeconfig", "http://plane:1")
    (folder / "pid").write_text(str(os.getpid()))
    with (folder / "lock").open("w+b") as lock:
        lock.write(str(os.getpid()).encode())
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def test_flags_go_before_the_environment_and_that_before_a_plane(tmp_path: Path, plane: Path) -> None:
    flag, variable = (kubeconfig(tmp_path / name, f"http://{name}:1") for name in ("flag", "variable"))
    environ = {"KUBECONFIG": str(variable), "GANGLINE_HOME": str(plane)}
    assert find(ServerOptions(kubeconfig=str(flag)), environ, tmp_path).connection.server == "http://flag:1"
    assert find(ServerOptions(), environ, tmp_path).connection.server == "http://variable:1"


def test_a_running_plane_goes_before_the_default_kubeconfig_and_that_is_said(
    tmp_path: Path, plane: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    found = find(ServerOptions(), {"GANGLINE_HOME": str(plane)}, tmp_path)
    assert (found.connection.server, found.local) == ("http://plane:1", plane)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "server: the plane of this machine (http://plane:1)\n")


def test_a_context_is_looked_for_in_the_kubeconfig_even_if_a_plane_runs(tmp_path: Path, plane: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    found = find(ServerOptions(context="there"), {"GANGLINE_HOME": str(plane)}, tmp_path)
    assert (found.connection.server, found.connection.context) == ("http://default:1", "there")


def test_a_plane_that_died_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    kubeconfig(folder / "kubeconfig", "http://plane:1")
    (folder / "pid").write_text("1")
    (folder / "lock").write_text("1")
    kubeconfig(tmp_path / ".kube" / "config", "http://default:1")
    assert (
        find(ServerOptions(), {"GANGLINE_HOME": str(folder)}, tmp_path).connection.server
        == "http://default:1"
    )


def test_a_plane_found_by_its_own_kubeconfig_is_known_as_one(tmp_path: Path, plane: Path) -> None:
    assert find(ServerOptions(), {"KUBECONFIG": str(plane / "kubeconfig")}, tmp_path).local == plane


def test_without_any_server_the_way_to_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gangline up"):
        find(ServerOptions(), {"GANGLINE_HOME": str(tmp_path / "none")}, tmp_path)


def test_namespaces_come_from_the_flag_then_from_the_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "k", "http://x:1", "team")
    environ = {"KUBECONFIG": str(file)}
    assert find(ServerOptions(), environ, tmp_path).namespace == "team"
    assert find(ServerOptions(namespace="mine"), environ, tmp_path).namespace == "mine"
    everywhere = find(ServerOptions(all_namespaces=True), environ, tmp_path)
    assert (everywhere.namespace, everywhere.home) == ("", "team")


def test_somebody_else_may_be_acted_as(tmp_path: Path) -> None:
    environ = {"KUBECONFIG": str(kubeconfig(tmp_path / "k", "http://x:1"))}
    found = find(ServerOptions(as_user="ann", as_groups=("a", "b")), environ, tmp_path).connection.impersonate
    assert found is not None
    assert found.headers() == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    with pytest.raises(ConfigError, match="--as"):
        find(ServerOptions(as_groups=("a",)), environ, tmp_path)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            NotFound(Status(reason="NotFound", message='pods "x" not found', code=404)),
            'Error from server (NotFound): pods "x" not found',
        ),
        (
            Invalid(
                Status(
                    reason="Invalid", message='TFJob "x" is invalid: a', details=StatusDetails(kind="TFJob")
                )
            ),
            'The TFJob "x" is invalid: a',
        ),
        (NotFound(Status(message="odd", code=404)), "error: odd"),
        (Unreachable("https://x: refused"), "error: https://x: refused"),
        (InputError("wrong"), "error: wrong"),
    ],
)
def test_errors_are_one_line_in_kubectls_words(error: Any, told: str) -> None:
    assert sentence(error) == told


def test_an_error_becomes_a_line_and_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServerOptions(kubeconfig=str(kubeconfig(tmp_path / "k", "http://127.0.0.1:1")))

    async def missing(client: Client, place: Place) -> int:
        raise NotFound(Status(reason="NotFound", message="gone", code=404))

    async def unreachable(client: Client, place: Place) -> int:
        await client.list(client.plain(next(iter(client.scheme))))
        return 0

    assert ask(options, missing, missing=102) == 102
    assert ask(options, unreachable) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[0] == "Error from server (NotFound): gone"
    assert told.err.splitlines()[1] == "error: http://127.0.0.1:1: Connection refused"


def test_options_of_the_server_arrive_as_one_value() -> None:
    got: list[ServerOptions] = []

    @verb()
    @server_options_all
    def look(server: ServerOptions) -> None:
        """Look."""
        got.append(server)

    done = CliRunner().invoke(
        look, ["-A", "-n", "x", "--as", "ann", "--as-group", "g", "--request-timeout", "5s", "-vv"]
    )
    assert done.exit_code == 0, done.output
    (found,) = got
    assert (found.all_namespaces, found.namespace, found.as_user, found.as_groups) == (
        True,
        "x",
        "ann",
        ("g",),
    )
    assert found.request_timeout is not None
    assert found.request_timeout.total_seconds() == 5
    assert found.verbose == 2

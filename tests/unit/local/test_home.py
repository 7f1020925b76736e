"""The folder of a plane that stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.kube.config.connection import load
from gangline.local.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "plane")
    made.prepare()
    return made


def test_token_and_port_are_chosen_once_and_kept(home: Home) -> None:
    token, port = home.token(), home.port()
    home.keep_port(port)
    assert (home.token(), home.port()) == (token, port)
    assert home.port(12345) == 12345
    # Not before somebody listened there.
    assert home.port() == port
    home.keep_port(12345)
    assert home.port() == 12345


def test_kubeconfig_leads_to_the_plane_and_is_private(home: Home, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    home.write_kubeconfig("https://127.0.0.1:6443", ca)
    assert home.kubeconfig.stat().st_mode & 0o777 == 0o600
    connection = load(kubeconfig=str(home.kubeconfig), environ={}, home=tmp_path)
    assert (connection.server, connection.context) == ("https://127.0.0.1:6443", "gangline")
    assert home.token() not in repr(connection)


def test_the_process_that_runs_it_is_known_until_it_ends(home: Home) -> None:
    assert home.running() is None
    with home.claimed():
        assert home.running() is None  # not ready yet
        home.announce()
        assert home.running() == os.getpid()
    assert home.running() is None


def test_a_process_that_died_does_not_run_it(home: Home) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    (home.folder / "pid").write_text(str(process.pid))
    assert home.running() is None


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be used.*choose another with --dir"):
        Home(tmp_path / "file" / "plane").prepare()

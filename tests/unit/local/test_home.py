"""The folder of a plane."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.kube.config.access import PlaneAccess
from gangline.kube.config.connection import load_connection
from gangline.local.home import PlaneHome


@pytest.fixture
def home(tmp_path: Path) -> PlaneHome:
    plane_home = PlaneHome(tmp_path / "plane")
    plane_home.create_folder()
    return plane_home


def test_token_and_port_are_chosen_once_and_kept(home: PlaneHome) -> None:
    token, port = home.ensure_token(), home.choose_port()
    home.save_port(port)
    assert (home.ensure_token(), home.choose_port()) == (token, port)
    assert home.choose_port(12345) == 12345
    # The port is saved only once the server has listened on it.
    assert home.choose_port() == port
    home.save_port(12345)
    assert home.choose_port() == 12345


def test_kubeconfig_leads_to_the_plane_and_is_private(home: PlaneHome, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("-----BEGIN CERTIFICATE-----\n")
    home.write_kubeconfig(PlaneAccess("https://127.0.0.1:6443", home.ensure_token(), ca))
    assert home.kubeconfig_file.stat().st_mode & 0o777 == 0o600
    connection = load_connection(kubeconfig=str(home.kubeconfig_file), environ={}, home=tmp_path)
    assert (connection.server, connection.context) == ("https://127.0.0.1:6443", "gangline")
    assert home.ensure_token() not in repr(connection)


def test_the_process_that_runs_it_is_known_until_it_ends(home: PlaneHome) -> None:
    assert home.lock.running_pid() is None
    with home.lock.acquire():
        assert home.lock.running_pid() is None  # not ready yet
        home.lock.mark_ready()
        assert home.lock.running_pid() == os.getpid()
    assert home.lock.running_pid() is None


def test_a_process_that_died_does_not_run_it(home: PlaneHome) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    (home.folder / "pid").write_text(str(process.pid))
    assert home.lock.running_pid() is None


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be used.*choose another with --dir"):
        PlaneHome(tmp_path / "file" / "plane").create_folder()

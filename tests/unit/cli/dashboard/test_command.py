"""`gangline dashboard`: its options, and the door that opens with the first visit."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.base.errors import InputError
from gangline.cli.dashboard.command import DashboardRequest
from gangline.cli.dashboard.local import open_in_browser, running_dashboard
from gangline.cli.flags.dashboard_options import DashboardOptions
from gangline.cli.main import run
from gangline.dashboard.doorway import dashboard_on_demand, listening_socket, socket_url
from gangline.dashboard.links import DashboardAddress
from gangline.dashboard.settings import DashboardSettings
from gangline.kube.config.connection import Connection


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (DashboardRequest(bind="0.0.0.0"), "add --login token"),
        (DashboardRequest(bind="example.com"), "is not an IP address"),
        (DashboardRequest(record=True), "add --history FOLDER"),
        (DashboardRequest(login="token", open_page=True), "leave it out with --login token"),
    ],
)
def test_options_that_do_not_go_together_are_refused(request_: DashboardRequest, text: str) -> None:
    with pytest.raises(InputError, match=text):
        request_.check()


def test_a_dashboard_that_runs_will_do_unless_something_else_is_asked_for() -> None:
    assert DashboardRequest(open_page=True).is_default
    assert not DashboardRequest(port=8080).is_default
    DashboardRequest(bind="0.0.0.0", login="token").check()


def test_options_of_up_reach_the_background_process() -> None:
    assert DashboardOptions(dashboard_port=81, open_dashboard=True).as_arguments() == ["--dashboard-port", "81"]
    assert DashboardOptions(dashboard=False).as_arguments() == ["--no-dashboard"]


def test_without_any_server_the_command_says_what_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert run(["dashboard"]) == 1
    assert "gangline up --detach" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line() -> None:
    with listening_socket() as taken, pytest.raises(InputError, match="cannot listen there: Address already in use"):
        listening_socket(port=taken.getsockname()[1])


async def test_nothing_of_the_dashboard_is_made_before_the_first_visit() -> None:
    made: list[str] = []

    def settings() -> DashboardSettings:
        made.append("settings")
        return DashboardSettings(connection=Connection(server="http://127.0.0.1:9"))

    async with dashboard_on_demand(settings) as address:
        await asyncio.sleep(0)
        assert not made
        async with aiohttp.ClientSession() as http, http.get(f"{address.url}/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok")
        assert made == ["settings"]


def test_the_doors_of_a_run_load_nothing_of_the_dashboard() -> None:
    import subprocess

    program = (
        "import sys, gangline.cli.dashboard.local; "
        "print(sorted(name for name in sys.modules if name.startswith('gangline.dashboard.')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['gangline.dashboard.doorway', 'gangline.dashboard.links']"


def test_a_dashboard_that_has_ended_is_not_offered(tmp_path: Path) -> None:
    with listening_socket() as opened:
        address = DashboardAddress(socket_url(opened), "secret")
        address.save(tmp_path)
        assert running_dashboard(tmp_path) == address
    assert running_dashboard(tmp_path) is None
    assert running_dashboard(None) is None


def test_the_link_reaches_the_browser_by_a_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    opened: list[str] = []

    def open_page(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_page)
    said: list[Any] = []
    open_in_browser("http://127.0.0.1:1/?key=a&b", said.append)
    file = Path(opened[0].removeprefix("file://"))
    assert "key" not in opened[0]
    assert "url=http://127.0.0.1:1/?key=a&amp;b" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    open_in_browser("http://127.0.0.1:1/?key=a", said.append)
    assert said == ["no browser can be opened here; open the address above yourself"]

"""The dashboard as a person starts it: with up, with run, and by its own command."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from support.cluster.clients import DetachedPlane
from support.waiting import wait_until_blocking

GANGLINE = [sys.executable, "-m", "gangline"]
LINK = re.compile(r"^dashboard: (http://127\.0\.0\.1:\d+)/\?key=\S+$", re.MULTILINE)


def _session(link: str) -> Any:
    """Open a link as a browser does, and read the session that it began."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    status, page = _answer(opener, link)
    assert status in (200, 503), page  # 503: a source tree without the built front end
    status, session = _answer(opener, f"{link.partition('/?')[0]}/api/session")
    assert status == 200, session
    return json.loads(session)


def _answer(opener: urllib.request.OpenerDirector, address: str | urllib.request.Request) -> tuple[int, bytes]:
    try:
        with opener.open(address, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def _link(text: str) -> str:
    found = LINK.search(text)
    assert found is not None, text
    return found[0].removeprefix("dashboard: ")


def test_up_prints_a_link_and_the_command_prints_more(tmp_path: Path) -> None:
    plane = DetachedPlane(tmp_path / "plane")
    environment = {**plane.environment, "GANGLINE_HOME": str(plane.folder)}
    started = subprocess.run(
        [*GANGLINE, "up", "--detach", "--dir", str(plane.folder)], env=environment, capture_output=True, text=True
    )
    try:
        first = _link(started.stderr)
        assert _session(first)["user"] == "admin"
        more = subprocess.run([*GANGLINE, "dashboard"], env=environment, capture_output=True, text=True)
        assert more.returncode == 0, more.stderr
        second = _link(more.stderr)
        assert second.partition("?")[0] == first.partition("?")[0]
        session = _session(second)
        assert (session["local"], session["history"], session["tools"]) == (True, True, ["submit", "fit"])
        assert (plane.folder / "dashboard.json").stat().st_mode & 0o077 == 0
    finally:
        subprocess.run(
            [*GANGLINE, "down", "--dir", str(plane.folder)], env=environment, check=True, capture_output=True
        )
    assert not (plane.folder / "dashboard.json").exists()


def test_up_without_a_dashboard_has_none(tmp_path: Path) -> None:
    plane = DetachedPlane(tmp_path / "plane")
    command = [*GANGLINE, "up", "--detach", "--no-dashboard", "--dir", str(plane.folder)]
    started = subprocess.run(command, env=plane.environment, capture_output=True, text=True)
    try:
        assert started.returncode == 0, started.stderr
        assert "dashboard:" not in started.stderr
        assert not (plane.folder / "dashboard.json").exists()
    finally:
        subprocess.run([*GANGLINE, "down", "--dir", str(plane.folder)], env=plane.environment, check=True)


def test_a_run_has_a_dashboard_until_it_ends(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "home")}
    environment.pop("KUBECONFIG", None)
    go = tmp_path / "go"
    program = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
    command = [*GANGLINE, "run", "--nproc", "1", "--", sys.executable, "-c", program]
    log = tmp_path / "stderr"
    with log.open("w") as errors:
        running = subprocess.Popen(command, env=environment, stderr=errors, stdout=subprocess.DEVNULL, cwd=tmp_path)
    try:
        wait_until_blocking(lambda: LINK.search(log.read_text()))
        link = _link(log.read_text())
        assert _session(link)["local"]
        more = subprocess.run([*GANGLINE, "dashboard"], env=environment, capture_output=True, text=True)
        assert _session(_link(more.stderr))["user"] == "admin"
    finally:
        go.touch()
        assert running.wait(60) == 0, log.read_text()


def test_the_command_serves_any_kubeconfig_until_interrupted(tmp_path: Path) -> None:
    plane = DetachedPlane(tmp_path / "plane")
    plane.up()
    try:
        kubeconfig = str(plane.folder / "kubeconfig")
        command = [
            *GANGLINE,
            "dashboard",
            "--port",
            "0",
            "--kubeconfig",
            kubeconfig,
            "-n",
            "default",
            "--login",
            "token",
        ]
        serving = subprocess.Popen(command, env=plane.environment, stderr=subprocess.PIPE, text=True)
        assert serving.stderr is not None
        try:
            url = serving.stderr.readline().removeprefix("dashboard: ").strip()
            opener = urllib.request.build_opener()
            status, body = _answer(opener, f"{url}/api/session")
            assert (status, json.loads(body)["error"]["login"]) == (401, "token")
            token = (plane.folder / "token").read_text().strip()
            request = urllib.request.Request(f"{url}/api/session", headers={"Authorization": f"Bearer {token}"})
            session = json.loads(_answer(opener, request)[1])
            assert (session["user"], session["local"], session["namespace"]) == ("admin", False, "default")
        finally:
            serving.send_signal(signal.SIGINT)
            assert serving.wait(30) == 0
            serving.stderr.close()
    finally:
        plane.down()


def test_without_a_server_it_shows_what_earlier_runs_left_and_changes_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "home")}
    environment.pop("KUBECONFIG", None)
    run = [
        *GANGLINE,
        "run",
        "--nproc",
        "1",
        "--",
        sys.executable,
        "-c",
        "print('hello from the past')",
    ]
    subprocess.run(run, env=environment, check=True, capture_output=True, cwd=tmp_path)
    serving = subprocess.Popen([*GANGLINE, "dashboard"], env=environment, stderr=subprocess.PIPE, text=True)
    assert serving.stderr is not None
    try:
        assert "what earlier runs left" in serving.stderr.readline()
        link = _link(serving.stderr.readline())
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        url = link.partition("/?")[0]
        assert _answer(opener, link)[0] == 200
        rows = json.loads(_answer(opener, f"{url}/api/jobs")[1])["rows"]
        (row,) = rows
        assert row["state"] == "Succeeded"
        detail = json.loads(_answer(opener, f"{url}/api/jobs/{row['id']}")[1])
        assert not any(detail["allowed"].values())
        logs = json.loads(_answer(opener, f"{url}/api/jobs/{row['id']}/logs")[1])
        assert "hello from the past" in {line["text"] for line in logs["lines"]}
        session = json.loads(_answer(opener, f"{url}/api/session")[1])
        assert (session["tools"], session["history"]) == ([], True)
    finally:
        serving.send_signal(signal.SIGINT)
        assert serving.wait(30) == 0
        serving.stderr.close()

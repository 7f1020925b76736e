"""Attacks on the dashboard: pages of other sites, foreign names, hostile content, readers that do not read."""

import asyncio
import io
import json
import re
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.dashboard.app import CONNECTIONS
from gangline.dashboard.links import DashboardAddress
from gangline.dashboard.live import rights
from gangline.dashboard.live.feed import MAX_WAITING_BYTES
from gangline.dashboard.live.viewer import MAX_VIEWS
from gangline.dashboard.settings import DashboardLimits, DashboardSettings, LoginMethod
from gangline.dashboard.web.guard import SECURITY_HEADERS
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from gangline.summary.objects import EVENTS, JOB_KINDS, NAMESPACES, json_resource
from support.servers.dashboard import (
    ROLE_BINDINGS,
    DashboardPlane,
    SentEvent,
    dashboard_plane,
    job_body,
    served_dashboard,
    until,
    user_token,
)
from support.servers.proxy import FaultyProxy
from support.waiting import wait_until

SERVICE_ACCOUNTS = json_resource("", "v1", "ServiceAccount", "serviceaccounts")
PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
PATH = "/api/jobs/default/pytorchjobs/bert"
HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u2028${7*7}"


async def _exists(client: Client, name: str = "bert") -> bool:
    page = await client.list(PYTORCHJOBS)
    return any(body["metadata"]["name"] == name for body in page.items)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"X_Gangline_Request": ""},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Host": "evil.example"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        status, answer = await browser.call("POST", f"{PATH}/actions/delete", {}, **headers)
        assert status in (403, 415, 421), answer
        assert await _exists(plane.client)
        assert (await browser.call("POST", f"{PATH}/actions/delete", {}))[0] == 200


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/stream?view=board", PATH])
async def test_a_name_that_points_here_reaches_nothing(tmp_path: Path, path: str) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
            async with browser.http.get(browser.url + path, headers={"Host": host}) as response:
                assert response.status in (400, 421), (host, await response.text())
                assert "Set-Cookie" not in response.headers


async def test_a_name_that_was_allowed_is_served(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, allowed_hosts=("gangline.example",)) as plane, plane.logged_in() as browser:
        port = browser.url.rpartition(":")[2]
        host = f"gangline.example:{port}"
        async with browser.http.get(f"{browser.url}/api/session", headers={"Host": host}) as response:
            assert response.status == 200


async def test_other_sites_cannot_read_either(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}):
            async with browser.http.get(f"{browser.url}/api/session", headers=headers) as response:
                assert response.status == 403
                assert "Access-Control-Allow-Origin" not in response.headers


async def test_methods_that_are_not_used_are_refused(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            async with browser.http.request(method, browser.url + PATH) as response:
                assert response.status in (403, 405), method


async def test_every_response_has_strict_headers(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        paths = ["/", "/none.js", "/api/session", "/api/none", "/?key=wrong", PATH, f"{PATH}/logs/download"]
        for path in paths:
            async with browser.http.get(browser.url + path, headers={"Host": browser.url[7:]}) as response:
                for name, value in SECURITY_HEADERS.items():
                    assert response.headers[name] == value, path
                assert "unsafe" not in response.headers["Content-Security-Policy"]
        async with browser.http.get(f"{browser.url}/api/stream?view=board") as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"


async def test_the_cookie_is_of_no_use_to_scripts_and_other_sites(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.browser() as browser:
        async with browser.http.get(plane.new_link(), allow_redirects=False) as response:
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert "key=" not in response.headers["Location"]
        async with browser.http.get(
            plane.new_link(), allow_redirects=False, headers={"X-Forwarded-Proto": "https"}
        ) as r:
            assert "Secure" in r.headers["Set-Cookie"]


async def test_links_cannot_be_guessed_repeated_or_used_after_their_end(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.browser() as browser:
        good = plane.new_link()
        forged = DashboardAddress(browser.url, "another secret").new_link(SystemClock().now())
        past = SystemClock().now() - timedelta(hours=2)
        expired = plane.address.new_link(past)
        for link in (forged, expired, f"{good}x", f"{browser.url}/?key=", f"{browser.url}/?key=0.a.é", good[:-1]):
            assert await browser.open(link) == 403, link
        assert await browser.open(good) != 403
        async with plane.browser() as other:
            assert await other.open(good) == 403


async def test_a_link_begins_nothing_where_viewers_log_in_with_tokens(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, login=LoginMethod.TOKEN) as plane, plane.browser() as browser:
        await browser.open(plane.new_link())
        assert (await browser.call("GET", "/api/session"))[0] == 401


async def test_hostile_content_is_data_everywhere(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        program = f"print({HOSTILE!r}); raise SystemExit(1)"
        body = job_body("bert", [sys.executable, "-c", program], workers=0, annotations={"note": HOSTILE})
        body["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
        job = await plane.client.create(PYTORCHJOBS, body, namespace="default")
        event = {
            "metadata": {"name": "hostile"},
            "type": "Warning",
            "reason": "Hostile",
            "message": HOSTILE,
            "involvedObject": {
                "kind": "PyTorchJob",
                "name": "bert",
                "namespace": "default",
                "uid": job["metadata"]["uid"],
            },
            "lastTimestamp": "2099-01-01T00:00:00Z",
        }
        await plane.client.create(EVENTS, event, namespace="default")
        async with browser.stream("view=board") as events:
            await until(events, {}, lambda rows: rows.get("default/pytorchjobs/bert", {}).get("state") == "Failed")
        seen = []
        for path in (
            PATH,
            f"{PATH}/logs",
            f"{PATH}/why",
            "/api/jobs?text=%3Cscript%3E",
            "/api/jobs/%3Cb%3E/pytorchjobs/x",
        ):
            async with browser.http.get(browser.url + path) as response:
                assert response.content_type == "application/json", path
                seen.append(json.dumps(json.loads(await response.text()), ensure_ascii=False))
        quoted = json.dumps(HOSTILE, ensure_ascii=False)[1:-1]
        assert quoted in seen[0]  # the message of the event
        assert quoted.partition("\u2028")[0] in seen[1]  # the log line
        async with browser.stream("view=job&id=default/pytorchjobs/bert") as events:
            snapshot = await anext(events)
        assert any(event["message"] == " ".join(HOSTILE.split()) for event in snapshot.data["events"])
        async with browser.http.get(f"{browser.url}{PATH}/logs/download") as response:
            assert response.content_type == "text/plain"
            assert response.headers["Content-Disposition"].startswith("attachment")


async def test_the_token_of_one_viewer_gives_nothing_to_another(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, ("jane", "joe"), login=LoginMethod.TOKEN) as plane:
        await plane.client.create(NAMESPACES, {"metadata": {"name": "team-a"}})
        await plane.client.create(PYTORCHJOBS, job_body("secret", SLEEP, workers=0), namespace="team-a")
        rule = {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
        await plane.allow("jane", "team-a", rule)
        async with plane.logged_in(user_token("jane")) as jane, plane.logged_in(user_token("joe")) as joe:
            async with jane.stream("view=board&namespace=team-a") as events:
                assert len((await anext(events)).data["rows"]) == 1
                async with joe.stream("view=board&namespace=team-a") as others:
                    assert (await anext(others)).data["rows"] == []
            assert (await joe.call("GET", "/api/jobs/team-a/pytorchjobs/secret"))[0] == 403
            status, _ = await joe.call("POST", "/api/jobs/team-a/pytorchjobs/secret/actions/delete", {})
            assert status == 403
            assert await _exists(plane.client, "secret")
            status, answer = await joe.call("POST", "/api/login", {"token": "wrong"})
            assert (status, "wrong" in json.dumps(answer)) == (401, False)
            assert (await joe.call("POST", "/api/login", {"token": "two words"}))[0] == 400


async def test_a_cut_connection_ends_its_watches_and_a_new_one_begins_with_a_snapshot(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        async with browser.stream("view=board") as events:
            assert (await anext(events)).event == "snapshot"
        await wait_until(lambda: _subscribers(plane) == 0)
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        async with browser.stream("view=board") as events:
            rows = await until(events, {}, lambda rows: bool(rows))
        assert list(rows) == ["default/pytorchjobs/bert"]
        await wait_until(lambda: _subscribers(plane) == 0)


def _subscribers(plane: DashboardPlane) -> int:
    return sum(
        running.feed.subscriber_count
        for entry in plane.dashboard.viewers._open.values()
        for running in entry.viewer._running
    )


async def test_a_reader_that_does_not_read_holds_up_nobody_and_costs_little(tmp_path: Path) -> None:
    limits = DashboardLimits(write_timeout=timedelta(seconds=2))
    async with dashboard_plane(tmp_path, limits=limits) as plane, plane.logged_in() as browser:
        cookie = "; ".join(f"{morsel.key}={morsel.value}" for morsel in browser.http.cookie_jar)
        host, port = browser.url[7:].rsplit(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET /api/stream?view=board HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\n\r\n".encode())
        assert b"200" in await reader.readline()
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        async with browser.stream("view=board") as events:
            await until(events, {}, lambda rows: bool(rows))
            for number in range(200):
                note = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": f"queue-{number}-{'x' * 20}"}}}
                await plane.client.patch(PYTORCHJOBS, Key("default", "bert"), note)
            last = f"queue-199-{'x' * 20}"
            await until(events, {}, lambda rows: next(iter(rows.values()))["queue"] == last if rows else False)
            waiting = [
                subscription._size
                for entry in plane.dashboard.viewers._open.values()
                for running in entry.viewer._running
                for subscription in running.feed._subscriptions
            ]
            assert max(waiting) <= MAX_WAITING_BYTES
        writer.close()


async def test_a_viewer_who_leaves_a_download_is_no_error_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave(*_: object) -> None:
        raise ConnectionError("Connection lost")  # as aiohttp says it while data waits to be sent

    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        program = [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)"]
        await plane.client.create(PYTORCHJOBS, job_body("bert", program, workers=0), namespace="default")

        async def has_printed() -> bool:
            return bool((await browser.get(f"{PATH}/logs"))["lines"])

        await wait_until(has_printed)
        monkeypatch.setattr(web.StreamResponse, "write", leave)
        assert (await browser.call("GET", f"{PATH}/logs"))[0] == 200
        assert not [record.message for record in caplog.records if record.exc_info]


async def test_too_many_pages_are_refused_in_words(tmp_path: Path) -> None:
    async with (
        dashboard_plane(tmp_path, limits=DashboardLimits(streams=1)) as plane,
        plane.logged_in() as browser,
        browser.stream("view=board") as events,
    ):
        await anext(events)
        status, answer = await browser.call("GET", "/api/stream?view=board")
        assert (status, answer["error"]["message"]) == (503, "too many pages are open; close some")


async def test_connections_that_send_nothing_make_room_for_others(tmp_path: Path) -> None:
    most = CONNECTIONS.unauthenticated_per_address
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        host, port = browser.url[7:].rsplit(":")
        async with browser.stream("view=board") as events:
            await anext(events)
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(most + 20)]
            # The oldest are closed; whoever has a session is served, and stays.
            assert await asyncio.wait_for(silent[0][0].read(), 30) == b""
            assert (await browser.get("/api/session"))["user"] == "admin"
            await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
            await until(events, {}, bool)
        for _, writer in silent:
            writer.close()


async def test_one_viewer_has_no_endless_number_of_views(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(browser.call("GET", f"/api/jobs?namespace=n{number}"))
                for number in range(MAX_VIEWS + 20)
            ]
        refused = [answer for status, answer in map(asyncio.Task.result, calls) if status == 503]
        assert 0 < len(refused) <= 20
        assert "at once; wait some seconds" in refused[0]["error"]["message"]


async def test_sessions_are_bounded(tmp_path: Path) -> None:
    async with (
        dashboard_plane(tmp_path, limits=DashboardLimits(sessions=2)) as plane,
        plane.logged_in() as first,
        plane.logged_in() as second,
        plane.logged_in() as third,
    ):
        assert (await first.call("GET", "/api/session"))[0] == 401
        assert (await second.call("GET", "/api/session"))[0] == 200
        assert (await third.call("GET", "/api/session"))[0] == 200


ODD_ADDRESSES = (
    f"/api/jobs?offset={'9' * 4400}",
    "/api/jobs?namespace=a/../b",
    "/api/jobs?at=0001-01-01T00:00:00%2B14:00",
    "/api/stream?view=board&namespace=%00",
    "/api/stream?view=job&id=../pytorchjobs/bert",
    "/api/jobs/%2e%2e/pytorchjobs/bert",
    "/api/jobs/default/pytorchjobs/bert%3fwatch=true",
    f"{PATH}/logs?cursor={2**64}",
    f"{PATH}/logs?from=0001-01-01T00:00:00%2B14:00",
    f"{PATH}/logs?to=aaaaaaaaaaTaaaaaaaaZ",
    f"{PATH}/curves?points={'9' * 4400}",
)


async def test_odd_addresses_are_refused_in_one_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        for path in ODD_ADDRESSES:
            async with browser.http.get(URL(browser.url + path, encoded=True)) as response:
                assert response.status in (400, 404), (path[:80], await response.text())
                assert "failed" not in (await response.json())["error"]["message"], path[:80]
            assert not [record for record in caplog.records if record.exc_info], path[:80]


async def test_odd_headers_are_refused_in_one_sentence(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        host, port = browser.url[7:].rsplit(":")
        cookie = next(morsel.key for morsel in browser.http.cookie_jar)
        for header, code in ((b"Origin: http://[", b"403"), (f"Cookie: {cookie}=".encode() + b"\xff\xfe", b"401")):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET /api/session HTTP/1.1\r\nHost: {host}:{port}\r\n".encode() + header + b"\r\n\r\n")
            assert code in await reader.readline()
            writer.close()


@pytest.mark.parametrize("path", ["//evil.example/", "/%5cevil.example/", "/\\evil.example/"])
async def test_a_link_leads_to_no_other_site(tmp_path: Path, path: str) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        host, port = browser.url[7:].rsplit(":")
        cookie = "; ".join(f"{morsel.key}={morsel.value}" for morsel in browser.http.cookie_jar)
        reader, writer = await asyncio.open_connection(host, int(port))
        request = (
            f"GET {path}?key=x&view=a HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        )
        writer.write(request.encode())
        head = (await reader.read()).decode()
        location = next(line.removeprefix("Location: ") for line in head.split("\r\n") if line.startswith("Location"))
        assert re.match(r"/[^/\\]", location), location
        assert location.endswith("?view=a")
        writer.close()


async def test_large_and_malformed_bodies_are_refused(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        for body in (b"x" * 5_000_000, b"{", b"[]", b"\xff\xfe", b"null"):
            headers = {"X-Gangline-Request": "1", "Content-Type": "application/json", "Origin": browser.url}
            async with browser.http.post(
                f"{browser.url}{PATH}/actions/scale", data=io.BytesIO(body), headers=headers
            ) as response:
                assert response.status in (400, 404, 413), (body[:10], response.status)
                assert "error" in await response.json()


async def test_a_server_that_does_not_answer_is_reported_and_a_later_visit_begins_anew(tmp_path: Path) -> None:
    settings = DashboardSettings(connection=Connection(server="http://127.0.0.1:9"))
    async with served_dashboard(settings) as (address, dashboard):
        plane = DashboardPlane(Client(HttpTransport(settings.connection)), address, dashboard, tmp_path)
        async with plane.logged_in() as browser:
            for path in ("/api/session", "/api/stream?view=board", "/api/jobs", "/api/stream?view=cluster", PATH):
                status, answer = await browser.call("GET", path)
                assert (status, "does not answer" in answer["error"]["message"]) == (502, True), path


def ca_file(plane: DashboardPlane) -> Path:
    tls = plane.connection.tls
    assert tls is not None
    assert tls.ca is not None
    assert tls.ca.file is not None
    return tls.ca.file


@pytest.mark.faults
async def test_an_open_page_hears_that_the_server_is_lost_and_that_it_is_back(tmp_path: Path) -> None:
    view = "view=job&id=default/pytorchjobs/bert"

    async def next_problem(events: AsyncIterator[SentEvent]) -> str:
        async for event in events:
            if event.event == "problem":
                return str(event.data["message"])
        raise AssertionError("the stream ended")

    async with dashboard_plane(tmp_path) as plane, FaultyProxy(plane.connection.server, ca_file(plane)) as proxy:
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        connection = Connection(server=proxy.url, credentials=plane.connection.credentials)
        async with (
            served_dashboard(DashboardSettings(connection=connection)) as (address, dashboard),
            DashboardPlane(plane.client, address, dashboard, tmp_path).logged_in() as browser,
            browser.stream(view) as events,
        ):
            assert (await anext(events)).event == "snapshot"
            proxy.is_open = False
            proxy.reset_connections()
            assert await next_problem(events)
            # Who opens a page now hears it, too.
            async with browser.stream(view) as others:
                assert (await anext(others)).event == "problem"
                assert (await anext(others)).event == "snapshot"
            proxy.is_open = True
            while await next_problem(events):
                pass


async def test_rights_that_were_taken_away_are_gone_although_a_page_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rights, "REMEMBERED", timedelta())
    async with dashboard_plane(tmp_path, ("jane",), login=LoginMethod.TOKEN) as plane:
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        rule = {"apiGroups": ["kubeflow.org"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
        await plane.allow("jane", "default", rule)
        board, page = "view=board&namespace=default", "view=job&id=default/pytorchjobs/bert"
        async with (
            plane.logged_in(user_token("jane")) as jane,
            jane.stream(board) as events,
            jane.stream(page) as changes,
        ):
            assert len((await anext(events)).data["rows"]) == 1
            assert (await anext(changes)).data["row"]["name"] == "bert"
            await plane.client.delete(ROLE_BINDINGS, Key("default", "jane-role"))
            assert (await jane.get("/api/jobs?namespace=default"))["rows"] == []
            assert (await jane.call("GET", PATH))[0] == 403
            # The pages that were open end, and begin anew with what may be read.
            assert [event async for event in events if event.event == "snapshot"] == []
            assert [event async for event in changes if event.event == "snapshot"] == []
            async with jane.stream(board) as again:
                assert (await anext(again)).data["rows"] == []


async def test_tokens_that_the_server_does_not_know_leave_nothing_behind(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, login=LoginMethod.TOKEN) as plane, plane.browser() as browser:
        for number in range(20):
            for path in ("/api/session", "/api/jobs", "/api/stream?view=board"):
                status, _ = await browser.call("GET", path, Authorization=f"Bearer junk-{number}")
                assert status == 401
        assert not plane.dashboard.viewers._open


@pytest.mark.parametrize("token", ["", " "])
async def test_nobody_is_let_in_without_a_token(tmp_path: Path, token: str) -> None:
    async with dashboard_plane(tmp_path, login=LoginMethod.TOKEN) as plane, plane.browser() as browser:
        assert (await browser.call("POST", "/api/login", {"token": token}))[0] == 400
        assert (await browser.call("GET", "/api/session"))[0] == 401


async def test_a_token_that_ends_ends_the_session(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, login=LoginMethod.TOKEN) as plane:
        await plane.client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "viewer"}}, namespace="default")
        request = Request(
            "POST", "/api/v1/namespaces/default/serviceaccounts/viewer/token", (), b'{"spec": {}}', "application/json"
        )
        answer = json.loads(await plane.client.requests.call(request))
        async with plane.logged_in(answer["status"]["token"]) as browser:
            user = (await browser.get("/api/session"))["user"]
            assert user == "system:serviceaccount:default:viewer"
            await plane.client.delete(SERVICE_ACCOUNTS, Key("default", "viewer"))
            status, answer = await browser.call("GET", f"{PATH}/why")
            assert status == 401
            status, answer = await browser.call("GET", "/api/session")
            assert (status, answer["error"]["login"]) == (401, "token")

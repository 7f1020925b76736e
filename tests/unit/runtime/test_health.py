import socket
import urllib.error
import urllib.request

import aiohttp
import pytest

from gangline.base.certificates.serving import tls_of_our_own
from gangline.base.errors import InputError
from gangline.base.watchdog import IDLE_LIMIT, LOOP_LIMIT, WorkInProgress, report_progress, track_activity
from gangline.kube.client import Client
from gangline.runtime.health import BindAddress, HealthServer
from gangline.runtime.metrics import PrometheusMetrics
from gangline.runtime.metrics_guard import MetricsGuard
from gangline.testing.clock import FakeClock
from support.servers.scripted import ScriptedTransport, json_response

METRICS, PROBES = "metrics-bind-address", "health-probe-bind-address"


async def fetch(address: BindAddress, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{address.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


def health(metrics: str = "127.0.0.1:0", probes: str = "127.0.0.1:0") -> HealthServer:
    return HealthServer(metrics=PrometheusMetrics(), metrics_address=metrics, probe_address=probes)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_probes_say_ok(path: str) -> None:
    async with health() as server:
        assert await fetch(server.addresses[PROBES], path) == (200, "ok")


async def test_not_ready_until_every_check_is_content() -> None:
    problem = "no first list of Pod"
    server = health()
    server.add_readyz_check("caches", lambda: problem)
    async with server:
        probes = server.addresses[PROBES]
        text = (
            "[+]ping ok\n[+]event-loop ok\n[+]workers ok\n[-]caches failed: no first list of Pod\nreadyz check failed\n"
        )
        assert await fetch(probes, "/readyz") == (503, text)
        assert await fetch(probes, "/readyz?exclude=caches") == (200, "ok")
        assert await fetch(probes, "/healthz") == (200, "ok"), "not ready is not dead"
        problem = ""
        assert await fetch(probes, "/readyz") == (200, "ok")
        assert await fetch(probes, "/readyz?verbose") == (
            200,
            "[+]ping ok\n[+]event-loop ok\n[+]workers ok\n[+]caches ok\nreadyz check passed\n",
        )


async def test_dead_when_a_liveness_check_says_so() -> None:
    server = health()
    server.add_livez_check("worker", lambda: "stuck")
    async with server:
        assert (await fetch(server.addresses[PROBES], "/livez"))[0] == 503
        assert (await fetch(server.addresses[PROBES], "/readyz"))[0] == 503


async def test_metrics_and_probes_listen_apart() -> None:
    async with health() as server:
        metrics, probes = server.addresses[METRICS], server.addresses[PROBES]
        assert metrics.port != probes.port
        status, text = await fetch(metrics, "/metrics")
        assert status == 200
        assert "process_cpu_seconds_total" in text
        assert (await fetch(metrics, "/healthz"))[0] == 404
        assert (await fetch(probes, "/metrics"))[0] == 404


async def test_one_address_given_twice_has_it_all() -> None:
    where = f"127.0.0.1:{free_port()}"
    async with health(where, where) as server:
        assert server.addresses[METRICS] == server.addresses[PROBES]
        assert (await fetch(server.addresses[METRICS], "/metrics"))[0] == 200
        assert (await fetch(server.addresses[METRICS], "/readyz"))[0] == 200


async def test_address_zero_listens_to_nobody() -> None:
    async with health("0", "") as server:
        assert server.addresses == {}


async def test_taken_port_is_a_one_line_error_and_nothing_stays_open() -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError) as caught:
            await health(f"127.0.0.1:{first}", f"127.0.0.1:{port}").__aenter__()
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: address already in use; choose another with --health-probe-bind-address"
    )
    async with health(f"127.0.0.1:{first}", "0"):
        pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":8080", BindAddress(None, 8080)),
        ("127.0.0.1:0", BindAddress("127.0.0.1", 0)),
        ("[::1]:9000", BindAddress("::1", 9000)),
        ("0", None),
        ("", None),
    ],
)
def test_addresses_are_written_as_for_the_v1_operator(text: str, address: BindAddress | None) -> None:
    assert BindAddress.parse(text) == address
    if address is not None:
        assert str(address) == text


@pytest.mark.parametrize("text", ["8080", "localhost", ":http", ":70000", ":-1"])
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(InputError, match=r"--metrics-bind-address: .* is not an address"):
        HealthServer(metrics_address=text)


# A loop that is stuck, and one that is only busy


def fetch_blocking(address: BindAddress, path: str) -> tuple[int, str]:
    """Ask while the event loop of this thread stands still."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{address.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def test_a_busy_loop_is_alive_and_a_stuck_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    async with health() as server:
        probes, watchdog = server.addresses[PROBES], server._watchdog
        assert watchdog is not None
        assert fetch_blocking(probes, "/healthz") == (200, "ok")
        for _ in range(LOOP_LIMIT + 1):
            watchdog.tick()
        status, text = fetch_blocking(probes, "/healthz")
        assert status == 503
        assert f"[-]event-loop failed: the event loop has not turned for {LOOP_LIMIT} s" in text
        (line,) = [record for record in caplog.records if record.message == "event loop is stuck"]
        assert "test_a_busy_loop_is_alive_and_a_stuck_one_is_not" in vars(line)["stack"]
        assert await fetch(probes, "/healthz") == (200, "ok"), "it turns again"


async def test_work_without_progress_is_named() -> None:
    activity = WorkInProgress()
    server = health()
    server.watch_work(lambda: [("tfjob-controller team/job", activity)])
    async with server:
        probes, watchdog = server.addresses[PROBES], server._watchdog
        assert watchdog is not None
        for _ in range(IDLE_LIMIT):
            watchdog.tick()
        status, text = await fetch(probes, "/livez")
        assert status == 503
        assert f"[-]workers failed: tfjob-controller team/job: no progress for {IDLE_LIMIT} s" in text
        with track_activity(activity):
            report_progress()
        assert await fetch(probes, "/livez") == (200, "ok")


def test_metrics_for_some_cannot_share_the_address_of_probes_for_all() -> None:
    port = free_port()
    guard = MetricsGuard(
        Client(ScriptedTransport(lambda request: json_response())), tls_of_our_own(("x",)), FakeClock()
    )
    with pytest.raises(InputError, match="--metrics-secure: probes have no token"):
        health(f"127.0.0.1:{port}", f"127.0.0.1:{port}").protect_metrics(guard)
    for address in ("0", "127.0.0.1:0"):
        health(address, address).protect_metrics(guard)

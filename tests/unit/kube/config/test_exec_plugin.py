"""Exec plugins, with real programs: small shell scripts beside the kubeconfig."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.kube.config.connection import load_connection
from gangline.kube.config.credentials import Credentials
from gangline.kube.errors import ConfigError
from gangline.testing.clock import FakeClock, settle
from support.builders.kubeconfigs import SERVER_URL, base64_text, kubeconfig_document, write_kubeconfig

V1 = "client.authentication.k8s.io/v1"
WHERE = "~/.kube/config: users[0].user.exec"


def answer(version: str = V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


class Plugin:
    """A kubeconfig whose user is a script. The script counts its runs in a file."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, FakeClock()
        self.folder = home / ".kube"

    def script(self, body: str) -> None:
        path = write_kubeconfig(self.home, f'#!/bin/sh\necho run >> "{self.folder}/runs"\n{body}\n', ".kube/login")
        path.chmod(0o755)

    def prints(self, text: str) -> None:
        (self.folder / "answer").write_text(text)
        self.script(f'cat "{self.folder}/answer"')

    def credentials(
        self,
        *,
        cluster: Mapping[str, Any] = {},
        interactive: bool = False,
        environ: Mapping[str, str] = {},
        **spec: Any,
    ) -> Credentials:
        entry = {"apiVersion": V1, "command": "./login", "interactiveMode": "IfAvailable", **spec}
        write_kubeconfig(self.home, kubeconfig_document(cluster, {"exec": entry}))
        environ = {"PATH": os.environ["PATH"], **environ}
        return load_connection(environ=environ, home=self.home, interactive=interactive, clock=self.clock).credentials

    @property
    def runs(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text().split()) if path.exists() else 0


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    (tmp_path / ".kube").mkdir()
    return Plugin(tmp_path)


class Pulse:
    """A pipe that the script and all its children keep open: it ends when all of them have ended."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / "pulse")
        self._end = os.open(folder / "pulse", os.O_RDONLY | os.O_NONBLOCK)
        self.script = f'exec 3> "{folder}/pulse"; echo >&3; sleep 100; true'

    async def started(self) -> None:
        await self._sign()
        assert os.read(self._end, 1)

    async def ended(self) -> None:
        """Wait until no process has the pipe open."""
        while True:
            try:
                if not os.read(self._end, 1):
                    return
            except BlockingIOError:
                await self._sign()

    async def _sign(self) -> None:
        loop, seen = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._end, seen.set)
        try:
            async with asyncio.timeout(60):
                await seen.wait()
        finally:
            loop.remove_reader(self._end)

    def close(self) -> None:
        os.close(self._end)


@pytest.fixture
def pulse(plugin: Plugin) -> Iterator[Pulse]:
    pulse = Pulse(plugin.folder)
    plugin.script(f"echo waiting >&2; {pulse.script}")
    yield pulse
    pulse.close()


async def failure(credentials: Credentials) -> str:
    with pytest.raises(ConfigError) as caught:
        await credentials.headers()
    return str(caught.value)


@pytest.mark.parametrize("version", [V1, "client.authentication.k8s.io/v1beta1"])
async def test_token_is_sent_and_kept(plugin: Plugin, version: str) -> None:
    plugin.prints(answer(version, token="abc"))
    credentials = plugin.credentials(apiVersion=version)
    assert plugin.runs == 0  # loading does not start the program
    assert await credentials.headers() == {"Authorization": "Bearer abc"}
    assert await credentials.headers() == {"Authorization": "Bearer abc"}
    assert await credentials.client_certificate() is None
    assert plugin.runs == 1


async def test_plugin_runs_again_shortly_before_its_answer_expires(plugin: Plugin) -> None:
    plugin.prints(answer(token="abc", expirationTimestamp="2026-01-01T01:00:00Z"))
    credentials = plugin.credentials()
    await credentials.headers()
    await plugin.clock.advance(timedelta(minutes=58))
    await credentials.headers()
    assert plugin.runs == 1
    plugin.prints(answer(token="new", expirationTimestamp="2026-01-01T02:00:00+00:00"))
    await plugin.clock.advance(timedelta(minutes=1))
    assert await credentials.headers() == {"Authorization": "Bearer new"}
    assert plugin.runs == 2


async def test_short_life_is_used_nearly_to_the_end(plugin: Plugin) -> None:
    plugin.prints(answer(token="abc", expirationTimestamp="2026-01-01T00:00:20Z"))
    credentials = plugin.credentials()
    await credentials.headers()
    await plugin.clock.advance(timedelta(seconds=17))
    await credentials.headers()
    assert plugin.runs == 1


async def test_rejected_answer_is_fetched_again_but_a_late_rejection_is_not(plugin: Plugin) -> None:
    plugin.prints(answer(token="one"))
    credentials = plugin.credentials()
    old = await credentials.headers()
    plugin.prints(answer(token="two"))
    assert credentials.invalidate(old)
    assert await credentials.headers() == {"Authorization": "Bearer two"}
    assert credentials.invalidate(old)
    await credentials.headers()
    assert plugin.runs == 2


async def test_concurrent_requests_run_the_plugin_once(plugin: Plugin) -> None:
    plugin.prints(answer(token="abc", expirationTimestamp="2020-01-01T00:00:00Z"))
    credentials = plugin.credentials()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(credentials.headers()) for _ in range(20)]
    assert {task.result()["Authorization"] for task in tasks} == {"Bearer abc"}
    assert plugin.runs == 1


async def test_concurrent_requests_share_one_failure(plugin: Plugin) -> None:
    plugin.script("exit 3")
    credentials = plugin.credentials()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(failure(credentials)) for _ in range(20)]
    assert len({task.result() for task in tasks}) == 1
    assert plugin.runs == 1
    plugin.prints(answer(token="abc"))
    assert await credentials.headers() == {"Authorization": "Bearer abc"}


async def test_cancelled_request_ends_the_plugin_and_the_next_one_starts_it_again(plugin: Plugin, pulse: Pulse) -> None:
    credentials = plugin.credentials()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(credentials.headers())
        await pulse.started()
        (plugin.folder / "login").unlink()
        plugin.prints(answer(token="abc"))
        second = group.create_task(credentials.headers())
        await settle()
        first.cancel()
    assert first.cancelled()
    assert second.result() == {"Authorization": "Bearer abc"}
    await pulse.ended()


@pytest.mark.parametrize("rounds", range(1, 8))
async def test_request_cancelled_while_the_plugin_starts_leaves_nothing_behind(
    plugin: Plugin, pulse: Pulse, rounds: int
) -> None:
    request = asyncio.ensure_future(plugin.credentials().headers())
    await settle(rounds)
    request.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([request])
    assert request.cancelled()
    await pulse.ended()


async def test_client_certificate_is_handed_out(plugin: Plugin) -> None:
    plugin.prints(answer(clientCertificateData="CERT", clientKeyData="KEY"))
    credentials = plugin.credentials()
    found = await credentials.client_certificate()
    assert found is not None
    assert (found.certificate.read(), found.key.read()) == (b"CERT", b"KEY")
    assert await credentials.client_certificate() is found
    assert await credentials.headers() == {}


async def test_plugin_gets_arguments_environment_and_cluster(plugin: Plugin) -> None:
    script = (
        'echo "$1|$2" > "{0}/args"; echo "$MODE|$OUTER" > "{0}/env"; printf %s "$KUBERNETES_EXEC_INFO" > "{0}/info"'
    )
    (plugin.folder / "answer").write_text(answer(token="abc"))
    plugin.script(script.format(plugin.folder) + f'; cat "{plugin.folder}/answer"')
    credentials = plugin.credentials(
        cluster={
            "certificate-authority-data": base64_text(b"pem"),
            "tls-server-name": "api",
            "proxy-url": "http://proxy:1",
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
        },
        environ={"OUTER": "outer", "MODE": "hidden"},
        args=["get token", "-v"],
        env=[{"name": "MODE", "value": "inner"}],
        provideClusterInfo=True,
    )
    await credentials.headers()
    assert (plugin.folder / "args").read_text() == "get token|-v\n"
    assert (plugin.folder / "env").read_text() == "inner|outer\n"
    assert json.loads((plugin.folder / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "cluster": {
                "server": SERVER_URL,
                "tls-server-name": "api",
                "certificate-authority-data": base64_text(b"pem"),
                "proxy-url": "http://proxy:1",
                "config": {"audience": "x"},
            },
            "interactive": False,
        },
    }


@pytest.mark.parametrize(
    ("mode", "terminal", "expected"),
    [("IfAvailable", True, True), ("Never", True, False), ("Always", True, True)],
)
async def test_plugin_is_told_whether_it_may_ask(plugin: Plugin, mode: str, terminal: bool, expected: bool) -> None:
    (plugin.folder / "answer").write_text(answer(token="abc"))
    info = plugin.folder / "info"
    plugin.script(f'printf %s "$KUBERNETES_EXEC_INFO" > "{info}"; cat "{plugin.folder}/answer"')
    await plugin.credentials(interactiveMode=mode, interactive=terminal).headers()
    assert json.loads(info.read_text())["spec"] == {"interactive": expected}


async def test_bare_command_is_found_on_path_not_beside_the_kubeconfig(plugin: Plugin, tmp_path: Path) -> None:
    plugin.prints(answer(token="beside"))
    folder = tmp_path / "bin"
    folder.mkdir()
    (plugin.folder / "login").rename(folder / "login")
    credentials = plugin.credentials(command="login", environ={"PATH": f"{folder}:{os.environ['PATH']}"})
    assert await credentials.headers() == {"Authorization": "Bearer beside"}


FAILED = f'{WHERE}: plugin "./login"'


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo trying >&2; echo 'no network' >&2; exit 7", "failed with exit code 7: no network"),
        ("echo out; exit 1", "failed with exit code 1, and said nothing on stderr"),
        ("kill -9 $$", "failed with exit code -9, and said nothing on stderr"),
        ("echo garbage", "printed something that is not an ExecCredential in JSON"),
        ("printf '\\377'", "printed something that is not an ExecCredential in JSON"),
        ("true", "printed something that is not an ExecCredential in JSON"),
    ],
)
async def test_plugin_that_fails(plugin: Plugin, script: str, expected: str) -> None:
    plugin.script(script)
    assert await failure(plugin.credentials()) == f"{FAILED} {expected}"


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            answer("client.authentication.k8s.io/v1beta1", token="abc"),
            (
                "answered with client.authentication.k8s.io/v1beta1, not an ExecCredential of "
                "client.authentication.k8s.io/v1; set exec.apiVersion to what it speaks"
            ),
        ),
        (
            "{}",
            (
                "answered with something else, not an ExecCredential of "
                "client.authentication.k8s.io/v1; set exec.apiVersion to what it speaks"
            ),
        ),
        (answer(), "answered with neither a token nor a client certificate"),
        (
            answer(token="abc", clientKeyData="KEY"),
            "answered with only one of clientCertificateData and clientKeyData",
        ),
        (answer(token=5), "printed something that is not an ExecCredential in JSON"),
        (
            answer(token="abc", expirationTimestamp="2026-01-01T00:00:00"),
            "printed something that is not an ExecCredential in JSON",
        ),
    ],
)
async def test_plugin_that_answers_wrongly(plugin: Plugin, printed: str, expected: str) -> None:
    plugin.prints(printed)
    assert await failure(plugin.credentials()) == f"{FAILED} {expected}"


async def test_plugin_that_hangs_is_ended_with_its_children(plugin: Plugin, pulse: Pulse) -> None:
    credentials = plugin.credentials()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(failure(credentials))
        await pulse.started()
        await plugin.clock.advance(timedelta(seconds=60))
    assert task.result() == f"{FAILED} did not finish in 60 s: waiting"
    await pulse.ended()
    assert plugin.clock.waiting == 0


async def test_missing_command_shows_the_hint_on_one_line(plugin: Plugin) -> None:
    credentials = plugin.credentials(command="no-such-login", installHint="Get it from\n  example.com")
    assert await failure(credentials) == (f'{WHERE}.command: "no-such-login" is not installed; Get it from example.com')
    assert await failure(plugin.credentials(command="./gone")) == (
        f'{WHERE}.command: "./gone" is not installed; install it or correct the command'
    )


async def test_command_that_may_not_be_run(plugin: Plugin) -> None:
    plugin.script("true")
    (plugin.folder / "login").chmod(0o644)
    assert await failure(plugin.credentials()) == f"{FAILED} cannot be started: Permission denied"


async def test_plugin_that_must_ask_needs_a_terminal(plugin: Plugin) -> None:
    plugin.script("true")
    assert await failure(plugin.credentials(interactiveMode="Always")) == (
        f"{WHERE}.interactiveMode: is Always, but standard input is not a terminal; run this in one"
    )
    assert plugin.runs == 0


async def test_plugin_that_could_ask_has_printed_its_own_messages(
    plugin: Plugin, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin.script("echo 'open the browser' >&2; exit 2")
    found = await failure(plugin.credentials(interactive=True))
    assert found == f"{FAILED} failed with exit code 2; its own messages are above"
    assert capfd.readouterr().err == "open the browser\n"

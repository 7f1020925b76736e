"""Go clients with the kubeconfigs that planes hand out: client-go sends its token only by TLS, and verifies the server."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from gangline.api.core import ConfigMap, Secret
from gangline.api.meta import Key
from gangline.kube.errors import NotFound
from gangline.sdk.local_plane import PlaneProcess
from gangline.testing import operator_cluster
from relay_operator import Relay
from support.cluster.clients import find_go_client, find_kubectl
from support.waiting import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "custom-operator"
OPENSSL_LINES = re.findall(r"^\$ (openssl .*)$", (ROOT / "docs" / "access.md").read_text(), re.MULTILINE)


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """An environment in which nothing of the user's own configuration is read or written."""
    return {**os.environ, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "state")}


async def run(*command: str | Path, env: Mapping[str, str]) -> str:
    """Run a command to its end, beside the server in this process."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def kubectl_user(kubeconfig: Path, env: Mapping[str, str], *flags: str | Path) -> dict[str, object]:
    """Who kubectl is for the server."""
    text = await run(find_kubectl(), "auth", "whoami", "-o", "json", "--kubeconfig", kubeconfig, *flags, env=env)
    found: dict[str, object] = json.loads(text)["status"]["userInfo"]
    return found


def run_kubeconfigs(folder: Path) -> list[Path]:
    return list(folder.glob("gangline-*/run.kubeconfig"))


@asynccontextmanager
async def controller(kubeconfig: Path, env: Mapping[str, str], log: Path) -> AsyncIterator[None]:
    """The controller in Go, until the block ends."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            str(find_go_client("gocontroller")),
            "default",
            env={**env, "KUBECONFIG": str(kubeconfig)},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
    try:
        yield
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0, f"see {log}"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_go_controller_on_a_test_cluster_with_an_operator(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    async with operator_cluster(Relay(), folder=EXAMPLE) as cluster:
        assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
        user = await kubectl_user(cluster.kubeconfig, environment)
        assert (user["username"], user["groups"]) == ("admin", ["system:masters", "system:authenticated"])
        async with controller(cluster.kubeconfig, environment, tmp_path / "log"):
            labels = {"clients.example/mirrored": "true"}
            body = {"metadata": {"name": "mirrored", "labels": labels}, "data": {"a": "b"}}
            await cluster.client.create(ConfigMap, body, namespace="default")

            async def is_mirrored() -> bool:
                try:
                    return bool(await cluster.client.get(Secret, Key("default", "mirrored")))
                except NotFound:
                    return False

            await wait_until(is_mirrored)


async def test_kubectl_as_a_user_with_a_certificate_that_was_made_as_the_docs_say(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    async with operator_cluster(Relay(), folder=EXAMPLE) as cluster:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        folder = Path(config["clusters"][0]["cluster"]["certificate-authority"]).parent
        for line in OPENSSL_LINES:
            await run("sh", "-c", f"cd '{folder}' && {line}", env=environment)
        config["users"][0]["user"] = {
            "client-certificate": str(folder / "jane.crt"),
            "client-key": str(folder / "jane.key"),
        }
        kubeconfig = tmp_path / "jane.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        user = await kubectl_user(kubeconfig, environment)
        assert (user["username"], user["groups"]) == ("jane", ["dev", "system:authenticated"])


async def test_kubectl_in_a_run(environment: Mapping[str, str], tmp_path: Path) -> None:
    program = f"import subprocess; subprocess.run(['{find_kubectl()}', 'auth', 'whoami'], check=True)"
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "gangline", "run", "--nproc", "1", "--", "python", str(tmp_path / "program.py")]
    output = await run(*command, env=environment)
    assert "system:authenticated" in output


async def test_kubectl_of_another_terminal_during_a_run(environment: Mapping[str, str], tmp_path: Path) -> None:
    environment = {**environment, "TMPDIR": str(tmp_path)}
    (tmp_path / "program.py").write_text("import sys, time; print('up', flush=True); time.sleep(120)\n")
    command = [sys.executable, "-m", "gangline", "run", "--nproc", "1", "--", "python", str(tmp_path / "program.py")]
    running = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await wait_until(lambda: run_kubeconfigs(tmp_path))
        assert (await kubectl_user(run_kubeconfigs(tmp_path)[0], environment))["username"] == "admin"
    finally:
        running.terminate()
        await running.wait()


async def test_kubectl_on_the_plane_of_a_program(
    environment: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGLINE_HOME", environment["GANGLINE_HOME"])
    plane = await asyncio.to_thread(PlaneProcess.start, tmp_path)
    try:
        assert plane.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert (await kubectl_user(plane.kubeconfig, environment))["username"] == "admin"
    finally:
        await asyncio.to_thread(plane.close)

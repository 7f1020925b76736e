"""Every verb of the real kubectl, with an example of it that works on a local cluster.

The list is that of `kubectl --help`: a verb that a new version adds fails the first test until it has an example.
"""

import asyncio
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gangline.api.meta import Key
from gangline.local.cluster import LocalCluster
from support.cluster.streams import (
    WAIT,
    Kubectl,
    all_of,
    create_pod,
    find_kubectl,
    http_server,
    sh,
    sleeper,
    stream_cluster,
    wait_for_phase,
)

pytestmark = pytest.mark.real

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: web:1}]}
"""
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {colour: blue}\n"


class Shell:
    """kubectl on a cluster, in a folder."""

    def __init__(self, kubectl: Kubectl, cluster: LocalCluster, folder: Path) -> None:
        self.kubectl, self.cluster, self.client, self.folder = kubectl, cluster, cluster.client, folder

    async def __call__(self, *words: str, stdin: str = "", fails: int = 0) -> str:
        """What kubectl prints; it must end with this code."""
        code, out, err = await self.kubectl(*words, stdin=stdin.encode() if stdin else None)
        assert code == fails, f"kubectl {' '.join(words)}: {code}\n{out}{err}"
        return out + err if fails else out

    async def apply(self, text: str) -> None:
        await self("apply", "-f", "-", stdin=text)

    @asynccontextmanager
    async def started(self, *words: str, terminal: int | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await self.kubectl.started(*words, terminal=terminal)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
async def shell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Shell]:
    program = find_kubectl()
    async with stream_cluster(tmp_path) as cluster:
        yield Shell(Kubectl(program, cluster, tmp_path), cluster, tmp_path)
    assert not [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR]


Example = Callable[[Shell], Awaitable[None]]
EXAMPLES: dict[str, Example] = {}


def example(function: Example) -> Example:
    """An example of the verb that the function has as name."""
    EXAMPLES[function.__name__.strip("_").replace("_", "-")] = function
    return function


# Basic


@example
async def create(shell: Shell) -> None:
    await shell("create", "configmap", "settings", "--from-literal=colour=blue")
    assert await shell("get", "configmap", "settings", "-o", "jsonpath={.data.colour}") == "blue"
    await shell("create", "namespace", "other")
    await shell("create", "deployment", "web", "--image=web:1")
    token = await shell("create", "token", "default")
    assert token.count(".") == 2


@example
async def expose(shell: Shell) -> None:
    await create_pod(shell.client, "web", http_server(), labels={"app": "web"})
    await shell("expose", "pod", "web", "--port=80", "--target-port=8080")
    assert await shell("get", "service", "web", "-o", "jsonpath={.spec.selector.app}") == "web"


@example
async def run(shell: Shell) -> None:
    await shell("run", "hello", "--image=none", "--restart=Never", "--command", "--", "echo", "hello")
    await wait_for_phase(shell.client, Key("default", "hello"), "Succeeded")
    assert await shell("logs", "hello") == "hello\n"
    words = ("run", "-i", "--rm", "--quiet", "once", "--image=none", "--restart=Never", "--command", "--", "cat")
    assert await shell(*words, stdin="from here\n") == "from here\n"
    assert "not found" in await shell("get", "pod", "once", fails=1)


@example
async def set_(shell: Shell) -> None:
    await shell.apply(DEPLOYMENT)
    await shell("set", "image", "deployment/web", "main=web:2")
    await shell("set", "env", "deployment/web", "COLOUR=blue")
    await shell("set", "resources", "deployment/web", "--limits=cpu=1")
    found = await shell("get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
    assert found == "web:2"


@example
async def explain(shell: Shell) -> None:
    assert "ephemeralContainers" in await shell("explain", "pod.spec")


@example
async def get(shell: Shell) -> None:
    assert "local" in await shell("get", "nodes", "-o", "wide")
    assert await shell("get", "--raw", "/readyz") == "ok"
    assert "kubernetes" in await shell("get", "all", "-A")


@example
async def edit(shell: Shell) -> None:
    await shell.apply(CONFIG)
    shell.kubectl.env["KUBE_EDITOR"] = "sed -i s/blue/green/"
    await shell("edit", "configmap", "settings")
    assert await shell("get", "configmap", "settings", "-o", "jsonpath={.data.colour}") == "green"


@example
async def delete(shell: Shell) -> None:
    await sleeper(shell.client)
    assert 'pod "p" deleted' in await shell("delete", "pod", "p")
    assert await shell("get", "pods", "-o", "name") == ""


# Deployment


@example
async def rollout(shell: Shell) -> None:
    await shell.apply(DEPLOYMENT)
    assert "restarted" in await shell("rollout", "restart", "deployment/web")
    assert "paused" in await shell("rollout", "pause", "deployment/web")
    assert "resumed" in await shell("rollout", "resume", "deployment/web")
    assert "deployment.apps/web" in await shell("rollout", "history", "deployment/web")


@example
async def scale(shell: Shell) -> None:
    await shell.apply(DEPLOYMENT)
    await shell("scale", "deployment/web", "--replicas=3")
    assert await shell("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "3"


@example
async def autoscale(shell: Shell) -> None:
    await shell.apply(DEPLOYMENT)
    await shell("autoscale", "deployment/web", "--min=1", "--max=3", "--cpu=80%")
    assert await shell("get", "hpa", "web", "-o", "jsonpath={.spec.maxReplicas}") == "3"


# The cluster


@example
async def certificate(shell: Shell) -> None:
    key, request = shell.folder / "user.key", shell.folder / "user.csr"
    words = (
        "openssl",
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=jane",
        "-keyout",
        key,
        "-out",
        request,
    )
    process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    import base64

    encoded = base64.b64encode(request.read_bytes()).decode()
    await shell.apply(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {name: jane}\n"
        f"spec: {{request: {encoded}, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth]}}\n"
    )
    assert "approved" in await shell("certificate", "approve", "jane")
    await shell("wait", "csr/jane", "--for=jsonpath={.status.certificate}", "--timeout=30s")


@example
async def cluster_info(shell: Shell) -> None:
    assert "Kubernetes control plane" in await shell("cluster-info")


@example
async def top(shell: Shell) -> None:
    await sleeper(shell.client)
    assert re.search(r"local +\d+m +\d+% +\d+Mi", await shell("top", "node"))
    async with asyncio.timeout(WAIT):
        while not re.search(r"^p +\d+m", (await shell.kubectl("top", "pod", "--no-headers"))[1]):
            pass
    assert re.search(r"^p +main +\d+m +\d+Mi", await shell("top", "pod", "--containers", "--no-headers"))


@example
async def cordon(shell: Shell) -> None:
    await shell("wait", "node/local", "--for=condition=Ready")
    assert "cordoned" in await shell("cordon", "local")
    assert "SchedulingDisabled" in await shell("get", "node", "local")


@example
async def uncordon(shell: Shell) -> None:
    await shell("wait", "node/local", "--for=condition=Ready")
    await shell("cordon", "local")
    assert "uncordoned" in await shell("uncordon", "local")


@example
async def drain(shell: Shell) -> None:
    await sleeper(shell.client)
    assert "node/local drained" in await shell("drain", "local", "--force")
    assert await shell("get", "pods", "-o", "name") == ""


@example
async def taint(shell: Shell) -> None:
    await shell("wait", "node/local", "--for=condition=Ready")
    await shell("taint", "node", "local", "team=a:NoSchedule")
    assert "team=a:NoSchedule" in await shell("describe", "node", "local")


# Looking into pods


@example
async def describe(shell: Shell) -> None:
    await sleeper(shell.client)
    text = await shell("describe", "pod", "p")
    assert "Started container main" in text
    assert "Non-terminated Pods:          (1 in total)" in await shell("describe", "node", "local")


@example
async def logs(shell: Shell) -> None:
    key = await create_pod(shell.client, "p", sh("echo one; echo two"))
    await wait_for_phase(shell.client, key, "Succeeded")
    assert await shell("logs", "-f", "p", "--tail=1") == "two\n"


@example
async def attach(shell: Shell) -> None:
    key = await create_pod(shell.client, "p", sh("while read x; do echo got $x; done", stdin=True))
    await wait_for_phase(shell.client, key, "Running")
    assert "got this\n" in await shell("attach", "-i", "-q", "p", stdin="this\n")


@example
async def exec_(shell: Shell) -> None:
    await sleeper(shell.client)
    for websockets in ("true", "false"):
        shell.kubectl.env["KUBECTL_REMOTE_COMMAND_WEBSOCKETS"] = websockets
        assert await shell("exec", "-i", "p", "--", "cat", stdin="in and out") == "in and out"
        assert "exit code 3" in await shell("exec", "p", "--", "sh", "-c", "exit 3", fails=3)
        ours, theirs = os.openpty()
        async with shell.started("exec", "-it", "p", "--", "sh", "-c", "test -t 1 && echo terminal", terminal=theirs):
            os.close(theirs)
            async with asyncio.timeout(WAIT):
                assert b"terminal\r\n" in await asyncio.to_thread(all_of, ours)


@example
async def port_forward(shell: Shell) -> None:
    key = await create_pod(shell.client, "web", http_server(port=0), labels={"app": "web"})
    await wait_for_phase(shell.client, key, "Running")
    port = await first_line(shell, "web")
    await shell("expose", "pod", "web", "--port=80", f"--target-port={port}")
    for websockets in ("true", "false"):
        shell.kubectl.env["KUBECTL_PORT_FORWARD_WEBSOCKETS"] = websockets
        for target, number in (("pod/web", port), ("service/web", "80")):
            async with shell.started("port-forward", target, f":{number}") as process:
                assert process.stdout is not None
                async with asyncio.timeout(WAIT):
                    line = (await process.stdout.readline()).decode()
                local = line.split(":")[1].split()[0]
                # One after the other, and several at once.
                async with asyncio.timeout(WAIT), aiohttp.ClientSession(f"http://127.0.0.1:{local}") as session:
                    texts = [
                        await fetch(session, "/first"),
                        *await asyncio.gather(*(fetch(session, f"/{n}") for n in range(10))),
                    ]
                assert all(text.startswith("GET /") for text in texts)


async def first_line(shell: Shell, pod: str) -> str:
    async with shell.started("logs", "-f", pod) as process:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT):
            return (await process.stdout.readline()).decode().strip()


async def fetch(session: aiohttp.ClientSession, path: str) -> str:
    async with session.get(path) as response:
        return await response.text()


@example
async def proxy(shell: Shell) -> None:
    key = await create_pod(shell.client, "web", http_server(port=0))
    await wait_for_phase(shell.client, key, "Running")
    port = await first_line(shell, "web")
    async with shell.started("proxy", "--port=0") as process:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT):
            address = (await process.stdout.readline()).decode().split()[-1]
        async with aiohttp.ClientSession(f"http://{address}") as session:
            assert await fetch(session, "/readyz") == "ok"
            text = await fetch(session, f"/api/v1/namespaces/default/pods/web:{port}/proxy/x")
            assert text.startswith("GET /x ")


@example
async def cp(shell: Shell) -> None:
    await sleeper(shell.client)
    here, there, back = (shell.folder / name for name in ("here.txt", "there.txt", "back.txt"))
    here.write_text("copied\n" * 10_000)
    await shell("cp", str(here), f"p:{there}")
    assert there.read_text() == here.read_text()
    await shell("cp", f"p:{there}", str(back))
    assert back.read_text() == here.read_text()


@example
async def auth(shell: Shell) -> None:
    assert await shell("auth", "can-i", "create", "pods") == "yes\n"
    assert "admin" in await shell("auth", "whoami")


@example
async def debug(shell: Shell) -> None:
    key = await sleeper(shell.client)
    words = ("debug", "-i", "-q", str(key.name), "--image=busybox", "--container=looker", "--target=main")
    assert "looked\n" in await shell(*words, "--", "sh", "-c", "read x; echo $x", stdin="looked\n")
    status = "jsonpath={.status.ephemeralContainerStatuses[0].state.terminated.exitCode}"
    assert await shell("wait", "pod/p", f"--for={status}=0") == "pod/p condition met\n"
    assert await shell("get", "pod", "p", "-o", "jsonpath={.status.phase}") == "Running"
    # A copy with another command, and a pod on the node.
    await shell("debug", "p", "--copy-to=copy", "--container=main", "--", "echo", "copied")
    await wait_for_phase(shell.client, Key("default", "copy"), "Running")
    said = await shell("debug", "node/local", "--image=busybox", "--profile=general", "--", "echo", "node")
    assert "Creating debugging pod node-debugger-local-" in said


@example
async def events(shell: Shell) -> None:
    await sleeper(shell.client)
    async with asyncio.timeout(WAIT):
        while "Started container main" not in await shell("events", "--for=pod/p"):
            pass


# Advanced


@example
async def diff(shell: Shell) -> None:
    await shell.apply(CONFIG)
    assert "+  colour: green" in await shell("diff", "-f", "-", stdin=CONFIG.replace("blue", "green"), fails=1)


@example
async def apply(shell: Shell) -> None:
    await shell.apply(CONFIG)
    assert "unchanged" in await shell("apply", "-f", "-", stdin=CONFIG)
    assert "serverside-applied" in await shell("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=CONFIG)


@example
async def patch(shell: Shell) -> None:
    resources = {"requests": {"memory": "100Mi"}, "limits": {"memory": "100Mi"}}
    key = await create_pod(shell.client, "p", sh("exec sleep 1000", resources=resources))
    await wait_for_phase(shell.client, key, "Running")
    body = '{"spec":{"containers":[{"name":"main","resources":{"requests":{"memory":"200Mi"},"limits":{"memory":"300Mi"}}}]}}'
    await shell("patch", "pod", "p", "--subresource=resize", "-p", body)
    actual = "jsonpath={.status.containerStatuses[0].resources.limits.memory}"
    assert await shell("wait", "pod/p", f"--for={actual}=300Mi", "--timeout=30s") == "pod/p condition met\n"


@example
async def replace(shell: Shell) -> None:
    await shell.apply(CONFIG)
    await shell("replace", "-f", "-", stdin=CONFIG.replace("blue", "green"))
    assert await shell("get", "configmap", "settings", "-o", "jsonpath={.data.colour}") == "green"


@example
async def wait(shell: Shell) -> None:
    await create_pod(shell.client, "p", sh("exec sleep 1000"))
    assert await shell("wait", "pod/p", "--for=condition=Ready", "--timeout=30s") == "pod/p condition met\n"


@example
async def kustomize(shell: Shell) -> None:
    (shell.folder / "kustomization.yaml").write_text("resources: [settings.yaml]\nnamePrefix: my-\n")
    (shell.folder / "settings.yaml").write_text(CONFIG)
    assert "name: my-settings" in await shell("kustomize", str(shell.folder))
    await shell("apply", "-k", str(shell.folder))
    assert await shell("get", "configmap", "my-settings", "-o", "jsonpath={.data.colour}") == "blue"


# Settings, and the rest


@example
async def label(shell: Shell) -> None:
    await shell.apply(CONFIG)
    await shell("label", "configmap", "settings", "team=a")
    assert "settings" in await shell("get", "configmap", "-l", "team=a", "-o", "name")


@example
async def annotate(shell: Shell) -> None:
    await shell.apply(CONFIG)
    await shell("annotate", "configmap", "settings", "note=hello")
    assert await shell("get", "configmap", "settings", "-o", "jsonpath={.metadata.annotations.note}") == "hello"


@example
async def completion(shell: Shell) -> None:
    assert "__kubectl" in await shell("completion", "bash")
    await shell.apply(CONFIG)
    assert "settings" in await shell("__complete", "get", "configmap", "se")


@example
async def api_resources(shell: Shell) -> None:
    assert re.search(r"^deployments +deploy +apps/v1 +true +Deployment$", await shell("api-resources"), re.MULTILINE)


@example
async def api_versions(shell: Shell) -> None:
    assert {"v1", "apps/v1", "metrics.k8s.io/v1beta1"} <= set((await shell("api-versions")).split())


@example
async def config(shell: Shell) -> None:
    assert "apiVersion: v1" in await shell("config", "view")


@example
async def plugin(shell: Shell) -> None:
    tool = shell.folder / "kubectl-hello"
    tool.write_text(f"#!{sys.executable}\nprint('hello')\n")
    tool.chmod(0o755)
    shell.kubectl.env["PATH"] = f"{shell.folder}:{shell.kubectl.env['PATH']}"
    assert str(tool) in await shell("plugin", "list")


@example
async def version(shell: Shell) -> None:
    assert "Server Version: v1.34" in await shell("version")


async def test_every_verb_has_an_example() -> None:
    # Without plugins: those have verbs of their own.
    env = {"PATH": os.devnull, "HOME": os.devnull}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(find_kubectl(), "--help", stdout=pipe, env=env)
    text = (await process.communicate())[0].decode()
    verbs = set(re.findall(r"^  ([a-z][a-z-]*)  +\S", text, re.MULTILINE))
    assert len(verbs) > 40
    assert verbs == EXAMPLES.keys()


@pytest.mark.parametrize("verb", sorted(EXAMPLES))
async def test_verb(shell: Shell, verb: str) -> None:
    await EXAMPLES[verb](shell)

"""The launch agents that `mpirun` gets: on the embedded plane a script of the node, in a cluster the program in agent/.

Real pods, real commands, real MPI where there is one.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.frameworks import mpi_objects
from gangline.kube.client import Client
from gangline.kube.pods import PodSubresources
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.local.plane import PlaneSettings
from gangline.node.runtime.mpi import agent_script
from gangline.operator.settings import LOCAL_MPI_AGENT
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Informer
from support.builders.objects import pod_body
from support.cluster.agent import built_agent
from support.waiting import wait_until

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# What mpirun does first, and all that matters here: the agent, for every host, with a command line.
LAUNCHER = """while read host slots; do
  $OMPI_MCA_plm_rsh_agent -x $host echo '"rank on $HOSTNAME"' ';' exit 0 </dev/null || exit 7
done < "$OMPI_MCA_orte_default_hostfile"
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    plane = PlaneSettings(certificates=tmp_path / "certificates")
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "state", plane=plane)
    async with local_cluster(settings, CORE_SCHEME, SystemClock()) as running:
        yield running


def pod(name: str, *command: str, volumes: tuple[JSON, ...] = (), **container: object) -> JSON:
    main = {"name": "main", "image": "none", "command": list(command), **container}
    return pod_body(name, "default", restartPolicy="Never", containers=[main], volumes=list(volumes))


async def over(client: Client, name: str) -> str:
    """How a pod ended, and what it printed, in order of the alphabet."""
    where = Selector("default", fields=f"metadata.name={name}")
    pods = Informer(client, Pod, where, clock=SystemClock())

    def ended(cache: Cache[Pod]) -> bool:
        return any(pod.status.phase in ("Succeeded", "Failed") for pod in cache)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        following = group.create_task(pods.run())
        await pods.wait_until(ended)
        following.cancel()
    (found,) = pods.cache
    lines = [line.decode() async for line in PodSubresources(client).logs(found.metadata.key)]
    return "\n".join([found.status.phase, *sorted(lines)])


class Agent:
    """The agent of the node, as a pod would start it."""

    name = "agent"
    # As the operator writes it into kubexec.sh.
    script = LOCAL_MPI_AGENT

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.command: tuple[str, ...] = (str(folder / "agent"),)
        self.access = cluster.access
        Path(self.command[0]).write_text(agent_script())
        Path(self.command[0]).chmod(0o700)
        self._state = folder / "state"

    async def kubeconfig(self) -> Path:
        """The kubeconfig of some pod."""
        await wait_until(lambda: list(self._state.glob("pods/*/_main.kubeconfig")))
        return next(self._state.glob("pods/*/_main.kubeconfig"))

    async def env(self) -> dict[str, str]:
        return {"GANGLINE_KUBECONFIG": str(await self.kubeconfig())}

    def pod_env(self) -> dict[str, str]:
        """What a cluster gives to a pod, and the node does not."""
        return {}

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *self.command, *words, env=await self.env(), stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def run(self, *words: str, stdin: bytes = b"") -> tuple[int | None, bytes, bytes]:
        process = await self.start(*words)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        return process.returncode, out, err


class DeliveredAgent(Agent):
    """The agent that launchers in a cluster get, with the service account of a pod."""

    name = "gangline-agent"

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        super().__init__(folder, cluster)
        self.command = (str(built_agent()), "exec")
        self.script = " ".join(self.command)

    def pod_env(self) -> dict[str, str]:
        # The node translates the path of the mount.
        return {"GANGLINE_SERVICE_ACCOUNT": SERVICE_ACCOUNT, **self.access.in_cluster_env()}

    async def env(self) -> dict[str, str]:
        user = json.loads((await self.kubeconfig()).read_text())["users"][0]["user"]
        folder = Path(user["tokenFile"]).parent
        return {"GANGLINE_SERVICE_ACCOUNT": str(folder), **self.access.in_cluster_env()}


@pytest.fixture(params=[Agent, DeliveredAgent])
def agent(request: pytest.FixtureRequest, tmp_path: Path, cluster: LocalCluster) -> Agent:
    made = request.param(tmp_path, cluster)
    assert isinstance(made, Agent)
    return made


async def test_output_errors_and_exit_code_come_through(cluster: LocalCluster, agent: Agent) -> None:
    env = [{"name": "COLOUR", "value": "red"}]
    await cluster.client.create(Pod, pod("worker", "sleep", "1000", env=env))
    done = await agent.run("worker", "echo", "$COLOUR $HOSTNAME;", "echo bad >&2; exit 5")
    assert done == (5, b"red worker\n", b"bad\n")


async def test_options_before_the_pod_are_skipped_and_a_container_can_be_named(
    cluster: LocalCluster, agent: Agent
) -> None:
    body = pod("worker", "sleep", "1000")
    second = {
        "name": "other",
        "image": "none",
        "command": ["sleep", "1000"],
        "env": [{"name": "A", "value": "b"}],
    }
    body["spec"]["containers"].append(second)
    await cluster.client.create(Pod, body)
    assert (await agent.run("-x", "-n", "worker", "echo", "$A."))[1] == b".\n"
    assert (await agent.run("-x", "--container", "other", "worker", "echo", "$A."))[1] == b"b.\n"


async def test_much_input_comes_back_whole(cluster: LocalCluster, agent: Agent) -> None:
    await cluster.client.create(Pod, pod("worker", "sleep", "1000"))
    much = os.urandom(5_000_000)
    code, out, err = await agent.run("worker", "cat", stdin=much)
    assert (code, out == much, err) == (0, True, b"")


async def test_a_pod_that_has_yet_to_start_is_waited_for(cluster: LocalCluster, agent: Agent) -> None:
    await cluster.client.create(Pod, pod("somebody", "sleep", "1000"))
    process = await agent.start("worker", "echo", "there")
    await cluster.client.create(Pod, pod("worker", "sleep", "1000"))
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (0, b"there\n")


async def test_a_pod_that_is_over_is_one_line(cluster: LocalCluster, agent: Agent) -> None:
    await cluster.client.create(Pod, pod("worker", "true"))
    await over(cluster.client, "worker")
    line = f"{agent.name}: pod worker is over (Succeeded)\n"
    assert await agent.run("worker", "true") == (1, b"", line.encode())


async def test_without_a_command_usage_is_printed(cluster: LocalCluster, agent: Agent) -> None:
    await cluster.client.create(Pod, pod("worker", "sleep", "1000"))
    code, _, err = await agent.run("worker")
    assert code == 1
    assert err.startswith(f"{agent.name}: usage:".encode())
    assert b"[--container NAME] POD" in err


async def test_the_command_ends_with_the_agent_even_in_a_group_of_its_own(
    cluster: LocalCluster, agent: Agent, tmp_path: Path
) -> None:
    await cluster.client.create(Pod, pod("worker", "sleep", "1000"))
    leaves = f"import os, time; os.setpgid(0, 0); open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(999)"
    process = await agent.start("worker", sys.executable, "-c", f'"{leaves}"', "&", "wait")
    await wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    heir = psutil.Process(int((tmp_path / "pid").read_text()))
    assert heir.is_running()
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await wait_until(lambda: not heir.is_running() or heir.status() == psutil.STATUS_ZOMBIE)


async def test_a_worker_that_goes_away_ends_the_session(cluster: LocalCluster, agent: Agent, tmp_path: Path) -> None:
    await cluster.client.create(Pod, pod("worker", "sleep", "1000"))
    process = await agent.start("worker", "touch", str(tmp_path / "started"), ";", "sleep", "1000")
    await wait_until(lambda: (tmp_path / "started").exists())
    await cluster.client.delete(Pod, Key("default", "worker"))
    await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode not in (0, None)


# MPI


def launcher(agent: Agent, *command: str) -> JSON:
    mpi = {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "PRTE_MCA_plm_ssh_agent": "/etc/mpi/kubexec.sh",
        "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
        **agent.pod_env(),
    }
    volume = {"name": "mpi", "configMap": {"name": "mpi", "defaultMode": 0o555}}
    mount = {"name": "mpi", "mountPath": "/etc/mpi"}
    given = [{"name": name, "value": value} for name, value in mpi.items()]
    return pod("launcher", *command, volumes=(volume,), volumeMounts=[mount], env=given)


async def team(client: Client, agent: Agent) -> None:
    hosts = "worker-0 slots=2\nworker-1 slots=2\n"
    data = {"kubexec.sh": mpi_objects.agent_script(agent.script, ""), "hostfile": hosts}
    await client.create(ConfigMap, {"metadata": {"name": "mpi", "namespace": "default"}, "data": data})
    for number in range(2):
        await client.create(Pod, pod(f"worker-{number}", "sleep", "1000"))


async def test_a_launcher_reaches_every_host_of_its_hostfile(cluster: LocalCluster, agent: Agent) -> None:
    await team(cluster.client, agent)
    await cluster.client.create(Pod, launcher(agent, "sh", "-c", LAUNCHER))
    assert await over(cluster.client, "launcher") == "Succeeded\nrank on worker-0\nrank on worker-1"


@pytest.fixture
def mpirun() -> str:
    found = shutil.which("mpirun")
    if found is None:
        pytest.skip("no mpirun on this machine: apt-get install openmpi-bin")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in said:
        pytest.skip(f"mpirun is not Open MPI: {said.strip()[:40]}")
    return found


async def test_real_mpi_starts_its_ranks_in_the_workers(cluster: LocalCluster, mpirun: str, agent: Agent) -> None:
    await team(cluster.client, agent)
    words = ("--allow-run-as-root", "-n", "4", "sh", "-c", "echo rank on $HOSTNAME")
    await cluster.client.create(Pod, launcher(agent, mpirun, *words))
    ranks = ["rank on worker-0"] * 2 + ["rank on worker-1"] * 2
    phase, *lines = (await over(cluster.client, "launcher")).splitlines()
    # mpirun may warn that the agent was started before its process group was set.
    assert (phase, [line for line in lines if "setpgid" not in line]) == ("Succeeded", ranks)


async def test_a_pod_talks_to_its_own_plane_and_not_to_the_users(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "of-the-user"))
    own = [{"name": "KUBECONFIG", "value": "mine"}]
    await cluster.client.create(Pod, pod("p", "sh", "-c", 'cat "$KUBECONFIG"'))
    await cluster.client.create(Pod, pod("q", "sh", "-c", "echo $KUBECONFIG", env=own))
    assert f'"server":"{cluster.url}"' in await over(cluster.client, "p")
    assert await over(cluster.client, "q") == "Succeeded\nmine"

"""What a pod's processes get from the process that runs the node: no open file, and no way to the user's cluster."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.node.runtime.exec import exec_command
from support.cluster.node import container_logs, running_node
from support.servers.node_api import NodeApi, command_pod

OPEN_FILES = (
    "import os\n"
    "for fd in range(1000):\n"
    "    try: os.fstat(fd)\n"
    "    except OSError: continue\n"
    "    print(fd, end=' ', flush=True)"
)
JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: a}
spec:
  pytorchReplicaSpecs:
    Master:
      restartPolicy: Never
      template: {spec: {containers: [{name: pytorch, image: none, command: ["true"]}]}}
"""


@pytest.mark.usefixtures("each_host")
async def test_a_pod_has_three_open_files(tmp_path: Path) -> None:
    api = NodeApi()
    # Whoever started gangline may have given it files that are for all its children.
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)  # noqa: FBT003
    try:
        async with running_node(api, tmp_path) as node:
            await api.client().create(Pod, command_pod("p", sys.executable, "-S", "-c", OPEN_FILES))
            await api.wait_phase("p", "Succeeded")
            assert (await container_logs(tmp_path, "p")).split() == ["0", "1", "2"]
            await api.client().create(Pod, command_pod("q", "sleep", "99"))
            await api.wait_phase("q", "Running")
            target = node.container_targets(api.stored_pod("q")["metadata"]["uid"])["main"]
            command = (sys.executable, "-S", "-c", OPEN_FILES)
            async with exec_command(target, command, SystemClock(), stdin=False, tty=False) as executed:
                output = b""
                while data := await executed.read(1):
                    output += data
            assert output.split() == [b"0", b"1", b"2"]
    finally:
        os.close(leaked)


async def test_a_pod_does_not_get_the_users_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = NodeApi()
    for name in ("KUBECONFIG", "GANGLINE_KUBECONFIG"):
        monkeypatch.setenv(name, "/home/user/of-another-cluster")
    monkeypatch.setenv("HF_TOKEN", "the user's own")
    script = 'echo "${KUBECONFIG-none} ${GANGLINE_KUBECONFIG-none} $HF_TOKEN"'
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", "sh", "-c", script))
        await api.wait_phase("p", "Succeeded")
        assert await container_logs(tmp_path, "p") == "none none the user's own\n"


@pytest.mark.parametrize("verb", ["run", "up"])
def test_too_few_open_files_are_one_line(verb: str, tmp_path: Path) -> None:
    ended = gangline(tmp_path, verb, soft=20, hard=20)
    assert ended.returncode == 1
    assert ended.stderr == (
        "error: only 20 open files are allowed here, and a control plane needs at least 128; "
        "start gangline from a shell with a higher limit (ulimit -n)\n"
    )


def test_the_limit_of_open_files_is_raised_before_it_is_needed(tmp_path: Path) -> None:
    ended = gangline(tmp_path, "run", soft=20, hard=1000)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def gangline(folder: Path, verb: str, *, soft: int, hard: int) -> "subprocess.CompletedProcess[str]":
    (folder / "job.yaml").write_text(JOB)
    code = (
        f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "runpy.run_module('gangline', run_name='__main__')"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= hard
    return subprocess.run(
        [sys.executable, "-c", code, verb, *(["job.yaml"] if verb == "run" else [])],
        env={**os.environ, "GANGLINE_HOME": str(folder / "home")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

"""Programs that try to outlive their pod. Nothing of them may be left, however the pod ends.

Each program leaves the pid of every process that tries, as the name of a file in a folder.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import psutil
import pytest

from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.node.runtime.exec import exec_command
from support.cluster.node import FAST_SETTINGS, is_alive, main_container_status, running_node, single_file
from support.servers.node_api import NodeApi, command_pod, default_key, shell_command
from support.waiting import wait_until, wait_until_blocking

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform != "linux", reason="best effort where there is no subreaper"),
]

# Forks twice, with a session of its own between, and becomes a program that has no variable, no open file and the name
# of a thread of the kernel.
DAEMON = """
import os, signal, sys, time
folder = sys.argv[1]

def register():
    open(os.path.join(folder, str(os.getpid())), "w").close()

def daemon(then):
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    register()
    os.closerange(0, 100)
    then()

def hide():
    os.execve("/bin/sleep", ["[kworker/0:1]", "600"], {})

def python(code):
    os.execve(sys.executable, ["[kworker/0:2]", "-S", "-E", "-c", code], {})
"""
SHELL_DAEMON = "(setsid env -i /bin/sh -c '/bin/echo > %s/$$$$; exec /bin/sleep 600' <&- >&- 2>&- &); sleep 600"
LASTING = DAEMON + "signal.signal(signal.SIGTERM, signal.SIG_IGN); daemon(hide); time.sleep(600)"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where programs leave their pids. What a failed test leaves running is killed."""
    pids = tmp_path / "pids"
    pids.mkdir()
    yield pids
    for pid in survivors(pids):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


def started(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def survivors(folder: Path) -> list[int]:
    return [pid for pid in started(folder) if is_alive(pid)]


def program(code: str, folder: Path) -> tuple[str, ...]:
    return sys.executable, "-S", "-E", "-c", code, str(folder)


async def wait_deleted(api: NodeApi, name: str) -> None:
    await api.wait_until(lambda: ("pods", "default", name) not in api.objects)


async def test_a_daemon_ends_with_the_program_that_started_it(api: NodeApi, folder: Path, tmp_path: Path) -> None:
    code = DAEMON + "daemon(hide)\nwhile not os.listdir(folder): time.sleep(0.01)"
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder)))
        await api.wait_phase("p", "Succeeded")
        assert started(folder)
        assert survivors(folder) == []


@pytest.mark.parametrize("language", ["python", "shell"])
async def test_a_daemon_ends_with_its_pod(language: str, api: NodeApi, folder: Path, tmp_path: Path) -> None:
    command = program(LASTING, folder) if language == "python" else shell_command(SHELL_DAEMON % folder)
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *command, terminationGracePeriodSeconds=1))
        await wait_until(lambda: started(folder))
        await api.client().delete(Pod, default_key("p"))
        await wait_deleted(api, "p")
        assert survivors(folder) == []


async def test_the_next_attempt_runs_without_leftovers_of_the_former(
    api: NodeApi, folder: Path, tmp_path: Path
) -> None:
    code = DAEMON + (
        "old = os.listdir(folder)\n"
        "if old: sys.exit(1 if os.path.exists('/proc/' + old[0]) else 0)\n"
        "daemon(hide)\n"
        "while not os.listdir(folder): time.sleep(0.01)\n"
        "sys.exit(7)"
    )
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder), restart="OnFailure"))
        status = await api.wait_phase("p", "Succeeded")
    assert main_container_status(status)["restartCount"] == 1


async def test_a_daemon_ends_with_its_node(api: NodeApi, folder: Path, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST_SETTINGS, shutdown_grace=timedelta(seconds=0.2))
    async with running_node(api, tmp_path, settings):
        await api.client().create(Pod, command_pod("p", *program(LASTING, folder)))
        await wait_until(lambda: started(folder))
    assert survivors(folder) == []


async def test_the_next_node_ends_daemons_of_pods_that_are_gone(api: NodeApi, folder: Path, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(FAST_SETTINGS, leave_running=True)
    async with running_node(api, tmp_path, settings):
        await api.client().create(Pod, command_pod("p", *program(LASTING, folder)))
        await wait_until(lambda: started(folder))
        await api.wait_phase("p", "Running")
    assert survivors(folder)
    del api.objects["pods", "default", "p"]
    async with running_node(api, tmp_path):
        await wait_until(lambda: not survivors(folder))


async def test_a_daemon_that_kills_its_supervisor_ends_all_the_same(api: NodeApi, folder: Path, tmp_path: Path) -> None:
    code = DAEMON + "shim = os.getppid(); daemon(lambda: (os.kill(shim, signal.SIGKILL), hide())); time.sleep(600)"
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder)))
        await api.wait_phase("p", "Failed")
        assert started(folder)
        assert survivors(folder) == []


async def test_the_next_node_ends_daemons_whose_supervisor_was_killed(
    api: NodeApi, folder: Path, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(FAST_SETTINGS, leave_running=True)
    async with running_node(api, tmp_path, settings):
        await api.client().create(Pod, command_pod("p", *program(LASTING, folder)))
        await wait_until(lambda: started(folder))
        await api.wait_phase("p", "Running")
    record = single_file(tmp_path, "pods/*/main/0.run")
    shim = msgspec.json.decode(record.read_bytes())["shim"]
    os.kill(shim, signal.SIGKILL)
    await wait_until(lambda: not is_alive(shim))
    assert survivors(folder)
    async with running_node(api, tmp_path):
        await api.wait_phase("p", "Failed")
        assert survivors(folder) == []


async def test_a_daemon_that_keeps_its_supervisor_stopped_ends_all_the_same(
    api: NodeApi, folder: Path, tmp_path: Path
) -> None:
    code = DAEMON + (
        "shim = os.getppid()\n"
        "loop = f'import os\\nwhile True: os.kill({shim}, 19)'\n"
        "daemon(lambda: python(loop)); time.sleep(600)"
    )
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder), terminationGracePeriodSeconds=1))
        await wait_until(lambda: started(folder))
        await api.client().delete(Pod, default_key("p"))
        await wait_deleted(api, "p")
        assert survivors(folder) == []


async def test_a_daemon_that_traces_its_supervisor_ends_all_the_same(
    api: NodeApi, folder: Path, tmp_path: Path
) -> None:
    # Root may trace it, which stops it until the tracer ends; others may not.
    code = DAEMON + (
        "import ctypes\n"
        "shim = os.getppid()\n"
        "daemon(lambda: (ctypes.CDLL(None).ptrace(16, shim, 0, 0), hide())); time.sleep(600)"
    )
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder), terminationGracePeriodSeconds=1))
        await wait_until(lambda: started(folder))
        await api.client().delete(Pod, default_key("p"))
        await wait_deleted(api, "p")
        assert survivors(folder) == []


FORKING = {
    # Never older than a moment: it forks, and ends.
    "always another": "while True:\n    if os.fork(): os._exit(0)\n    os.setsid()\n",
    # Two that watch each other, and replace whichever was killed.
    "two that replace each other": (
        "while True:\n    child = os.fork()\n    if child == 0: os.setsid(); continue\n    os.waitpid(child, 0)\n"
    ),
    # A tree that grows all the time; each process has a session of its own.
    "more and more": ("while True:\n    if os.fork() == 0: os.setsid()\n    time.sleep(0.3)\n"),
}


@pytest.mark.parametrize("forking", FORKING)
async def test_processes_that_fork_while_they_are_killed_end(
    forking: str, api: NodeApi, folder: Path, tmp_path: Path
) -> None:
    # The name is how the test finds them: they have no other mark.
    name = f"fork{os.getpid()}"
    code = DAEMON + (
        f"loop = '''import os, time\nopen('/proc/self/comm', 'w').write('{name}')\n{FORKING[forking]}'''\n"
        "daemon(lambda: python(loop)); time.sleep(600)"
    )

    def forkers() -> list[int]:
        return [pid for pid in psutil.pids() if is_forker(pid, name)]

    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder), terminationGracePeriodSeconds=0))
        await wait_until(forkers)
        await api.client().delete(Pod, default_key("p"))
        await wait_deleted(api, "p")
        # Looked for more than once: the one that is always another could be missed.
        assert [pid for _ in range(20) for pid in forkers()] == []


def is_forker(pid: int, name: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == name and is_alive(pid)
    except OSError:
        return False


async def test_a_daemon_of_an_executed_command_ends_with_the_container(
    api: NodeApi, folder: Path, tmp_path: Path
) -> None:
    clock = SystemClock()
    code = DAEMON + "time.sleep(0.2); daemon(hide)\nwhile not os.listdir(folder): time.sleep(0.01)"
    async with running_node(api, tmp_path) as node:
        await api.client().create(Pod, command_pod("p", "sleep", "600", terminationGracePeriodSeconds=1))
        await api.wait_phase("p", "Running")
        target = node.container_targets(api.stored_pod("p")["metadata"]["uid"])["main"]
        async with exec_command(target, program(code, folder), clock, stdin=False, tty=False) as command:
            assert await command.wait() == 0
        assert survivors(folder)
        await api.client().delete(Pod, default_key("p"))
        await wait_deleted(api, "p")
        assert survivors(folder) == []


async def test_the_memory_of_a_daemon_counts(api: NodeApi, folder: Path, tmp_path: Path) -> None:
    code = DAEMON + "daemon(lambda: python('import time; a = bytes(1) * 2**28; time.sleep(600)')); time.sleep(600)"
    limited = {"resources": {"limits": {"memory": "128Mi"}}}
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *program(code, folder), container=limited))
        status = await api.wait_phase("p", "Failed", seconds=20)
        assert main_container_status(status)["state"]["terminated"]["reason"] == "OOMKilled"
        assert survivors(folder) == []


@pytest.mark.parametrize("kills_supervisor", [False, True])
def test_nothing_is_left_of_a_run_that_was_killed(kills_supervisor: bool, folder: Path, tmp_path: Path) -> None:
    script, supervisor = tmp_path / "train.py", tmp_path / "supervisor"
    script.write_text(
        DAEMON.replace("sys.argv[1]", repr(str(folder)))
        + f"open({str(supervisor)!r}, 'w').write(str(os.getppid()))\ndaemon(hide)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "gangline", "run", "--nproc", "1", "--", sys.executable, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GANGLINE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
    ) as run:
        wait_until_blocking(lambda: started(folder))
        if kills_supervisor:
            # The run is stopped, so it does not notice.
            run.send_signal(signal.SIGSTOP)
            os.kill(int(supervisor.read_text()), signal.SIGKILL)
        run.kill()
    wait_until_blocking(lambda: not survivors(folder), "a daemon outlived its run", seconds=20)

import subprocess
from pathlib import Path

import pytest

from gangline.frameworks import mpi_objects


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """A command that prints its arguments, one per line."""
    path = tmp_path / "agent"
    path.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    path.chmod(0o755)
    return f"{path} --fast"


def run(script: str, folder: Path, *arguments: str) -> list[str]:
    path = folder / "kubexec.sh"
    path.write_text(script)
    done = subprocess.run(["/bin/sh", path, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


# Open MPI passes the host first; MPICH, and programs that expect ssh, pass options before it.
@pytest.mark.parametrize("options", [[], ["-x"], ["-x", "-q"]])
def test_the_agent_is_asked_to_run_a_command_in_a_pod(agent: str, options: list[str], tmp_path: Path) -> None:
    script = mpi_objects.agent_script(agent, "")
    assert run(script, tmp_path, *options, "pi-worker-0", "orted -mca", "x '1 2'") == [
        *("--fast", "pi-worker-0", "orted -mca", "x '1 2'"),
    ]


def test_the_agent_is_told_the_container(agent: str, tmp_path: Path) -> None:
    told = run(mpi_objects.agent_script(agent, "train"), tmp_path, "pi-worker-0", "true")
    assert told[1:4] == ["--container", "train", "pi-worker-0"]


def test_the_agents_exit_code_is_the_scripts(tmp_path: Path) -> None:
    path = tmp_path / "kubexec.sh"
    path.write_text(mpi_objects.agent_script("/bin/sh -c 'exit 7'", ""))
    assert subprocess.run(["/bin/sh", path, "pi-worker-0", "true"], check=False).returncode == 7


def test_a_script_without_arguments_ends(agent: str, tmp_path: Path) -> None:
    path = tmp_path / "kubexec.sh"
    path.write_text(mpi_objects.agent_script(agent, ""))
    subprocess.run(["/bin/sh", path, "-x"], check=False, capture_output=True, timeout=30)


def test_hosts_are_printed_by_the_discovery_script(tmp_path: Path) -> None:
    script = mpi_objects.discovery_script("pi-launcher", ["pi-worker-1", "pi-worker-0"], 2)
    assert run(script, tmp_path) == ["pi-launcher:2", "pi-worker-0:2", "pi-worker-1:2"]

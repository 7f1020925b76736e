"""A run and a plane with the conditions of a Mac: what only Linux has is switched off, the temporary folder is a
symbolic link, the state folder has a space in its name, and a process may open 256 files.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.waiting import wait_until_blocking

MARK = "GANGLINE_TEST_PORTABLE"
JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: probed}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: none
              command: [{python}, -c, "import time; print('training', flush=True); time.sleep(600)"]
              readinessProbe: {{exec: {{command: [test, -e, {folder}/ready]}}, periodSeconds: 1}}
              volumeMounts: [{{name: shared, mountPath: /dev/shm}}]
              env: [{{name: CACHE, value: /dev/shm/cache}}]
          volumes: [{{name: shared, emptyDir: {{}}}}]
"""
GREEDY = "data = bytearray(200_000_000); print('allocated', flush=True); import time; time.sleep(600)"


class Mac:
    """A machine like a Mac, as far as Linux can be one."""

    def __init__(self, folder: Path) -> None:
        (folder / "private" / "tmp").mkdir(parents=True)
        (folder / "tmp").symlink_to(folder / "private" / "tmp")
        self.work = folder / "work"
        self.work.mkdir()
        self.mark = str(folder)
        self.env = {
            **os.environ,
            "GANGLINE_PORTABLE": "1",
            "GANGLINE_HOME": str(folder / "Library" / "Application Support" / "gangline"),
            "TMPDIR": str(folder / "tmp"),
            MARK: self.mark,
        }

    def gangline(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gangline", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=100, cwd=self.work, env=self.env, preexec_fn=limit_files
        )

    def processes(self) -> list[list[str]]:
        """The command lines of all that was started here and lives."""
        lines = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    lines.append(process.cmdline())
            except psutil.Error:
                continue
        return lines


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.fixture
def mac(tmp_path: Path) -> Mac:
    return Mac(tmp_path)


@pytest.fixture
def plane(mac: Mac) -> Iterator[Mac]:
    started = mac.gangline("up", "--detach")
    assert started.returncode == 0, started.stderr
    yield mac
    stopped = mac.gangline("down")
    assert stopped.returncode == 0, stopped.stderr
    # The process ends a moment after it has released the folder.
    wait_until_blocking(lambda: not mac.processes())


def test_more_replicas_run_than_a_macs_limit_of_open_files_allows(mac: Mac) -> None:
    """All of them at once: each waits until all others have started."""
    (mac.work / "train.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path(f'up-{os.environ[\"RANK\"]}').touch()\n"
        "while len(list(pathlib.Path().glob('up-*'))) < 60: time.sleep(0.1)\n"
        "print('all are up', flush=True)\n"
    )
    done = mac.gangline("run", "--nproc", "60", "--", sys.executable, "-S", "train.py")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert "master-0| all are up" in done.stdout
    assert mac.processes() == []


def test_a_plane_serves_logs_probes_commands_and_usage(plane: Mac, tmp_path: Path) -> None:
    (plane.work / "job.yaml").write_text(JOB.format(python=sys.executable, folder=tmp_path))
    created = plane.gangline("create", "-f", "job.yaml")
    assert created.returncode == 0, created.stderr
    wait_until_blocking(lambda: "training" in plane.gangline("logs", "probed").stdout)
    assert "0/1" in plane.gangline("ps", "probed").stdout
    (tmp_path / "ready").touch()
    wait_until_blocking(lambda: "1/1" in plane.gangline("ps", "probed").stdout)
    executed = plane.gangline("exec", "probed", "--", "sh", "-c", 'touch "$CACHE" && echo "$CACHE"')
    assert executed.returncode == 0, executed.stderr
    # macOS has no such folder, so the volume stands for it.
    assert not executed.stdout.startswith("/dev/shm")
    assert Path(executed.stdout.strip()).exists()
    used = plane.gangline("top", "probed")
    assert used.returncode == 0, used.stderr
    assert "Mi" in used.stdout


def test_memory_limits_hold_without_cgroups(mac: Mac) -> None:
    done = mac.gangline("run", "--nproc", "1", "--limit", "memory=100Mi", "--", sys.executable, "-c", GREEDY)
    assert done.returncode == 100
    assert "OOMKilled" in done.stdout + done.stderr
    assert mac.processes() == []


def test_networks_for_pods_are_refused_in_one_line(mac: Mac) -> None:
    done = mac.gangline("run", "--nproc", "1", "--network", "isolated", "--", "true")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: --network isolated: pods cannot have networks here: only Linux has them; leave it out to share loopback\n"
    )

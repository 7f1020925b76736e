"""Files of the plane, the node and the command are their owner's alone, also under umask 000."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.waiting import wait_until

JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: j}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        spec:
          containers:
          - name: pytorch
            image: python
            command: [sh, -c, "echo hi; umask > seen"]
            env: [{name: HERE, value: there}]
            volumeMounts: [{name: scratch, mountPath: /scratch-of-a-test}]
          volumes: [{name: scratch, emptyDir: {}}]
"""


def gangline(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command under umask 000."""
    return subprocess.run(
        [sys.executable, "-m", "gangline", *arguments],
        cwd=folder,
        umask=0,
        env={**os.environ, "GANGLINE_HOME": str(folder / "home"), "KUBECONFIG": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def open_files(folder: Path) -> dict[str, str]:
    """The files and folders that others may read or write, and their modes. Volumes have the modes that pods ask for."""
    found: dict[str, str] = {}
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() or not path.exists() or "_volumes" in path.parent.parts:
            continue
        mode = path.stat().st_mode & 0o777
        # A kubelet's logs can be read by a group.
        if mode & (0o027 if path.suffix == ".log" else 0o077):
            found[str(path.relative_to(folder))] = oct(mode)
    return found


@pytest.mark.slow
async def test_gangline_up_leaves_no_file_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    home = tmp_path / "home"
    audit, backup = str(home / "audit.log"), str(home / "backups")
    started = gangline(tmp_path, "up", "--detach", "--audit-log", audit, "--backup", backup)
    try:
        assert started.returncode == 0, started.stderr
        flags = ("--kubeconfig", str(home / "kubeconfig"))
        submitted = gangline(tmp_path, "submit", "job.yaml", *flags)
        assert submitted.returncode == 0, submitted.stderr
        await wait_until((tmp_path / "seen").exists)
        assert (tmp_path / "seen").read_text().strip() == "0000", "programs keep the umask of the user"
        await wait_until(lambda: any(home.rglob("*.exit")))
        assert open_files(home) == {}
    finally:
        gangline(tmp_path, "down")


@pytest.mark.slow
def test_gangline_run_leaves_no_file_that_others_can_read(tmp_path: Path) -> None:
    ended = gangline(tmp_path, "run", "--runs", "results", "--", "sh", "-c", "echo out; echo x > $GANGLINE_ARTIFACTS/a")
    assert ended.returncode == 0, ended.stderr
    assert any((tmp_path / "home").rglob("*.log"))
    # The program's own file is as the program makes it.
    assert [Path(name).name for name in open_files(tmp_path / "home")] == ["a"]
    assert open_files(tmp_path / "results") == {}

"""`gangline run --context`: a folder on this side, its processes and their output on the nodes."""

from pathlib import Path

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.node import BUSYBOX

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_folder_is_shipped_and_its_output_streams_back(
    installed: NodeCluster, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "train.sh").write_text('echo "$(hostname) reads $(cat data/words.txt)"\n')
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("forty-two\n")
    flags = ["--context", "nodes", "--namespace", namespace, "--image", BUSYBOX, "--nproc", "2", "--kind", "TFJob"]
    done = installed.gangline("run", *flags, "--", "sh", "train.sh", folder=tmp_path)
    assert done.code == 0, done
    assert "train-worker-0 reads forty-two" in done.output
    assert "train-worker-1 reads forty-two" in done.output
    assert f"namespace {namespace}" in done.errors
    assert len(installed.objects("pods", namespace)) == 2


def test_a_failure_is_explained_and_its_code_is_ours(installed: NodeCluster, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("echo almost there; exit 7\n")
    flags = ["--context", "nodes", "--namespace", namespace, "--image", BUSYBOX, "--kind", "TFJob"]
    done = installed.gangline("run", *flags, "--", "sh", "train.sh", folder=tmp_path)
    assert done.code == 100, done
    assert "almost there" in done.output
    assert "exit code 7" in done.output + done.errors, done

"""`gangline run` with files that were written for a cluster: its images, its namespaces, its cores."""

import subprocess
import sys
from pathlib import Path

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: small, namespace: kubeflow}
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers:
            - name: tensorflow
              image: kubeflow/tf-mnist:1.0
              command: [python, /var/tf_mnist/train.py]
              resources: {limits: {cpu: 96}}
"""


def run(folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "job.yaml").write_text(JOB)
    command = [sys.executable, "-m", "gangline", "run", "--images", "images.yaml", "job.yaml"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100)


def test_a_file_for_a_cluster_runs_with_a_mapping_of_two_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "images.yaml").write_text("tf-mnist:\n  paths: {/var/tf_mnist: .}\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker-0| trained" in done.stdout


def test_a_mapping_that_is_missing_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: --images images.yaml: No such file or directory\n")

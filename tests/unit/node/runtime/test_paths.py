"""Paths of containers that are processes, and the artifacts folder of a job."""

from pathlib import Path

import msgspec

from gangline.node.pod_types import RunPod
from gangline.node.runtime.paths import PathMapping, ensure_artifacts_folder


def pod(**labels: str) -> RunPod:
    named = {name.replace("_", "-"): value for name, value in labels.items()}
    labelled = {f"training.kubeflow.org/{name}": value for name, value in named.items()}
    return msgspec.convert({"metadata": {"name": "p", "namespace": "team", "labels": labelled}}, RunPod)


def test_it_is_made_for_the_job_of_a_pod(tmp_path: Path) -> None:
    folder = ensure_artifacts_folder(tmp_path / "{namespace}" / "{job}", pod(job_name="bert"))
    assert folder == tmp_path / "team" / "bert"
    assert folder.is_dir()
    assert ensure_artifacts_folder(tmp_path / "{namespace}" / "{job}", pod(job_name="bert")) == folder


def test_a_pod_of_no_job_has_none(tmp_path: Path) -> None:
    assert ensure_artifacts_folder(tmp_path / "{job}", pod()) is None
    assert ensure_artifacts_folder(None, pod(job_name="bert")) is None


def test_where_it_cannot_be_made_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ensure_artifacts_folder(tmp_path / "file" / "{job}", pod(job_name="bert")) is None


def test_shared_memory_is_the_machines_own_where_it_is_a_folder(each_host: str, tmp_path: Path) -> None:
    text = PathMapping({"/dev/shm": tmp_path}).translate("--cache=/dev/shm/x")
    assert text == ("--cache=/dev/shm/x" if each_host == "linux" else f"--cache={tmp_path}/x")

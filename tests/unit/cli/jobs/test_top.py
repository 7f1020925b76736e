"""CPU and memory of replicas."""

from pathlib import Path
from typing import Any

import pytest

from gangline.cli.connect.server import ServerTarget
from gangline.cli.jobs.top import gpu_cells, machine_rows, sparkline, usage_rows
from gangline.cli.jobs.top_recorded import recorded_top
from gangline.cli.resources.machine import Amount, GpuUsage, MachineUsage, list_gpus
from gangline.history.writer import HistoryWriter
from gangline.kube.config.connection import Connection
from gangline.node.usage import ResourceUsage
from gangline.summary.replicas import JOB_NAME


def pod(name: str, memory: str = "") -> dict[str, Any]:
    resources = {"limits": {"memory": memory}} if memory else {}
    metadata = {"name": name, "namespace": "ns", "uid": name, "labels": {JOB_NAME: "j"}}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": resources}]},
    }


def test_a_row_says_what_is_used_and_how_much_of_the_limit() -> None:
    uses = {"a": ResourceUsage(0.25, 512 * 2**20), "b": ResourceUsage(1.0, 2**20)}
    assert usage_rows([pod("a", "1Gi"), pod("b"), pod("gone")], uses) == [
        ["j", "a", "n", "250m", "512Mi", "50%"],
        ["j", "b", "n", "1000m", "1Mi", "-"],
    ]


def test_all_namespaces_have_a_column_of_their_own() -> None:
    assert usage_rows([pod("a")], {"a": ResourceUsage()}, namespaces=True)[0][:2] == ["ns", "j"]


def test_a_sparkline_is_as_high_as_its_highest_value() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([]) == ""


def test_gpus_are_named_with_what_is_in_use() -> None:
    gpu = "nvidia.com/gpu"
    measured = {(gpu, "0"): (80, 2**30), (gpu, "1"): (20, 2**30), (gpu, "MIG-a"): (5, 0)}
    assert gpu_cells(ResourceUsage(), measured) == ("-", "-", "-")
    assert gpu_cells(ResourceUsage(gpus=((gpu, "0"), (gpu, "1"))), measured) == ("0,1", "50%", "2048Mi")
    assert gpu_cells(ResourceUsage(gpus=((gpu, "7"),)), measured) == ("7", "-", "-")


def test_the_machine_has_a_row_for_each_resource_and_gpu() -> None:
    memory = 81559 * 2**20
    gpus = (
        GpuUsage("NVIDIA H100", Amount(1024 * 2**20, memory), 0.37),
        GpuUsage("NVIDIA H100", Amount(0, memory), 0),
    )
    usage = MachineUsage(Amount(1.5, 8), Amount(2 * 2**30, 8 * 2**30), Amount(0, 2**30), gpus)
    assert machine_rows(usage) == [
        ["cpu", "1.5 cores", "8 cores", "19%"],
        ["gpu 0 (NVIDIA H100)", "37% busy", "-", "37%"],
        ["gpu 1 (NVIDIA H100)", "0% busy", "-", "0%"],
        ["memory", "2048Mi", "8192Mi", "25%"],
        ["disk", "0Mi", "1024Mi", "0%"],
        ["gpu 0 memory", "1024Mi", "81559Mi", "1%"],
        ["gpu 1 memory", "0Mi", "81559Mi", "0%"],
    ]


def test_the_gpus_of_this_machine_are_those_that_its_node_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_GPUS", "nvidia=2")
    assert [(gpu.name, gpu.memory) for gpu in list_gpus()] == [("nvidia test GPU", Amount(0, 16 * 2**30))] * 2
    monkeypatch.setenv("GANGLINE_GPUS", "none")
    assert list_gpus() == ()


def test_of_a_job_that_is_gone_there_is_what_was_recorded(tmp_path: Path) -> None:
    job = {
        "kind": "PyTorchJob",
        "metadata": {"name": "bert", "namespace": "default", "uid": "1"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}},
    }
    owner = {"uid": "1", "controller": True}
    pod = {"metadata": {"name": "bert-worker-0", "namespace": "default", "uid": "2", "ownerReferences": [owner]}}
    writer = HistoryWriter(tmp_path / "history", 100.0, source="one")
    writer.record(101.0, "/kubeflow.org/pytorchjobs/default/bert", job)
    writer.record(101.0, "//pods/default/bert-worker-0", pod)
    for at, cores in ((102.0, 0.5), (103.0, 1.5)):
        writer.record_usage(at, "//pods/default/bert-worker-0", pod, cores, 64 * 2**20)
    writer.record(110.0, "/kubeflow.org/pytorchjobs/default/bert", None)
    writer.close(111.0)
    target = ServerTarget(Connection(server="http://x", namespace="default"), "default", plane_folder=tmp_path)
    found = recorded_top(target, "bert")
    assert found is not None
    assert found.rows == [["bert", "bert-worker-0", "1000m", "1500m", "64Mi"]]
    assert found.end == 110.0
    assert "pytorchjob/bert is gone" in found.note
    assert recorded_top(target, "tfjob/bert") is None
    assert recorded_top(target, "other") is None

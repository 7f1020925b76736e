"""The record of objects that changed, written and read back."""

from pathlib import Path

import pytest

from gangline.api.meta import JSON
from gangline.history.deltas import patch_between, patched
from gangline.history.reader import HistoryReader
from gangline.history.segments import SUFFIX
from gangline.history.writer import HistoryWriter

JOB_PATH, POD_PATH = "/kubeflow.org/pytorchjobs/default/bert", "//pods/default/bert-worker-0"
EVENT_PATH = "//events/default/bert-worker-0.1"


def job(uid: str = "job-1", **status: object) -> JSON:
    metadata = {"name": "bert", "namespace": "default", "uid": uid, "creationTimestamp": "2026-11-18T12:00:00Z"}
    return {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {}}, "status": status}


def pod(phase: str) -> JSON:
    return {"kind": "Pod", "metadata": {"name": "bert-worker-0", "uid": "pod-1"}, "status": {"phase": phase}}


EVENT: JSON = {"kind": "Event", "metadata": {"name": "bert-worker-0.1", "uid": "event-1"}, "reason": "Killing"}
FAILED: JSON = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-18T12:00:03Z"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = HistoryWriter(tmp_path, 100.0)
    writer.record(101.0, JOB_PATH, job())
    writer.record(102.0, POD_PATH, pod("Pending"), about="job-1")
    writer.record(103.5, POD_PATH, pod("Running"), about="job-1")
    writer.record(104.0, EVENT_PATH, EVENT, about="pod-1")
    writer.record_log(104.5, POD_PATH, "pytorch", 0, "killed\n")
    writer.record(105.0, JOB_PATH, job(conditions=[FAILED]))
    writer.record_verdict(105.0, JOB_PATH, {"headline": "out of memory"})
    writer.record(106.0, POD_PATH, None)
    writer.record(107.0, JOB_PATH, None)
    writer.close(108.0)
    return tmp_path


def test_any_moment_can_be_read(folder: Path) -> None:
    reader = HistoryReader(folder)
    assert reader.objects_at(100.5) == {}
    assert reader.objects_at(102.5) == {JOB_PATH: job(), POD_PATH: pod("Pending")}
    assert reader.objects_at(103.5)[POD_PATH] == pod("Running")
    assert reader.objects_at(106.0) == {JOB_PATH: job(conditions=[FAILED]), EVENT_PATH: EVENT}
    assert reader.objects_at(109.0) == {}


def test_a_deleted_job_is_still_there_with_all_that_belonged_to_it(folder: Path) -> None:
    reader = HistoryReader(folder)
    (summary,) = reader.jobs()
    assert (summary.name, summary.state, summary.deleted) == ("bert", "Failed", 107.0)
    assert summary.ended is not None
    versions = reader.job_changes("default", "pytorchjobs", "bert")
    assert [(version.at, version.path) for version in versions] == [
        (101.0, JOB_PATH),
        (102.0, POD_PATH),
        (103.5, POD_PATH),
        (104.0, EVENT_PATH),
        (105.0, JOB_PATH),
        (106.0, POD_PATH),
        (107.0, JOB_PATH),
    ]
    assert versions[-1].body is None
    (end,) = reader.log_ends("default", "pytorchjobs", "bert")
    assert (end.pod, end.container, end.text) == ("bert-worker-0", "pytorch", "killed\n")
    (verdict,) = reader.verdicts("default", "pytorchjobs", "bert")
    assert verdict.report == {"headline": "out of memory"}


def test_a_torn_end_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0)
    writer.record(101.0, JOB_PATH, job())
    writer.flush()
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    whole = file.stat().st_size
    writer.record(102.0, POD_PATH, pod("Pending"), about="job-1")
    writer.flush()
    data = file.read_bytes()
    writer.close(103.0)
    for size in range(whole, len(data)):
        file.write_bytes(data[:size])
        assert [version.path for version in HistoryReader(tmp_path).changes(0, 200)] == [JOB_PATH]


def test_a_name_used_again_is_another_job(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0)
    writer.record(101.0, JOB_PATH, job())
    writer.record(102.0, JOB_PATH, None)
    writer.record(103.0, JOB_PATH, job("job-2"))
    writer.close(104.0)
    reader = HistoryReader(tmp_path)
    assert [version.at for version in reader.job_changes("default", "pytorchjobs", "bert")] == [103.0]
    assert [version.at for version in reader.job_changes("default", "pytorchjobs", "bert", "job-1")] == [101.0, 102.0]


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": None}),
        ({"a": {"b": 1, "c": [1]}}, {"a": {"b": 1, "c": [1, None]}}, {"a": {"c": [1, None]}}),
        ({"a": True}, {"a": 1}, {"a": 1}),
        ({"a": None}, {"a": None, "b": 1}, {"b": 1}),
        ({}, {"a": None}, None),
        ({"a": 1}, {"a": {"b": None}}, None),
    ],
)
def test_a_patch_gives_the_next_version_or_is_not_made(before: JSON, after: JSON, patch: JSON | None) -> None:
    assert patch_between(before, after) == patch
    if patch is not None:
        assert patched(before, patch) == after

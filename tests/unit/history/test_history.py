"""The record of objects that changed, written and read back."""

from datetime import timedelta
from pathlib import Path

import pytest

from gangline.api.meta import JSON
from gangline.history.deltas import patch_between, patched
from gangline.history.reader import FolderSegments, HistoryReader
from gangline.history.records import LogLine
from gangline.history.retention import HistoryLimits, tidy
from gangline.history.segments import SUFFIX, read_index
from gangline.history.writer import HistoryWriter

JOB_PATH, POD_PATH = "/kubeflow.org/pytorchjobs/default/bert", "//pods/default/bert-worker-0"
EVENT_PATH = "//events/default/bert-worker-0.1"


def job(uid: str = "job-1", **status: object) -> JSON:
    metadata = {"name": "bert", "namespace": "default", "uid": uid, "creationTimestamp": "2026-11-18T12:00:00Z"}
    return {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {}}, "status": status}


def pod(phase: str) -> JSON:
    owner = {"kind": "PyTorchJob", "name": "bert", "uid": "job-1", "controller": True}
    metadata = {"name": "bert-worker-0", "namespace": "default", "uid": "pod-1", "ownerReferences": [owner]}
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": phase}}


EVENT: JSON = {
    "kind": "Event",
    "metadata": {"name": "bert-worker-0.1", "uid": "event-1"},
    "involvedObject": {"uid": "pod-1"},
    "reason": "Killing",
}
FAILED: JSON = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-18T12:00:03Z"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, JOB_PATH, job())
    writer.record(102.0, POD_PATH, pod("Pending"))
    writer.record(103.5, POD_PATH, pod("Running"))
    writer.record(104.0, EVENT_PATH, EVENT)
    writer.record_log(104.5, POD_PATH, pod("Running"), LogLine(0, 0, "pytorch", "process://1", 0, "killed\n"))
    writer.record(105.0, JOB_PATH, job(conditions=[FAILED]))
    writer.record_verdict(105.0, JOB_PATH, job(), {"headline": "out of memory"})
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
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, JOB_PATH, job())
    writer.flush()
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    whole = file.stat().st_size
    writer.record(102.0, POD_PATH, pod("Pending"))
    writer.flush()
    data = file.read_bytes()
    writer.close(103.0)
    for size in range(whole, len(data)):
        file.write_bytes(data[:size])
        assert [version.path for version in HistoryReader(tmp_path).changes(0, 200)] == [JOB_PATH]


def test_a_name_used_again_is_another_job(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
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


def progress(step: int) -> JSON:
    return job(progress={"step": step})


def long_history(folder: Path, steps: int = 400) -> None:
    """A job with many versions, in many segments, and a pod that outlives it."""
    writer = HistoryWriter(folder, 100.0, source="one", limits=HistoryLimits(segment_bytes=1000))
    writer.record(101.0, POD_PATH, pod("Running"))
    for step in range(steps):
        writer.record(102.0 + step, JOB_PATH, progress(step))
        writer.flush()
    writer.record(600.0, JOB_PATH, None)
    for number in range(100):
        writer.record(601.0 + number, OTHER_PATH, other(number))
        writer.flush()
    writer.record(701.0, POD_PATH, pod("Failed"))
    writer.record(702.0, POD_PATH, None)
    writer.close(703.0)


OTHER_PATH = "/kubeflow.org/tfjobs/default/linear"


def other(step: int) -> JSON:
    return {"kind": "TFJob", "metadata": {"name": "linear", "uid": "job-9"}, "status": {"step": step}}


def test_every_segment_can_be_replayed_alone(tmp_path: Path) -> None:
    long_history(tmp_path)
    files = sorted(tmp_path.glob(f"*{SUFFIX}"))
    assert len(files) > 10
    for step in (0, 57, 399):
        objects = HistoryReader(tmp_path).objects_at(102.5 + step)
        assert objects == {JOB_PATH: progress(step), POD_PATH: pod("Running")}
    for file in files[:5]:
        file.unlink()
    assert HistoryReader(tmp_path).objects_at(102.5 + 399) == {JOB_PATH: progress(399), POD_PATH: pod("Running")}


def test_versions_of_a_job_are_read_across_segments_once_each(tmp_path: Path) -> None:
    long_history(tmp_path)
    reader = HistoryReader(tmp_path)
    versions = reader.job_changes("default", "pytorchjobs", "bert")
    steps = [
        version.body["status"]["progress"]["step"] for version in versions if version.path == JOB_PATH and version.body
    ]
    assert steps == list(range(400))
    assert [(version.at, version.path) for version in versions if version.body is None] == [
        (600.0, JOB_PATH),
        (702.0, POD_PATH),
    ]
    assert sorted(job.name for job in reader.jobs()) == ["bert", "linear"]


def test_only_segments_that_tell_of_a_job_are_read(tmp_path: Path) -> None:
    long_history(tmp_path)

    class Counted(FolderSegments):
        reads = 0

        def read(self, name: str) -> bytes:
            self.reads += 1
            return super().read(name)

    segments = Counted(tmp_path)
    assert HistoryReader(segments).job_changes("default", "tfjobs", "linear")
    assert 0 < segments.reads < len(segments.names()) / 2


def test_the_oldest_segments_go_when_a_history_is_too_large_or_too_old(tmp_path: Path) -> None:
    long_history(tmp_path)
    sizes = {file: file.stat().st_size for file in sorted(tmp_path.glob(f"*{SUFFIX}"))}
    tidy(tmp_path, HistoryLimits(max_bytes=sum(sizes.values()) // 2), 703.0)
    remaining = sorted(tmp_path.glob(f"*{SUFFIX}"))
    assert remaining == sorted(sizes)[-len(remaining) :]
    assert sum(sizes[file] for file in remaining) <= sum(sizes.values()) // 2
    # What is left is still complete.
    assert HistoryReader(tmp_path).objects_at(499.0) == {JOB_PATH: progress(397), POD_PATH: pod("Running")}
    tidy(tmp_path, HistoryLimits(max_age=timedelta(seconds=100)), 760.0)
    assert min(span.start for span in HistoryReader(tmp_path).spans()) > 600.0
    tidy(tmp_path, HistoryLimits(max_age=timedelta(seconds=100)), 10_000.0)
    assert not list(tmp_path.glob(f"*{SUFFIX}"))


def test_a_segment_that_is_being_written_is_not_removed(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.flush()
    tidy(tmp_path, HistoryLimits(max_bytes=0, max_age=timedelta()), 10_000.0)
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1
    writer.close(101.0)
    tidy(tmp_path, HistoryLimits(max_bytes=0, max_age=timedelta()), 10_000.0)
    assert not list(tmp_path.glob(f"*{SUFFIX}"))


def test_a_killed_writer_leaves_a_segment_that_the_next_one_closes(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, JOB_PATH, job())
    writer.flush()
    (file,) = tmp_path.glob(f"*{SUFFIX}")
    data = file.read_bytes()
    writer.close(102.0)
    closed_size = file.stat().st_size
    file.write_bytes(data + b"\x00\x00\x01\x00torn")
    assert [job.name for job in HistoryReader(tmp_path).jobs()] == ["bert"]
    tidy(tmp_path, HistoryLimits(), 103.0)
    assert read_index(file) is not None
    assert file.stat().st_size <= closed_size + 64
    assert [job.name for job in HistoryReader(tmp_path).jobs()] == ["bert"]
    assert HistoryReader(tmp_path).objects_at(101.0) == {JOB_PATH: job()}


def test_what_a_killed_process_did_not_finish_is_removed_later(tmp_path: Path) -> None:
    leftover = tmp_path / f".00000000100000-abc-000000{SUFFIX}.1234.new"
    leftover.write_bytes(b"half")
    tidy(tmp_path, HistoryLimits(), leftover.stat().st_mtime + 10)
    assert leftover.exists()
    tidy(tmp_path, HistoryLimits(), leftover.stat().st_mtime + 4000)
    assert not leftover.exists()


@pytest.mark.parametrize("length", range(12))
def test_an_index_that_is_damaged_is_made_anew(folder: Path, length: int) -> None:
    segment = next(folder.glob(f"*{SUFFIX}"))
    jobs = HistoryReader(folder).jobs()
    segment.write_bytes(segment.read_bytes()[:-12] + length.to_bytes(4, "big") + segment.read_bytes()[-8:])
    assert HistoryReader(folder).jobs() == jobs
    tidy(folder, HistoryLimits(), 1e9)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    strange = [tmp_path / "notes.txt", tmp_path / f"00000000100000-abc-000000{SUFFIX}"]
    for file in strange:
        file.write_text("not ours, and long enough to be a segment")
    tidy(tmp_path, HistoryLimits(), 1.0)
    assert HistoryReader(tmp_path).jobs() == []
    assert [file.read_text() for file in strange] == ["not ours, and long enough to be a segment"] * 2


def test_a_job_that_went_while_nobody_recorded_counts_as_deleted(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, JOB_PATH, job())
    writer.record(102.0, POD_PATH, pod("Running"))
    writer.close(110.0)
    HistoryWriter(tmp_path, 200.0, source="one", objects={OTHER_PATH: other(1)}).close(210.0)
    HistoryWriter(tmp_path, 300.0, source="another").close(310.0)
    reader = HistoryReader(tmp_path)
    assert [(job.name, job.deleted) for job in reader.jobs() if job.name == "bert"] == [("bert", 200.0)]
    versions = reader.job_changes("default", "pytorchjobs", "bert")
    assert [(version.at, version.path) for version in versions if version.body is None] == [
        (200.0, JOB_PATH),
        (200.0, POD_PATH),
    ]
    assert [(span.source, span.start, span.end) for span in reader.spans()] == [
        ("one", 100.0, 110.0),
        ("one", 200.0, 210.0),
        ("another", 300.0, 310.0),
    ]


def test_a_job_that_goes_on_after_a_restart_is_one_job(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, JOB_PATH, progress(1))
    writer.close(110.0)
    writer = HistoryWriter(tmp_path, 200.0, source="one", objects={JOB_PATH: progress(1)})
    writer.record(201.0, JOB_PATH, progress(2))
    writer.close(210.0)
    reader = HistoryReader(tmp_path)
    assert [version.at for version in reader.job_changes("default", "pytorchjobs", "bert")] == [101.0, 201.0]
    (summary,) = reader.jobs()
    assert (summary.last, summary.deleted) == (201.0, None)


def test_logs_of_a_pod_are_found_also_when_it_ended_later(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one", limits=HistoryLimits(segment_bytes=500))
    for step in range(100):
        writer.record(101.0 + step, POD_PATH, pod("Pending" if step % 2 else "Running"))
        if step in (20, 80):
            end = LogLine(0, 0, "pytorch", f"process://{step}", step // 50, f"end {step}")
            writer.record_log(101.0 + step, POD_PATH, pod("Running"), end)
        writer.flush()
    writer.close(300.0)
    reader = HistoryReader(tmp_path)
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) > 4
    assert [end.text for end in reader.pod_log_ends("pod-1", 150.0)] == ["end 20", "end 80"]
    assert reader.pod_log_ends("pod-2", 150.0) == []


def test_a_clock_that_is_set_back_keeps_the_order(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    for at, step in ((105.0, 1), (103.0, 2), (106.0, 3)):
        writer.record(at, JOB_PATH, progress(step))
    writer.close(107.0)
    versions = HistoryReader(tmp_path).job_changes("default", "pytorchjobs", "bert")
    assert [version.at for version in versions] == [105.0, 105.0, 106.0]
    assert HistoryReader(tmp_path).objects_at(105.0) == {JOB_PATH: progress(2)}

"""A history in an object store, and what is said without the packages for it."""

import sys
from pathlib import Path

import pytest

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.history.objectstore import ObjectStoreSegments, open_history
from gangline.history.reader import HistoryReader
from gangline.history.retention import HistoryLimits
from gangline.history.writer import HistoryWriter
from support.requirements import skip_or_fail

JOB = "/kubeflow.org/pytorchjobs/default/bert"


def job(step: int) -> JSON:
    metadata = {"name": "bert", "namespace": "default", "uid": "job-1"}
    return {"kind": "PyTorchJob", "metadata": metadata, "spec": {"pytorchReplicaSpecs": {}}, "status": {"step": step}}


@pytest.fixture
def store(tmp_path: Path) -> ObjectStoreSegments:
    try:
        return ObjectStoreSegments(f"file://{tmp_path}/bucket/history")
    except InputError:
        skip_or_fail("fsspec not found: pip install 'gangline[objectstore]'", required="GANGLINE_REQUIRE_OBJECTSTORE")


def test_a_copied_history_reads_as_the_folder_does(tmp_path: Path, store: ObjectStoreSegments) -> None:
    folder, limits = tmp_path / "history", HistoryLimits(segment_bytes=500)
    assert HistoryReader(store).jobs() == []
    writer = HistoryWriter(folder, 100.0, source="one", limits=limits)
    for step in range(50):
        writer.record(101.0 + step, JOB, job(step))
        writer.flush()
        if step == 20:
            store.upload(folder, limits, 121.0)
            assert HistoryReader(store).objects_at(121.0) == {JOB: job(20)}
    writer.close(200.0)
    store.upload(folder, limits, 200.0)
    assert len(store.names()) > 3
    for moment in (101.0, 130.5, 199.0):
        assert HistoryReader(store).objects_at(moment) == HistoryReader(folder).objects_at(moment)
    assert HistoryReader(store).jobs() == HistoryReader(folder).jobs()
    half = HistoryLimits(max_bytes=sum(file.stat().st_size for file in folder.iterdir()) // 2)
    before = store.names()
    store.upload(folder, half, 200.0)
    assert 0 < len(store.names()) < len(before)
    assert store.names() == before[-len(store.names()) :]


def test_a_store_that_fails_is_an_error_of_the_disk(tmp_path: Path, store: ObjectStoreSegments) -> None:
    (tmp_path / "bucket").write_text("in the way")
    HistoryWriter(tmp_path / "history", 100.0, source="one").close(101.0)
    with pytest.raises(OSError, match="bucket/history: "):
        store.upload(tmp_path / "history", HistoryLimits(), 101.0)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match=r"s3://bucket/history: needs more packages: pip install 'gangline\[object"):
        open_history("s3://bucket/history")


def test_a_folder_needs_no_extra(tmp_path: Path) -> None:
    assert open_history(str(tmp_path)) == tmp_path

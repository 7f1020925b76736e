"""A job of which only the record is left."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangline.api.meta import JSON, Key
from gangline.dashboard.live.past import Past
from gangline.history.writer import HistoryWriter
from gangline.summary.objects import JOB_KINDS

PYTORCH = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
BERT = Key("default", "bert")
JOB: JSON = {
    "kind": "PyTorchJob",
    "metadata": {"name": "bert", "namespace": "default", "uid": "1", "creationTimestamp": "2026-11-18T12:00:00Z"},
    "spec": {"pytorchReplicaSpecs": {}},
    "status": {},
}


class AllRights:
    """A viewer who may read everything."""

    async def is_granted(self, access: object) -> bool:
        return True


@pytest.fixture
def past(tmp_path: Path) -> Past:
    """A record that does not know yet that the job was deleted: it is written once a second."""
    writer = HistoryWriter(tmp_path, 100.0, source="one")
    writer.record(101.0, "/kubeflow.org/pytorchjobs/default/bert", JOB)
    writer.close(102.0)
    rights: Any = AllRights()
    return Past(tmp_path, rights)


async def test_a_job_that_the_server_has_no_more_is_deleted_although_the_record_is_behind(past: Past) -> None:
    detail = await past.detail(PYTORCH, BERT, "", datetime.fromtimestamp(103, UTC), past=False)
    assert (detail.row.name, detail.deleted, detail.recorded) == ("bert", True, True)


async def test_at_an_earlier_moment_it_was_there(past: Past) -> None:
    detail = await past.detail(PYTORCH, BERT, "", datetime.fromtimestamp(101.5, UTC), past=True)
    assert (detail.row.name, detail.deleted) == ("bert", False)

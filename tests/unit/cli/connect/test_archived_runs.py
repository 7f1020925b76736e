"""The archive of earlier runs, read through the client."""

from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.archived_runs import READ_ONLY_ERROR, open_archive
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.pods import PodSubresources
from gangline.local.archive.closed_objects import job_with_run_end
from gangline.local.archive.runs import archive_run
from gangline.local.home import PlaneHome
from support.builders.runs import (
    RECORDED_AT,
    job_path,
    recorded_job,
    recorded_pod,
    stored_objects,
    write_container_log,
)

PODS: Resource[JSON] = Resource("", "v1", "Pod", "pods", dict[str, Any])
JOBS: Resource[JSON] = Resource("kubeflow.org", "v1", "TFJob", "tfjobs", dict[str, Any])
KEY = Key("default", "small")


def archive_interrupted_run(home: PlaneHome, *bodies: JSON) -> None:
    """Archive an interrupted run with the log of its pod."""
    write_container_log(home.folder / "node", "hello\nworld")
    over = stored_objects(
        job_with_run_end(recorded_job("small", "Running"), RECORDED_AT, "the run was interrupted"), *bodies
    )
    archive_run(home.runs, job_path(), over, home.folder / "node", RECORDED_AT)


@pytest.fixture
def home(tmp_path: Path) -> PlaneHome:
    return PlaneHome(tmp_path / "home")


async def test_jobs_pods_and_logs_are_read_through_the_client(home: PlaneHome) -> None:
    archive_interrupted_run(home, recorded_pod())
    async with open_archive(home.folder) as transport:
        client = Client(transport)
        listed = await client.get(JOBS, KEY)
        assert listed["status"]["conditions"][-1]["type"] == "Failed"
        (replica,) = (await client.list(PODS, Selector("default"))).items
        assert replica["status"]["phase"] == "Failed"
        log = [line async for line in PodSubresources(client).logs(Key("default", "small-worker-0"))]
        assert log == [b"hello", b"world"]


async def test_a_run_can_be_read_as_it_was_at_its_last_moment(home: PlaneHome) -> None:
    archive_interrupted_run(home, recorded_pod())
    async with open_archive(home.folder, as_it_was=True) as transport:
        client = Client(transport)
        assert (await client.get(JOBS, KEY))["status"]["conditions"][-1]["type"] == "Running"
        assert (await client.get(PODS, Key("default", "small-worker-0")))["status"]["phase"] == "Running"
        log = [line async for line in PodSubresources(client).logs(Key("default", "small-worker-0"), follow=True)]
        assert log == [b"hello", b"world"]


async def test_a_write_is_refused_because_the_archive_is_read_only(home: PlaneHome) -> None:
    archive_interrupted_run(home)
    async with open_archive(home.folder) as transport:
        client = Client(transport)
        with pytest.raises(InputError, match="cannot be changed"):
            await client.delete(JOBS, KEY)
        with pytest.raises(InputError) as raised:
            await client.create(JOBS, recorded_job("another"), namespace="default")
        assert str(raised.value) == READ_ONLY_ERROR
        assert (await client.get(JOBS, KEY))["metadata"]["name"] == "small"


async def test_every_job_kind_is_served_even_if_none_was_run(home: PlaneHome) -> None:
    archive_interrupted_run(home)
    async with open_archive(home.folder) as transport:
        for kind in TRAINING_KINDS:
            page = await Client(transport).list(kind.resource)
            assert len(page.items) == (1 if kind.kind == "TFJob" else 0)


async def test_an_empty_archive_is_an_empty_server(home: PlaneHome) -> None:
    async with open_archive(home.folder) as transport:
        with pytest.raises(NotFound):
            await Client(transport).get(JOBS, KEY)

"""What carries a folder, on the real server and on ours: it is taken as we send it, and goes with the job."""

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB, PyTorchJob, PyTorchJobSpec
from gangline.api.meta import JSON, Key, ObjectMeta, Selector
from gangline.kube.client import Client
from gangline.kube.options import WriteOptions
from gangline.sdk.build.pod_templates import pod_specs
from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.manifests import ShipmentForm, plan_shipment
from gangline.sdk.ship.upload import CONFIG_MAPS, VOLUME_CLAIMS, ShippingFailed, ShipRequest, ship_folder
from gangline.testing.clock import FakeClock

JOB = {
    "metadata": {"name": "train"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {
                "replicas": 2,
                "template": {
                    "spec": {"containers": [{"name": "pytorch", "image": "i", "command": ["python", "train.py"]}]}
                },
            }
        }
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "a b" / "..c").mkdir(parents=True)
    (found / "a b" / "..c" / "run.sh").write_text("")
    (found / "a b" / "..c" / "run.sh").chmod(0o755)
    (found / ".hidden").write_bytes(b"\xff")
    (found / "train.py").write_text("print('ü\t\\r')\n")
    return found


def order(folder: Path, tmp_path: Path, namespace: str) -> ShipRequest:
    return ShipRequest(plan_shipment(list_files(folder), tmp_path), PYTORCHJOB, JOB, Key(namespace, "train"))


def owner(namespace: str) -> PyTorchJob:
    metadata = ObjectMeta(name="train", namespace=namespace, uid="8d2f3f6a-0000-4000-8000-000000000000")
    return PyTorchJob(metadata=metadata, spec=PyTorchJobSpec(pytorch_replica_specs={}))


def quiet(text: str) -> None:
    """Nobody listens."""


async def accepts(client: Client, namespace: str, body: JSON) -> None:
    """The server takes a pod of the job's template."""
    dry = client.with_options(WriteOptions(dry_run=True))
    for spec in pod_specs(body, PYTORCHJOB):
        await dry.create(Pod, {"metadata": {"name": "p", "namespace": namespace}, "spec": spec})


async def carriers(client: Client, namespace: str) -> list[str]:
    found = [
        body["metadata"]["name"]
        for kind in (CONFIG_MAPS, VOLUME_CLAIMS)
        for body in (await client.list(kind, Selector(namespace, labels="training.gangline.dev/parcel=train"))).items
    ]
    pods = await client.list(Pod, Selector(namespace, labels="training.gangline.dev/parcel=train"))
    return [*found, *(pod.metadata.name for pod in pods.items)]


@pytest.mark.parametrize("form", [ShipmentForm.FILES, ShipmentForm.ARCHIVE])
async def test_a_config_map_is_taken_and_belongs_to_the_job(
    client: Client, namespace: str, folder: Path, tmp_path: Path, form: ShipmentForm
) -> None:
    if form is ShipmentForm.ARCHIVE:
        (folder / "noise").write_bytes(Random(6).randbytes(800 * 1024))
        (folder / "zeros").write_bytes(bytes(200 * 1024))
    wanted = order(folder, tmp_path, namespace)
    assert wanted.shipment.form is form
    async with ship_folder(client, wanted, FakeClock(), quiet) as found:
        await accepts(client, namespace, found.body)
        await found.set_owner(owner(namespace))
    body = await client.get(CONFIG_MAPS, found.source_key)
    assert [each["name"] for each in body["metadata"]["ownerReferences"]] == ["train"]


async def test_as_much_as_a_config_map_is_asked_to_hold_is_taken(
    client: Client, namespace: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "noise").write_bytes(Random(6).randbytes(900 * 1024 - 100))
    wanted = order(folder, tmp_path, namespace)
    assert wanted.shipment.form is ShipmentForm.FILES
    async with ship_folder(client, wanted, FakeClock(), quiet) as found:
        assert (await client.get(CONFIG_MAPS, found.source_key))["immutable"]


async def test_what_belongs_to_no_job_is_taken_back(
    client: Client, namespace: str, folder: Path, tmp_path: Path
) -> None:
    async with ship_folder(client, order(folder, tmp_path, namespace), FakeClock(), quiet) as found:
        assert await carriers(client, namespace) == [found.source_key.name]
    assert await carriers(client, namespace) == []


async def test_a_claim_that_nobody_fills_is_taken_back_and_it_is_told_why(
    client: Client, namespace: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "noise").write_bytes(Random(6).randbytes(2**20))
    wanted = order(folder, tmp_path, namespace)
    assert wanted.shipment.form is ShipmentForm.CLAIM
    # Nothing runs pods here.
    with pytest.raises(
        ShippingFailed, match=r"which is to receive the folder, does not run: Pending; .*--storage-class"
    ):
        async with ship_folder(client, wanted, FakeClock(), quiet, timedelta(seconds=-1)):
            pass
    left = await client.list(VOLUME_CLAIMS, Selector(namespace))
    # Kept by a finalizer until who keeps claims has looked at it.
    assert all(body["metadata"]["deletionTimestamp"] for body in left.items)
    assert not (await client.list(Pod, Selector(namespace))).items

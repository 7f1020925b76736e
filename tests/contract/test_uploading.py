"""A large folder on its way into a pod, through a real server and a kubelet."""

import hashlib
from pathlib import Path
from random import Random

import pytest

from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.manifests import Shipment, plan_shipment
from gangline.sdk.ship.upload import ShippingFailed, upload_archive
from support.builders.objects import create_node, create_running_pod, pod_body, unique_name
from support.servers.real import RealServer


@pytest.fixture
def server(real_server: RealServer, tmp_path: Path) -> Connection:
    """Only the real server goes through a kubelet."""
    real_server.revive()
    return load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)


@pytest.fixture
async def placed(client: Client, namespace: str, kubelet_port: int) -> Key:
    """A pod on a node that has a kubelet, whose commands run on this machine."""
    name = unique_name("node")
    await create_node(client, name, kubelet_port)
    made = await create_running_pod(client, pod_body("one", namespace, nodeName=name))
    return made.metadata.key


@pytest.fixture
def shipment(tmp_path: Path) -> Shipment:
    project = tmp_path / "project"
    project.mkdir()
    (project / "weights").write_bytes(Random(6).randbytes(5 * 2**20))
    return plan_shipment(list_files(project), tmp_path)


async def test_what_arrives_is_what_was_sent(client: Client, placed: Key, shipment: Shipment, tmp_path: Path) -> None:
    there = tmp_path / "there.tar.gz"
    await upload_archive(client, placed, shipment, str(there), container="main")
    assert hashlib.sha256(there.read_bytes()).hexdigest() == shipment.digest


async def test_what_cannot_be_written_is_told(client: Client, placed: Key, shipment: Shipment) -> None:
    # Known before anything is sent.
    with pytest.raises(ShippingFailed, match=r"pod one cannot keep the folder: dd: .*/nowhere/x"):
        await upload_archive(client, placed, shipment, "/nowhere/x", container="main")


async def test_what_arrives_otherwise_is_refused(client: Client, placed: Key, shipment: Shipment) -> None:
    with pytest.raises(ShippingFailed, match="did not arrive in pod one as it was sent: its sum is another one"):
        await upload_archive(client, placed, shipment, "/dev/null", container="main")

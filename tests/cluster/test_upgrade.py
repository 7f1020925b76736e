"""Upgrade from the image of the commit before, and back, while jobs run."""

from datetime import UTC, datetime

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.installation import NAMESPACE
from support.nodes.jobs import IMAGE, pods_of, release, uids, waiting_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

PREVIOUS = "gangline:previous"
JOBS = 20


def upgrade(cluster: NodeCluster, image: str) -> None:
    done = cluster.gangline("upgrade", "--image", image, seconds=330)
    assert done.code == 0, done
    images = {
        pod["spec"]["containers"][0]["image"]
        for pod in cluster.objects("pods", NAMESPACE)
        if "deletionTimestamp" not in pod["metadata"]
    }
    assert images == {image}


def test_no_pod_is_restarted_by_an_upgrade_or_a_rollback(installed: NodeCluster, namespace: str) -> None:
    upgrade(installed, PREVIOUS)
    began = datetime.now(UTC)
    names = [f"job-{number}" for number in range(JOBS)]
    installed.apply(*(waiting_job(name) for name in names), namespace=namespace)
    for name in names:
        installed.wait(f"tfjob/{name}", "Running", namespace)
    before = uids({pod: body for name in names for pod, body in pods_of(installed, namespace, name).items()})
    assert len(before) == JOBS

    for image in (IMAGE, PREVIOUS, IMAGE):
        upgrade(installed, image)
    after = uids({pod: body for name in names for pod, body in pods_of(installed, namespace, name).items()})
    assert after == before

    release(installed, namespace)
    for name in names:
        installed.wait(f"tfjob/{name}", "Succeeded", namespace)
    requests = [
        (line["verb"], line["responseStatus"]["code"])
        for line in installed.audit(began, ["create", "delete", "deletecollection"], "pods")
        if line["objectRef"].get("namespace") == namespace and "subresource" not in line["objectRef"]
    ]
    assert requests == [("create", 201)] * JOBS

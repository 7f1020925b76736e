"""The objects that the words after `gangline delete` name."""

from datetime import timedelta

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import ServerTarget
from gangline.cli.jobs.delete import DeleteFlags, delete_targets
from gangline.kube.config.connection import Connection
from gangline.kube.errors import NotFound
from gangline.kube.options import DeletionPropagation
from gangline.operator.definitions import create_crds
from gangline.summary.objects import JOB_KINDS
from gangline.testing.cluster import local_cluster

TFJOB = next(kind for kind in JOB_KINDS if kind.kind == "TFJob")
CONTAINER = {"name": "tensorflow", "image": "x"}
OPTIONS = DeleteFlags(
    propagation=DeletionPropagation.BACKGROUND,
    grace=None,
    wait=False,
    timeout=timedelta(),
    dry_run="none",
    ignore_not_found=False,
    selector="",
    all_of_kind=False,
    name_only=False,
)
SPEC = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [CONTAINER]}}}}}


async def test_a_kind_that_only_the_server_knows_may_precede_names() -> None:
    target = ServerTarget(Connection(server=""), "default")

    async with local_cluster() as plane:

        async def named(*words: str) -> list[tuple[str, Key]]:
            items = [item async for item in delete_targets(plane.client, target, words, OPTIONS)]
            return [(item.resource.kind, item.key) for item in items]

        await create_crds(plane.client, SystemClock(), [kind for kind in TRAINING_KINDS if kind.kind == "TFJob"])
        assert await named("queue", "a", "b") == [("Queue", Key("", "a")), ("Queue", Key("", "b"))]
        assert await named("gang", "bert") == [("PodGroup", Key("default", "bert"))]
        with pytest.raises(NotFound, match='no training job "zork"'):
            await named("zork", "a")
        for name in ("queue", "bert"):
            await plane.client.create(TFJOB, {"metadata": {"name": name}, "spec": SPEC}, namespace="default")
        # A job of that name wins: a word that names a job alone must not name a kind before another word.
        assert await named("queue", "bert") == [
            ("TFJob", Key("default", "queue")),
            ("TFJob", Key("default", "bert")),
        ]

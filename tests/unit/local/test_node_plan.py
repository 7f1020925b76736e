"""What the node does about a pod."""

from datetime import UTC, datetime

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.local.node.plan import Step, step
from gangline.testing.builders import make_pod


def deleted(pod: Pod) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.parametrize(
    ("pod", "started", "alive", "expected"),
    [
        (make_pod(phase="Pending"), False, False, Step.START),
        (make_pod(phase="Pending"), True, False, Step.NOTHING),
        (make_pod(phase="Running"), True, True, Step.NOTHING),
        (make_pod(phase="Succeeded"), False, False, Step.NOTHING),
        (deleted(make_pod(phase="Running")), True, True, Step.STOP),
        (deleted(make_pod(phase="Running")), True, False, Step.RELEASE),
        (deleted(make_pod(phase="Pending")), False, False, Step.RELEASE),
    ],
)
def test_next_step(pod: Pod, started: bool, alive: bool, expected: Step) -> None:
    assert step(pod, started=started, alive=alive) is expected

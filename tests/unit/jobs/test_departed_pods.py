"""The last states of pods that are gone are remembered for a while: one of them may have been the first to fail."""

from datetime import timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import OwnerReference
from gangline.jobs.observer import DepartedPods
from gangline.jobs.plan.failures.records import REVISION_TIME
from gangline.runtime.informer import Delta, Informer
from gangline.testing.builders import make_member
from gangline.testing.clock import FakeClock
from support.servers.flaky_reader import ModelServer


def pod(index: int, job: str = "job-uid", phase: str = "Failed") -> Pod:
    made = make_member("Worker", index, phase=phase, uid=f"{job}-{index}")
    owner = OwnerReference(kind="TFJob", name="job", uid=job, controller=True)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=(owner,)))


async def test_pods_that_went_since_a_time_are_remembered_as_long_as_they_may_correct_a_failure() -> None:
    clock = FakeClock()
    informer: Informer[Pod] = Informer(ModelServer(), Pod, clock=clock)
    departed = DepartedPods(informer, clock)
    with departed.attach(lambda key: None):
        informer._notify(Delta(pod(0), None))
        await clock.advance(timedelta(seconds=1))
        ended_at = clock.now()
        informer._notify(Delta(pod(1), None))
        informer._notify(Delta(pod(2, "other"), None))
        informer._notify(Delta(pod(3, phase="Succeeded"), None))
        informer._notify(Delta(pod(4), pod(4)))
    assert departed.since("job-uid", ended_at) == (pod(1),)
    assert departed.since("job-uid", ended_at - timedelta(seconds=1)) == (pod(0), pod(1))
    with departed.attach(lambda key: None):
        await clock.advance(REVISION_TIME + timedelta(seconds=1))
        informer._notify(Delta(pod(5), None))
    assert departed.since("job-uid", ended_at) == (pod(5),)

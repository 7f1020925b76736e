"""Waiting for Deployments: what is said, and when it ends."""

import io
from datetime import timedelta
from typing import Any

import pytest

from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.record import ObjectRef
from gangline.cli.install.screen import InstallScreen
from gangline.cli.install.waiting import NotReady, Waiter, events_of, is_leaving
from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response
from gangline.testing.clock import FakeClock
from support.servers.scripted import ScriptedTransport, json_response, refusal_response

REF = ObjectRef("apps/v1", "Deployment", "gangline", "gangline-operator")
CONTAINERS = [{"name": "operator", "image": "gangline:1"}]
READY = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1}


class ImpatientClock(FakeClock):
    """A clock on which a sleep takes no time."""

    async def sleep(self, duration: timedelta) -> None:
        self._elapsed += duration


class ClusterScript:
    """A Deployment whose pod crashes until it becomes ready at a look, if ever."""

    def __init__(self, ready_at: int = 1000, *, log: bytes = b"error: another operator\n") -> None:
        self._ready_at, self._log, self._looks = ready_at, log, 0

    def __call__(self, request: Request) -> Response:
        if request.path.endswith("/deployments/gangline-operator"):
            self._looks += 1
            spec = {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "gangline"}},
                "template": {"spec": {"containers": CONTAINERS}},
            }
            metadata = {"name": REF.name, "namespace": REF.namespace, "generation": 1}
            status = READY if self._looks >= self._ready_at else {}
            return json_response({"metadata": metadata, "spec": spec, "status": status})
        if request.path.endswith("/log"):
            return Response(200, self._log)
        if request.path.endswith("/pods"):
            assert ("labelSelector", "app=gangline") in request.query
            return json_response({"items": [self._pod()], "metadata": {}})
        if request.path.endswith("/events"):
            return refusal_response(403, "events is forbidden", "Forbidden")
        raise AssertionError(request.path)

    @staticmethod
    def _pod() -> Any:
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {"name": "operator", "state": state, "lastState": {"terminated": {"exitCode": 1}}}
        metadata = {"name": "gangline-operator-1", "namespace": "gangline"}
        return {"metadata": metadata, "spec": {"containers": CONTAINERS}, "status": {"containerStatuses": [container]}}


def waiter(script: ClusterScript, stream: io.StringIO, timeout: float = 10) -> Waiter:
    objects = ClusterObjects(Client(ScriptedTransport(script)))
    return Waiter(objects, InstallScreen(stream), ImpatientClock(), timedelta(seconds=timeout))


async def test_what_does_not_become_ready_says_what_its_pod_wrote_last() -> None:
    stream = io.StringIO()
    with pytest.raises(NotReady) as error:
        await waiter(ClusterScript(), stream).wait_for_rollouts([REF])
    assert error.value.timed_out
    assert str(error.value) == (
        "gangline-operator: 0/1 ready, pod gangline-operator-1: it ends with code 1: error: another operator;"
        " not ready after 10 s, longer with --timeout"
    )
    # The same again and again is one line.
    assert stream.getvalue().count("\n") == 1


async def test_without_a_limit_it_waits_until_it_is_ready() -> None:
    stream = io.StringIO()
    await waiter(ClusterScript(ready_at=500), stream, timeout=0).wait_for_rollouts([REF])
    assert stream.getvalue().splitlines()[-1] == "gangline-operator: 1/1 ready"


@pytest.mark.parametrize(
    ("phase", "deleted", "awaited"),
    [("Running", False, True), ("Running", True, True), ("Succeeded", True, True), ("Failed", False, False)],
)
def test_pods_are_awaited_until_they_are_gone(phase: str, deleted: bool, awaited: bool) -> None:
    metadata = {"name": "p", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    assert is_leaving({"metadata": metadata, "status": {"phase": phase}}) is awaited


def test_an_event_about_a_service_of_the_same_name_is_not_the_deployments() -> None:
    events = [{"involvedObject": {"kind": kind, "name": "gangline-operator"}} for kind in ("Service", "Deployment")]
    assert events_of(events, {"gangline-operator"}) == events[1:]

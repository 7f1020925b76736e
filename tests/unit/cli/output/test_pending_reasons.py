"""Why jobs wait for their pods."""

from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.cli.output.pending_reasons import PODGROUPS, pending_reasons, pod_reasons, podgroup_reasons
from gangline.kube.errors import KubeError


def group(name: str, phase: str, message: str) -> JSON:
    state = {"phase": phase, "message": message}
    return {"metadata": {"namespace": "team", "name": name}, "status": {"state": state}}


def pod(name: str, job: str, **status: Any) -> JSON:
    labels = {"training.kubeflow.org/job-name": job}
    return {"metadata": {"namespace": "team", "name": name, "labels": labels}, "status": status}


def job(name: str, *conditions: str) -> JSON:
    items = [{"type": name, "status": "True"} for name in conditions]
    return {"metadata": {"namespace": "team", "name": name}, "status": {"conditions": items}}


UNPLACED = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: no nodes."}]


def test_the_reason_of_a_gang_is_its_schedulers_message_unless_it_runs() -> None:
    reasons = podgroup_reasons(
        [
            group("a", "Pending", "0/4 members running; gang needs 4 gpu, 2 free"),
            group("b", "Running", "4/4 members running"),
            group("c", "Pending", ""),
        ]
    )
    assert reasons == {Key("team", "a"): "gang needs 4 gpu, 2 free"}


def test_the_first_stuck_pod_of_a_job_gives_the_reason() -> None:
    waiting = [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    young = [{"state": {"waiting": {"reason": "ContainerCreating"}}}]
    reasons = pod_reasons(
        [
            pod("a-worker-1", "a", conditions=UNPLACED),
            pod("a-worker-0", "a", containerStatuses=waiting),
            pod("b-worker-0", "b", containerStatuses=young),
            pod("c-worker-0", "c", conditions=UNPLACED),
        ]
    )
    assert reasons == {
        Key("team", "a"): "worker-0: ImagePullBackOff",
        Key("team", "c"): "worker-0: 0/1 nodes are available: no nodes",
    }


class Served:
    """A client that records which kinds were listed."""

    def __init__(self, groups: list[JSON] | None, pods: list[JSON]) -> None:
        self._groups, self._pods = groups, pods
        self.requests: list[str] = []

    async def list(self, kind: Resource[JSON], selector: Selector) -> Any:
        self.requests.append(f"{kind.plural} {selector.labels}".strip())
        if kind is PODGROUPS and self._groups is None:
            raise KubeError("the server could not find the requested resource")
        bodies = self._groups if kind is PODGROUPS else self._pods
        return type("Page", (), {"items": bodies})


async def test_no_request_is_sent_unless_a_job_waits() -> None:
    server: Any = Served([], [])
    assert await pending_reasons(server, [job("a", "Created", "Running"), job("b", "Succeeded"), job("new")], "") == {}
    assert server.requests == []


async def test_a_preempted_job_has_the_reason_of_its_gang() -> None:
    """It is Running, but its pods are gone. The gang of a job that runs with fewer replicas gives no reason."""
    specs = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    preempted, fewer, complete = (
        {**job(name, "Created", "Running"), "spec": specs} for name in ("gone", "fewer", "whole")
    )
    complete["status"]["replicaStatuses"] = {"Worker": {"active": 4}}
    fewer["status"]["replicaStatuses"] = {"Worker": {"active": 3}}
    groups = [
        group("gone", "Recovering", "0/4 members running; no room"),
        group("fewer", "Running", "3/2 members running"),
    ]
    server: Any = Served(groups, [])
    assert await pending_reasons(server, [preempted, fewer, complete], "") == {Key("team", "gone"): "no room"}
    assert await pending_reasons(server, [complete], "") == {}


async def test_pods_are_listed_if_no_gang_gives_a_reason_even_on_a_server_without_gangs() -> None:
    unplaced = [pod("b-worker-0", "b", conditions=UNPLACED)]
    server: Any = Served([group("a", "Pending", "no room")], unplaced)
    reasons = await pending_reasons(server, [job("a", "Created"), job("b", "Created")], "team")
    assert {key.name: message for key, message in reasons.items()} == {
        "a": "no room",
        "b": "worker-0: 0/1 nodes are available: no nodes",
    }
    assert server.requests == ["podgroups", "pods training.kubeflow.org/job-name in (b)"]
    assert await pending_reasons(Served([group("a", "Pending", "x")], []), [job("a", "Created")], "") != {}  # type: ignore[arg-type]
    unknown: Any = Served(None, unplaced)
    assert list(await pending_reasons(unknown, [job("b", "Created")], "team")) == [Key("team", "b")]

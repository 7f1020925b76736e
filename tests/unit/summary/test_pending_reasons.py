"""Why jobs wait for their pods."""

from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.kube.errors import KubeError
from gangline.summary.job_rows import PodDetails
from gangline.summary.pending_reasons import (
    MAX_JOBS_QUERIED,
    event_reasons,
    pod_details,
    pod_reasons,
    podgroup_reasons,
    read_pod_details,
    ready_counts,
)


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
    """A client that records which kinds were listed; a kind that it does not have is an error."""

    def __init__(self, **items: list[JSON]) -> None:
        self._items = items
        self.requests: list[str] = []

    async def list(self, kind: Resource[JSON], selector: Selector) -> Any:
        self.requests.append(" ".join(filter(None, (kind.plural, selector.labels, selector.fields))))
        if kind.plural not in self._items:
            raise KubeError("the server could not find the requested resource")
        return type("Page", (), {"items": self._items[kind.plural]})


async def reasons_of(server: Served, *jobs: JSON, namespace: str = "") -> dict[str, str]:
    details = await read_pod_details(server, jobs, namespace)  # type: ignore[arg-type]
    return {key.name: detail.reason for key, detail in details.items() if detail.reason}


async def test_no_request_is_sent_unless_a_job_waits() -> None:
    server = Served()
    assert await reasons_of(server, job("a", "Created", "Running"), job("b", "Succeeded"), job("new")) == {}
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
    assert await reasons_of(Served(podgroups=groups), preempted, fewer, complete) == {"gone": "no room"}
    assert await reasons_of(Served(podgroups=groups), complete) == {}


async def test_pods_are_listed_if_no_gang_gives_a_reason_even_on_a_server_without_gangs() -> None:
    unplaced = [pod("b-worker-0", "b", conditions=UNPLACED)]
    server = Served(podgroups=[group("a", "Pending", "no room")], pods=unplaced)
    assert await reasons_of(server, job("a", "Created"), job("b", "Created"), namespace="team") == {
        "a": "no room",
        "b": "worker-0: 0/1 nodes are available: no nodes",
    }
    assert server.requests == ["podgroups", "pods training.kubeflow.org/job-name in (b)"]
    assert list(await reasons_of(Served(pods=unplaced), job("b", "Created"))) == ["b"]


async def test_many_waiting_jobs_are_one_request_for_all_pods_of_jobs() -> None:
    jobs = [job(f"j{number}", "Created") for number in range(MAX_JOBS_QUERIED + 1)]
    server = Served(pods=[pod("j50-worker-0", "j50", conditions=UNPLACED)], events=[])
    assert list(await reasons_of(server, *jobs)) == ["j50"]
    assert "pods training.kubeflow.org/job-name" in server.requests


def event(name: str, message: str, *, reason: str = "FailedMount", at: str = "2026-01-01T00:00:00Z") -> JSON:
    return {
        "metadata": {"namespace": "team", "name": f"{name}.1"},
        "involvedObject": {"name": name},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


async def test_a_pod_that_waits_for_a_volume_is_explained_by_its_event() -> None:
    """The pod's own status says ContainerCreating, as of every young pod."""
    young = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}
    events = [
        event("a-worker-0", 'MountVolume.SetUp failed for volume "d" : configmap "settings" not found'),
        event("a-b-worker-0", "of another job"),
        event("a-worker-0", "is no reason to wait", reason="Unhealthy", at="2026-01-02T00:00:00Z"),
    ]
    server = Served(podgroups=[], pods=[pod("a-worker-0", "a", **young)], events=events)
    assert await reasons_of(server, job("a", "Created")) == {"a": 'worker-0: configmap "settings" not found'}
    assert server.requests[-1] == "events type=Warning"


async def test_a_job_without_pods_is_explained_by_its_own_event() -> None:
    events = [event("a", "Error creating: exceeded quota: gpus", reason="FailedCreatePod")]
    server = Served(podgroups=[], pods=[], events=events)
    assert await reasons_of(server, job("a", "Created")) == {"a": "Error creating: exceeded quota: gpus"}


def test_of_several_events_the_newest_of_the_first_pod_counts() -> None:
    """So that the reason does not change with every event that repeats itself."""
    owners = {Key("team", name): Key("team", "a") for name in ("a-worker-0", "a-worker-1")}
    events = [
        event("a-worker-0", "old", at="2026-01-01T00:00:00Z"),
        event("a-worker-0", "new", at="2026-01-01T00:01:00Z"),
        event("a-worker-1", "newer", at="2026-01-01T00:02:00Z"),
    ]
    assert event_reasons(events, owners) == {Key("team", "a"): "worker-0: new"}


async def test_a_job_that_kueue_has_not_admitted_has_kueues_message() -> None:
    held = job("a", "Suspended")
    held["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    conditions = [{"type": "QuotaReserved", "status": "False", "message": "couldn't assign flavors"}]
    metadata = {"namespace": "team", "name": "w", "ownerReferences": [{"name": "a"}]}
    server = Served(workloads=[{"metadata": metadata, "status": {"conditions": conditions}}])
    assert await reasons_of(server, held, job("b", "Suspended")) == {"a": "couldn't assign flavors"}
    assert server.requests == ["workloads"]


def test_reasons_name_the_image_the_missing_object_and_the_exit_code() -> None:
    def reason(**container: Any) -> str:
        return pod_reasons([pod("a-worker-0", "a", containerStatuses=[container])])[Key("team", "a")]

    assert reason(image="x:1", state={"waiting": {"reason": "ErrImagePull"}}) == "worker-0: ErrImagePull x:1"
    missing = {"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}
    assert reason(state={"waiting": missing}) == 'worker-0: secret "s" not found'
    crash = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}}}
    assert reason(**crash) == "worker-0: CrashLoopBackOff, exit 3"


READY = [{"type": "Ready", "status": "True"}]


def test_a_pod_that_runs_and_is_not_ready_waits_for_its_probe() -> None:
    running = {"name": "main", "ready": False, "started": True, "state": {"running": {}}}
    unready = pod("a-worker-0", "a", phase="Running", containerStatuses=[running])
    unready["spec"] = {"containers": [{"name": "main", "readinessProbe": {"exec": {}}}]}
    pods = [unready, pod("a-worker-1", "a", phase="Running", conditions=READY)]
    assert pod_reasons(pods) == {Key("team", "a"): "worker-0: not ready: its readiness probe has not succeeded"}
    assert ready_counts(pods) == {Key("team", "a"): 1}


async def test_the_pods_of_a_running_job_are_looked_at_only_if_they_may_run_without_being_ready() -> None:
    plain, probed = job("a", "Running"), job("b", "Running")
    for body, policy in ((plain, "Never"), (probed, "OnFailure")):
        body["spec"] = {"pytorchReplicaSpecs": {"Worker": {"restartPolicy": policy, "template": {}}}}
        body["status"]["replicaStatuses"] = {"Worker": {"active": 1}}
    server = Served(pods=[pod("b-worker-0", "b", phase="Running")])
    details = await read_pod_details(server, [plain, probed], "")  # type: ignore[arg-type]
    assert details == {Key("team", "b"): PodDetails("", 0)}
    assert server.requests == ["pods training.kubeflow.org/job-name in (b)"]


def test_details_of_one_job_come_from_the_pods_and_events_at_hand() -> None:
    young = [pod("a-worker-0", "a", phase="Pending")]
    assert pod_details(job("a", "Created"), young, [event("a-worker-0", "no disk")]) == PodDetails(
        "worker-0: no disk", 0
    )
    assert pod_details(job("a", "Succeeded"), [], []) == PodDetails()

"""Whether a Deployment is ready, and what its pods say."""

from typing import Any

from gangline.api.meta import JSON
from gangline.cli.install.readiness import crashing_pods, is_established, rollout

IMAGE = "registry.example/gangline:0.1.0"


def deployment(**status: Any) -> JSON:
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"image": IMAGE}]}}}
    return {"metadata": {"name": "gangline-operator", "generation": 2}, "spec": spec, "status": status}


def pod(name: str = "gangline-operator-1", **status: Any) -> JSON:
    spec = {"containers": [{"image": IMAGE}]}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending", **status}}


def waiting(reason: str, message: str = "", **more: Any) -> JSON:
    return {"image": IMAGE, "state": {"waiting": {"reason": reason, "message": message}}, **more}


def event(message: str, name: str = "gangline-operator-1", at: str = "2026-01-01T00:00:00Z") -> JSON:
    return {"involvedObject": {"name": name}, "message": message, "lastTimestamp": at}


READY = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}


def test_ready_is_what_kubectl_rollout_status_calls_so() -> None:
    assert rollout(deployment(**READY), (), ()).is_complete
    for change in ({"observedGeneration": 1}, {"updatedReplicas": 1}, {"replicas": 3}, {"availableReplicas": 1}):
        assert not rollout(deployment(**{**READY, **change}), (), ()).is_complete


def test_a_deployment_without_replicas_is_ready() -> None:
    stopped = {**deployment(observedGeneration=2), "spec": {"replicas": 0}}
    assert rollout(stopped, (), ()).is_complete


def test_an_image_that_cannot_be_pulled_is_hopeless_and_the_event_says_why() -> None:
    events = [event(f'Failed to pull image "{IMAGE}": not found'), event("Error: ImagePullBackOff", at="2026-01-02")]
    state = rollout(deployment(), [pod(containerStatuses=[waiting("ImagePullBackOff", "Back-off")])], events)
    assert state.is_hopeless
    assert state.text == (
        f'0/2 ready, pod gangline-operator-1: ImagePullBackOff {IMAGE}: Failed to pull image "{IMAGE}": not found'
    )


def test_pods_of_an_earlier_image_are_about_to_go() -> None:
    older = pod(containerStatuses=[waiting("ImagePullBackOff")]) | {"spec": {"containers": [{"image": "broken"}]}}
    assert rollout(deployment(), [older], []).text == "0/2 ready"


def test_the_first_failure_to_pull_may_be_a_passing_one() -> None:
    state = rollout(deployment(), [pod(containerStatuses=[waiting("ErrImagePull", "timed out")])], [])
    assert not state.is_hopeless
    assert state.problem == f"pod gangline-operator-1: ErrImagePull {IMAGE}: timed out"


def test_a_pod_that_fits_nowhere_says_so() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available:\n no cpu"}
    state = rollout(deployment(), [pod(conditions=[condition])], [])
    assert state.problem == "pod gangline-operator-1: 0/3 nodes are available: no cpu"
    assert not state.is_hopeless


def test_a_container_that_ends_says_how() -> None:
    ended = {"terminated": {"exitCode": 1, "message": "error: another operator\n"}}
    status = waiting("CrashLoopBackOff", lastState=ended)
    assert rollout(deployment(), [pod(containerStatuses=[status])], []).problem == (
        "pod gangline-operator-1: it ends with code 1: error: another operator"
    )


def test_the_log_says_why_where_the_status_does_not() -> None:
    crashing = pod(containerStatuses=[waiting("CrashLoopBackOff", lastState={"terminated": {"exitCode": 1}})])
    assert crashing_pods([crashing, pod()]) == [crashing]
    state = rollout(deployment(), [crashing], [], {"gangline-operator-1": "error: another operator"})
    assert state.problem == "pod gangline-operator-1: it ends with code 1: error: another operator"


def test_why_there_are_no_pods() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'pods is forbidden: exceeded quota "team"'}
    assert rollout(deployment(conditions=[failure]), [], []).problem == 'pods is forbidden: exceeded quota "team"'


def test_pods_that_are_on_their_way_are_no_problem() -> None:
    assert rollout(deployment(), [pod(containerStatuses=[waiting("ContainerCreating")])], []).text == "0/2 ready"


def test_a_definition_is_served_when_it_is_established() -> None:
    assert is_established({"status": {"conditions": [{"type": "Established", "status": "True"}]}})
    assert not is_established({"status": {"conditions": [{"type": "NamesAccepted", "status": "True"}]}})
    assert not is_established({})

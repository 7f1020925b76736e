"""Pods: defaults, server-set fields, validation, changes."""

import copy
from typing import Any

import pytest

from gangline.api.in_place import IN_PLACE_ANNOTATION
from gangline.api.quantity import QuantityError
from gangline.apiserver.kinds.pod.defaults import default_pull_policy
from gangline.apiserver.kinds.pod.update import validate_pod_status_update
from gangline.apiserver.registry.strategies import strategy_for

JSON = dict[str, Any]
NOW = "2024-01-01T00:00:00Z"
pods = strategy_for("", "Pod")


def prepared_pod(spec: JSON, **meta: Any) -> JSON:
    """A pod as the registry passes it to `validate`."""
    pod: JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", **meta}, "spec": spec}
    pods.normalize(pod)
    pods.prepare_for_create(pod, NOW)
    return pod


def container(**fields: Any) -> JSON:
    return {"name": "c", "image": "x:1", **fields}


def problem_texts(pod: JSON) -> list[str]:
    return [str(problem) for problem in pods.validate(pod)]


def test_plain_pod_gets_every_default() -> None:
    spec = prepared_pod({"containers": [container()]})["spec"]
    assert spec == {
        "containers": [
            {
                "name": "c",
                "image": "x:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"effect": "NoExecute", "key": f"node.kubernetes.io/{what}", "operator": "Exists", "tolerationSeconds": 300}
            for what in ("not-ready", "unreachable")
        ],
    }


def test_defaults_are_the_same_the_second_time() -> None:
    pod = prepared_pod(
        {
            "containers": [
                container(
                    resources={"limits": {"cpu": "1000m"}},
                    livenessProbe={"httpGet": {"port": 80}},
                    env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                )
            ],
            "volumes": [{"name": "a"}, {"name": "s", "secret": {"secretName": "s"}}],
        }
    )
    again = copy.deepcopy(pod)
    pods.normalize(again)
    assert again == pod


@pytest.mark.parametrize(
    ("limits", "stored"),
    [
        ({"cpu": "1000m", "memory": "0.5Gi"}, {"cpu": "1", "memory": "512Mi"}),
        ({"cpu": "0.0001", "memory": 1500000000}, {"cpu": "1m", "memory": "1500M"}),
        ({"cpu": 2, "memory": "1e9"}, {"cpu": "2", "memory": "1e9"}),
    ],
)
def test_limits_are_canonical_and_become_requests(limits: JSON, stored: JSON) -> None:
    resources = prepared_pod({"containers": [container(resources={"limits": limits})]})["spec"]["containers"][0][
        "resources"
    ]
    assert resources == {"limits": stored, "requests": stored}


def test_unreadable_amount_is_for_the_caller_to_answer() -> None:
    with pytest.raises(QuantityError):
        prepared_pod({"containers": [container(resources={"limits": {"cpu": "much"}})]})


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("host:5000/x:1", "IfNotPresent"),
        (f"x@sha256:{'0' * 64}", "IfNotPresent"),
        (f"x:latest@sha256:{'0' * 64}", "Always"),
        ("Not An Image", "IfNotPresent"),
    ],
)
def test_only_the_latest_image_is_always_pulled(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy


def test_status_of_a_new_pod_is_the_servers() -> None:
    pod = prepared_pod({"containers": [container()]})
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert pod["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service_follows_the_resources(resources: JSON, expected: str) -> None:
    assert prepared_pod({"containers": [container(resources=resources)]})["status"]["qosClass"] == expected


def test_gated_pod_says_why_it_is_not_scheduled() -> None:
    pod = prepared_pod({"containers": [container()], "schedulingGates": [{"name": "a.io/b"}]})
    [condition] = pod["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")


def test_pod_that_tolerates_everything_gets_no_more_tolerations() -> None:
    pod = prepared_pod({"containers": [container()], "tolerations": [{"operator": "Exists"}]})
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_good_pod_has_no_problems() -> None:
    pod = prepared_pod(
        {
            "containers": [
                container(
                    resources={"limits": {"cpu": "1", "nvidia.com/gpu": "8"}},
                    ports=[{"name": "http", "containerPort": 80}],
                    env=[{"name": "A", "value": "1"}],
                    volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
                )
            ],
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        },
        labels={"a.io/b": "c"},
    )
    assert problem_texts(pod) == []


def test_problems_name_the_exact_field() -> None:
    pod = prepared_pod(
        {
            "containers": [
                container(name="A"),
                container(image="", ports=[{"containerPort": 0}], volumeMounts=[{"name": "no", "mountPath": ""}]),
            ],
            "restartPolicy": "Sometimes",
        }
    )
    fields = [problem.field for problem in pods.validate(pod)]
    assert fields == [
        "spec.containers[0].name",
        "spec.containers[1].image",
        "spec.containers[1].ports[0].containerPort",
        "spec.containers[1].volumeMounts[0].name",
        "spec.containers[1].volumeMounts[0].mountPath",
        "spec.restartPolicy",
    ]


def test_gpu_requests_need_equal_limits() -> None:
    resources = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}
    assert problem_texts(prepared_pod({"containers": [container(resources=resources)]})) == [
        'spec.containers[0].resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2'
    ]


def updated_pod(old: JSON, **changes: Any) -> JSON:
    new = copy.deepcopy(old)
    new["spec"].update(changes)
    return new


@pytest.fixture
def stored() -> JSON:
    return prepared_pod({"containers": [container()]}, uid="u", resourceVersion="1", creationTimestamp=NOW)


def test_image_may_change_and_counts_up_the_generation(stored: JSON) -> None:
    new = updated_pod(stored)
    new["spec"]["containers"][0]["image"] = "y:1"
    pods.prepare_for_update(new, stored)
    assert pods.validate_update(new, stored) == []
    assert new["metadata"]["generation"] == 2


def test_label_may_change_and_keeps_the_generation(stored: JSON) -> None:
    new = updated_pod(stored)
    new["metadata"]["labels"] = {"a": "b"}
    pods.prepare_for_update(new, stored)
    assert pods.validate_update(new, stored) == []
    assert new["metadata"]["generation"] == 1


def test_update_does_not_touch_the_status(stored: JSON) -> None:
    new = updated_pod(stored)
    new["status"] = {"phase": "Running"}
    pods.prepare_for_update(new, stored)
    assert new["status"] == stored["status"]


def test_other_fields_may_not_change(stored: JSON) -> None:
    [problem] = pods.validate_update(updated_pod(stored, restartPolicy="Never"), stored)
    assert problem.field == "spec"
    assert problem.message.startswith("Forbidden: pod updates may not change fields other than ")
    assert '- \trestartPolicy: "Always"' in problem.message


def test_containers_may_not_be_added(stored: JSON) -> None:
    more = [*stored["spec"]["containers"], {**stored["spec"]["containers"][0], "name": "d"}]
    [problem] = pods.validate_update(updated_pod(stored, containers=more), stored)
    assert str(problem) == "spec.containers: Forbidden: pod updates may not add or remove containers"


def test_status_update_keeps_spec_and_class(stored: JSON) -> None:
    new = updated_pod(stored, nodeName="n")
    new["status"] = {"phase": "Running", "podIP": "1.2.3.4"}
    pods.normalize(new)
    pods.status.prepare_for_update(new, stored)
    assert new["spec"] == stored["spec"]
    assert new["status"] == {
        "phase": "Running",
        "podIP": "1.2.3.4",
        "podIPs": [{"ip": "1.2.3.4"}],
        "qosClass": "BestEffort",
    }
    assert pods.status.validate_update(new, stored) == []


def test_finished_container_does_not_run_again() -> None:
    old = prepared_pod({"restartPolicy": "Never", "containers": [container()]}, uid="u", resourceVersion="1")
    old["status"]["containerStatuses"] = [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]
    new = copy.deepcopy(old)
    new["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
    [problem] = pods.status.validate_update(new, old)
    assert problem.field == "status.containerStatuses[0].state"


def test_warnings_name_repeated_variables() -> None:
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    pod = prepared_pod({"containers": [container(env=twice)]})
    expected = 'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply'
    assert pods.warnings(pod, None) == [expected]
    assert pods.warnings(pod, pod) == []


@pytest.mark.parametrize(("annotations", "allowed"), [({}, False), ({IN_PLACE_ANNOTATION: "1"}, True)])
def test_an_ended_container_runs_again_only_in_a_pod_that_restarts_in_place(
    annotations: dict[str, str], allowed: bool
) -> None:
    pod = prepared_pod({"containers": [container()], "restartPolicy": "Never"}, annotations=annotations)
    ended = {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 143}}}]}
    running = {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}
    found = validate_pod_status_update({**pod, "status": running}, {**pod, "status": ended})
    assert any("may not be transitioned" in str(problem) for problem in found) != allowed

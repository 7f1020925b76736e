"""Workloads, jobs, access, policies, storage, autoscalers."""

import copy
from typing import Any

import pytest

from gangline.apiserver.kinds import autoscaling
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.registry.strategies import strategy_for

JSON = dict[str, Any]
NOW = "2024-01-01T00:00:00Z"


def prepared(kind: Strategy, obj: JSON) -> JSON:
    meta = {"name": "x", **obj.get("metadata", {})}
    if kind.namespaced:
        meta["namespace"] = "n"
    obj = {**copy.deepcopy(obj), "metadata": meta}
    kind.normalize(obj)
    obj["metadata"] |= {"uid": "u", "creationTimestamp": NOW}
    kind.prepare_for_create(obj, NOW)
    obj["metadata"]["resourceVersion"] = "1"
    return obj


def fields(kind: Strategy, obj: JSON) -> list[str]:
    return [problem.field for problem in kind.validate(prepared(kind, obj))]


def template(**spec: Any) -> JSON:
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}], **spec}}


deployments, jobs = strategy_for("apps", "Deployment"), strategy_for("batch", "Job")


def test_deployment_gets_its_defaults() -> None:
    deployment = prepared(deployments, {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
    spec = deployment["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert (spec["replicas"], spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (1, 10, 600)
    assert spec["template"]["spec"]["dnsPolicy"] == "ClusterFirst"
    assert "enableServiceLinks" not in spec["template"]["spec"]
    assert deployment["status"] == {}
    assert deployments.validate(deployment) == []


def test_deployment_counts_changed_annotations() -> None:
    old = prepared(deployments, {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {"x": "y"}
    deployments.prepare_for_update(new, old)
    assert new["metadata"]["generation"] == 2


def test_selector_must_match_and_stay() -> None:
    spec = {"selector": {"matchLabels": {"a": "c"}}, "template": template()}
    assert fields(deployments, {"spec": spec}) == ["spec.template.metadata.labels"]
    old = prepared(deployments, {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
    new = copy.deepcopy(old)
    new["spec"]["selector"] = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
    [problem] = deployments.validate_update(new, old)
    printed = '{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]}'
    assert str(problem) == f"spec.selector: Invalid value: {printed}: field is immutable"


def test_stateful_set_mounts_its_claims() -> None:
    sets = strategy_for("apps", "StatefulSet")
    inner = template()
    inner["spec"]["containers"][0]["volumeMounts"] = [{"name": "d", "mountPath": "/d"}]
    claim = {
        "metadata": {"name": "d"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": inner, "volumeClaimTemplates": [claim]}
    assert fields(sets, {"spec": spec}) == []


def test_daemon_set_counts_its_templates() -> None:
    sets = strategy_for("apps", "DaemonSet")
    old = prepared(sets, {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
    assert old["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "1"}
    new = copy.deepcopy(old)
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "y"
    sets.prepare_for_update(new, old)
    assert new["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "2"}


def test_job_selects_its_own_pods() -> None:
    job = prepared(jobs, {"metadata": {"labels": {"q": "r"}}, "spec": {"template": template(restartPolicy="Never")}})
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert (labels["job-name"], labels["controller-uid"]) == ("x", "u")
    assert job["metadata"]["labels"] == {"q": "r"}
    assert jobs.validate(job) == []


def test_job_pods_end() -> None:
    assert fields(jobs, {"spec": {"template": template()}}) == ["spec.template.spec.restartPolicy"]


def test_job_template_stays_unless_it_never_started() -> None:
    old = prepared(jobs, {"spec": {"suspend": True, "template": template(restartPolicy="Never")}})
    new = copy.deepcopy(old)
    new["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    assert jobs.validate_update(new, old) == []
    old["spec"]["suspend"] = False
    assert [problem.field for problem in jobs.validate_update(new, old)] == ["spec.template"]


def test_finished_job_is_consistent() -> None:
    old = prepared(jobs, {"spec": {"template": template(restartPolicy="Never")}})
    new = copy.deepcopy(old)
    new["status"] = {"conditions": [{"type": "Complete", "status": "True"}], "active": 1}
    result = {problem.field for problem in jobs.status.validate_update(new, old)}
    assert result == {"status.completionTime", "status.conditions", "status.active", "status.startTime"}


@pytest.mark.parametrize(
    ("schedule", "good"),
    [
        ("*/5 * * * *", True),
        ("@daily", True),
        ("@every 1h30m", True),
        ("0 0 1-5,10 jan-mar mon", True),
        ("* * * *", False),
        ("61 * * * *", False),
        ("5-1 * * * *", False),
        ("every day", False),
        ("TZ=UTC 0 0 * * *", False),
    ],
)
def test_schedules_are_those_of_cron(schedule: str, good: bool) -> None:
    job = {"spec": {"template": template(restartPolicy="Never")}}
    result = fields(strategy_for("batch", "CronJob"), {"spec": {"schedule": schedule, "jobTemplate": job}})
    assert result == ([] if good else ["spec.schedule"])


def test_binding_keeps_its_role() -> None:
    bindings = strategy_for("rbac.authorization.k8s.io", "RoleBinding")
    old = prepared(bindings, {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]})
    assert old["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    new = copy.deepcopy(old)
    new["roleRef"]["name"] = "s"
    [problem] = bindings.validate_update(new, old)
    printed = '{"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"s"}'
    assert str(problem) == f"roleRef: Invalid value: {printed}: cannot change roleRef"


def test_role_names_only_fit_into_a_path() -> None:
    roles = strategy_for("rbac.authorization.k8s.io", "Role")
    assert fields(roles, {"metadata": {"name": "system:Any thing"}}) == []
    assert fields(roles, {"metadata": {"name": "a/b"}}) == ["metadata.name"]


def test_priority_of_a_class_stays() -> None:
    classes = strategy_for("scheduling.k8s.io", "PriorityClass")
    old = prepared(classes, {"value": 5})
    new = {**copy.deepcopy(old), "value": 6}
    assert [problem.field for problem in classes.validate_update(new, old)] == ["value"]
    assert fields(classes, {"value": 2_000_000_000}) == ["value"]


def test_limit_range_fills_in_container_defaults() -> None:
    ranges = strategy_for("", "LimitRange")
    limit = prepared(ranges, {"spec": {"limits": [{"type": "Container", "max": {"cpu": 2}, "min": {"memory": "1Mi"}}]}})
    [result] = limit["spec"]["limits"]
    assert result["default"] == {"cpu": "2"}
    assert result["defaultRequest"] == {"cpu": "2", "memory": "1Mi"}


def test_quota_knows_what_it_can_limit() -> None:
    quotas = strategy_for("", "ResourceQuota")
    hard = {"pods": 1, "requests.nvidia.com/gpu": 4, "count/jobs.batch": 5}
    assert fields(quotas, {"spec": {"hard": hard}}) == []
    assert fields(quotas, {"spec": {"hard": {"pods": "1500m"}}}) == ["spec.hard[pods]"]


def test_claim_is_protected_and_grows_only() -> None:
    claims = strategy_for("", "PersistentVolumeClaim")
    old = prepared(claims, {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}})
    assert old["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    old["status"] = {"phase": "Bound", "capacity": {"storage": "2Gi"}}
    new = copy.deepcopy(old)
    new["spec"]["resources"]["requests"]["storage"] = "3Gi"
    assert claims.validate_update(new, old) == []
    new["spec"]["resources"]["requests"]["storage"] = "1Gi"
    assert [problem.field for problem in claims.validate_update(new, old)] == ["spec.resources.requests.storage"]


def test_autoscaler_goes_to_v1_and_back() -> None:
    scalers = strategy_for("autoscaling", "HorizontalPodAutoscaler")
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    obj = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    stored = prepared(scalers, {**obj, "spec": {"maxReplicas": 5, "scaleTargetRef": reference}})
    old = autoscaling.to_v1(stored)
    assert old["spec"]["targetCPUUtilizationPercentage"] == 80
    assert autoscaling.to_v2(old) == stored


@pytest.mark.parametrize(("value", "good"), [(1, True), ("50%", True), (-1, False), ("x", False), ("101%", False)])
def test_disruption_budget_is_a_number_or_a_share(value: Any, good: bool) -> None:
    result = fields(strategy_for("policy", "PodDisruptionBudget"), {"spec": {"minAvailable": value}})
    assert result == ([] if good else ["spec.minAvailable"])


def test_counters_that_are_not_there_are_zero_when_there_are_less_than_none() -> None:
    old = prepared(deployments, {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
    new = {**copy.deepcopy(old), "status": {"replicas": -1}}
    result = [problem.field for problem in deployments.status.validate_update(new, old)]
    assert result == ["status.replicas", "status.updatedReplicas", "status.readyReplicas", "status.availableReplicas"]
    old = prepared(jobs, {"spec": {"template": template(restartPolicy="Never")}})
    new = {**copy.deepcopy(old), "status": {"active": -1}}
    result = [problem.field for problem in jobs.status.validate_update(new, old)]
    assert result == ["status.active"]


def test_data_of_a_revision_is_an_object_and_stays() -> None:
    revisions = strategy_for("apps", "ControllerRevision")
    assert fields(revisions, {"revision": -1}) == ["revision", "data"]
    assert fields(revisions, {"data": "x"}) == ["data"]
    old = prepared(revisions, {"revision": 1, "data": {"a": 1}})
    new = {**copy.deepcopy(old), "revision": 2}
    assert revisions.validate_update(new, old) == []
    new["data"] = {"a": 2}
    assert [problem.field for problem in revisions.validate_update(new, old)] == ["data"]


replication_controllers = strategy_for("", "ReplicationController")


def test_replication_controller_takes_its_labels_and_its_selector_from_its_template() -> None:
    controller = prepared(replication_controllers, {"spec": {"template": template()}})
    assert (controller["spec"]["replicas"], controller["spec"]["selector"]) == (1, {"a": "b"})
    assert controller["metadata"]["labels"] == {"a": "b"}
    assert controller["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert replication_controllers.validate(controller) == []


def test_replication_controller_needs_a_template_that_its_selector_matches() -> None:
    assert fields(replication_controllers, {"spec": {}}) == ["spec.selector", "spec.template"]
    other = {"spec": {"selector": {"x": "y"}, "template": template(restartPolicy="Never")}}
    assert fields(replication_controllers, other) == [
        "spec.template.metadata.labels",
        "spec.template.spec.restartPolicy",
    ]

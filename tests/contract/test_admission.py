"""Limit ranges, resource quotas and pod security: the same answers from a real server and from ours."""

from typing import Any

import pytest

from gangline.kube.config.connection import Connection
from support.cluster.caller import MERGE_PATCH, Answer, Caller
from support.servers.plane import widget_crd
from support.waiting import wait_until

JSON = dict[str, Any]
PRIVILEGED_CONTAINER = {"name": "c", "image": "x", "securityContext": {"privileged": True}}
SAFE_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "capabilities": {"drop": ["ALL"]},
}
RESTRICTED = "pod-security.kubernetes.io/enforce"


@pytest.fixture
def caller(server: Connection, namespace: str) -> Caller:
    return Caller(server, namespace)


# Limit ranges

LIMITS = {
    "type": "Container",
    "default": {"cpu": "500m", "memory": "256Mi"},
    "defaultRequest": {"cpu": "100m"},
    "min": {"cpu": "50m"},
    "max": {"cpu": "1"},
    "maxLimitRequestRatio": {"cpu": "5"},
}


async def test_limit_range_sets_defaults_in_containers_and_init_containers(caller: Caller) -> None:
    await caller.create("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [LIMITS]}})
    await caller.refused_pod({"limits": {"cpu": "2"}})
    started = [{"name": "i", "image": "x", "resources": {"limits": {"cpu": "200m", "memory": "1Gi"}}}]
    answer = await caller.pod("p", {"requests": {"memory": "64Mi"}}, initContainers=started)
    assert answer.body["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu request for container c; "
        "cpu, memory limit for container c"
    }
    spec = answer.body["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "500m", "memory": "256Mi"},
    }
    assert spec["initContainers"][0]["resources"] == {
        "requests": {"cpu": "200m", "memory": "1Gi"},
        "limits": {"cpu": "200m", "memory": "1Gi"},
    }


@pytest.mark.parametrize(
    ("limit", "resources", "message"),
    [
        ({"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "maximum cpu usage per Pod is 1, but limit is 2"),
        ({"max": {"memory": "1Gi"}}, {}, "maximum memory usage per Pod is 1Gi.  No limit is specified"),
        ({"min": {"cpu": "1"}}, {"requests": {"cpu": "999m"}}, "minimum cpu usage per Pod is 1, but request is 999m"),
        ({"min": {"cpu": "1"}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        (
            {"maxLimitRequestRatio": {"cpu": "1500m"}},
            {"requests": {"cpu": "300m"}, "limits": {"cpu": "1"}},
            "cpu max limit to request ratio per Pod is 1500m, but provided ratio is 3.333333",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "300m"}},
            "cpu max limit to request ratio per Pod is 2, but no limit is specified or limit is 0",
        ),
        (
            {"min": {"cpu": "1"}, "max": {"memory": "1Gi"}},
            {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}},
            (
                "[minimum cpu usage per Pod is 1, but request is 500m, "
                "maximum memory usage per Pod is 1Gi, but limit is 2Gi]"
            ),
        ),
    ],
)
async def test_pods_beyond_a_limit_range_are_refused(
    caller: Caller, limit: JSON, resources: JSON, message: str
) -> None:
    body = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Pod", **limit}]}}
    assert (await caller.create("limitranges", body)).status == 201
    assert (await caller.refused_pod(resources)).message == message


async def test_claims_beyond_a_limit_range_are_refused(caller: Caller) -> None:
    limit = {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}
    await caller.create("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})

    async def refused(storage: str) -> Answer | None:
        resources = {"requests": {"storage": storage}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        answer = await caller.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec}, dry=True)
        return answer if answer.status == 403 else None

    large = await wait_until(lambda: refused("3Gi"))
    assert large.message == "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
    small = await refused("1")
    assert small is not None
    assert small.message == "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1"
    assert await refused("2Gi") is None


# Resource quotas


async def test_quota_of_pods_and_compute_resources(caller: Caller) -> None:
    hard = {"pods": "3", "requests.cpu": "2", "limits.memory": "2Gi", "requests.nvidia.com/gpu": "2"}
    await caller.quota(hard)
    missing = await caller.refused_pod({"requests": {"cpu": "1"}})
    assert missing.message == "failed quota: q: must specify limits.memory for: c"
    one = {"requests": {"cpu": "750m", "nvidia.com/gpu": "1"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"}}
    assert (await caller.pod("a", one)).status == 201
    assert await caller.used() == {
        "pods": "1",
        "requests.cpu": "750m",
        "limits.memory": "1Gi",
        "requests.nvidia.com/gpu": "1",
    }
    large = {"requests": {"cpu": "1500m", "nvidia.com/gpu": "2"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "2"}}
    refused = await caller.pod("b", large)
    assert refused.status == 403
    assert refused.body["details"] == {"name": "b", "kind": "pods"}
    assert refused.message == (
        "exceeded quota: q, requested: requests.cpu=1500m,requests.nvidia.com/gpu=2, "
        "used: requests.cpu=750m,requests.nvidia.com/gpu=1, limited: requests.cpu=2,requests.nvidia.com/gpu=2"
    )
    assert (await caller.pod("b", one, dry=True)).status == 201
    assert (await caller.used())["pods"] == "1"


async def test_quota_counts_sidecars_and_the_larger_of_init_containers(caller: Caller) -> None:
    await caller.quota({"requests.cpu": "10"})
    await caller.refused_pod({"requests": {"cpu": "11"}})
    started = [
        {"name": "i", "image": "x", "resources": {"requests": {"cpu": "3"}}},
        {"name": "s", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "j", "image": "x", "resources": {"requests": {"cpu": "4"}}},
    ]
    assert (await caller.pod("a", {"requests": {"cpu": "2"}}, initContainers=started)).status == 201
    assert await caller.used() == {"requests.cpu": "5"}


async def test_quota_is_not_enforced_without_a_status(caller: Caller) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    assert (await caller.create("resourcequotas", body)).status == 201
    assert (await caller.pod("a")).status == 201


async def test_quota_with_a_limit_that_nobody_counted_refuses(caller: Caller) -> None:
    await caller.quota({"pods": "5"})
    path = f"/api/v1/namespaces/{caller.namespace}/resourcequotas/q/status"
    await caller.call("PATCH", path, {"status": {"hard": {"count/pods": "5"}}}, MERGE_PATCH)
    assert (await caller.refused_pod({})).message == "status unknown for quota: q, resources: count/pods,pods"


@pytest.mark.parametrize(
    ("spec", "matching", "other"),
    [
        ({"scopes": ["BestEffort"]}, {}, {"resources": {"requests": {"cpu": "1"}}}),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, {}),
        ({"scopes": ["NotTerminating", "NotBestEffort"]}, {"resources": {"requests": {"cpu": "1"}}}, {}),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
                    ]
                }
            },
            {"priorityClassName": "system-node-critical"},
            {"priorityClassName": "system-cluster-critical"},
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]}},
            {},
            {"priorityClassName": "system-cluster-critical"},
        ),
        (
            {"scopes": ["CrossNamespacePodAffinity"]},
            {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "a", "namespaces": ["x"], "labelSelector": {}}
                        ]
                    }
                }
            },
            {},
        ),
    ],
)
async def test_quota_counts_only_pods_of_its_scopes(caller: Caller, spec: JSON, matching: JSON, other: JSON) -> None:
    await caller.quota({"pods": "0"}, **spec)
    refused = await caller.refused_pod(**{"resources": {}, **matching})
    assert refused.message == "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0"
    assert (await caller.pod("other", **other)).status == 201


async def test_quota_of_services_and_their_ports(caller: Caller) -> None:
    hard = {"services": "2", "services.nodeports": "2", "services.loadbalancers": "0", "count/services": "2"}
    await caller.quota(hard)

    async def service(kind: str, ports: int, *, name: str = "s") -> Answer:
        spec = {"type": kind, "ports": [{"port": 80 + index, "name": f"p{index}"} for index in range(ports)]}
        return await caller.create("services", {"metadata": {"name": name}, "spec": spec}, dry=name == "probe")

    async def refused() -> Answer | None:
        answer = await service("NodePort", 3, name="probe")
        return answer if answer.status == 403 else None

    probe = await wait_until(refused)
    assert probe.message == (
        "exceeded quota: q, requested: services.nodeports=3, used: services.nodeports=0, limited: services.nodeports=2"
    )
    assert (await service("ClusterIP", 3)).status == 201
    balancer = await service("LoadBalancer", 1, name="b")
    assert balancer.message == (
        "exceeded quota: q, requested: services.loadbalancers=1, "
        "used: services.loadbalancers=0, limited: services.loadbalancers=0"
    )
    path = f"/api/v1/namespaces/{caller.namespace}/services/s"
    grown = await caller.call("PATCH", path, {"spec": {"type": "NodePort"}}, MERGE_PATCH)
    assert grown.message == (
        "exceeded quota: q, requested: services.nodeports=3, used: services.nodeports=0, limited: services.nodeports=2"
    )
    ports = {"spec": {"type": "NodePort", "ports": [{"port": 80, "name": "p0"}]}}
    assert (await caller.call("PATCH", path, ports, MERGE_PATCH)).status == 200
    assert await caller.used() == {
        "services": "1",
        "services.nodeports": "1",
        "services.loadbalancers": "0",
        "count/services": "1",
    }


async def test_quota_of_claims_by_storage_class(caller: Caller) -> None:
    gold = "gold.storageclass.storage.k8s.io/requests.storage"
    await caller.quota({"persistentvolumeclaims": "5", "requests.storage": "10Gi", gold: "1Gi"})

    async def claim(name: str, storage: str, storage_class: str) -> Answer:
        resources = {"requests": {"storage": storage}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": storage_class}
        body = {"metadata": {"name": name}, "spec": spec}
        return await caller.create("persistentvolumeclaims", body, dry=name == "probe")

    async def refused() -> Answer | None:
        answer = await claim("probe", "2Gi", "gold")
        return answer if answer.status == 403 else None

    probe = await wait_until(refused)
    assert probe.message == f"exceeded quota: q, requested: {gold}=2Gi, used: {gold}=0, limited: {gold}=1Gi"
    assert (await claim("a", "2Gi", "silver")).status == 201
    assert (await claim("b", "512Mi", "gold")).status == 201
    assert await caller.used() == {"persistentvolumeclaims": "2", "requests.storage": "2560Mi", gold: "512Mi"}


async def test_quota_of_counts_and_of_several_quotas(caller: Caller) -> None:
    await caller.quota({"count/deployments.apps": "1", "configmaps": "100"}, {"count/deployments.apps": "1"})
    await caller.quota({"count/deployments.apps": "5"}, name="wide")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}

    async def refused() -> Answer | None:
        answer = await caller.create(
            "deployments", {"metadata": {"name": "d"}, "spec": spec}, "/apis/apps/v1", dry=True
        )
        return answer if answer.status == 403 else None

    count = "count/deployments.apps=1"
    answer = await wait_until(refused)
    assert answer.body["message"] == (
        f'deployments.apps "d" is forbidden: exceeded quota: q, requested: {count}, used: {count}, limited: {count}'
    )
    assert answer.body["details"] == {"name": "d", "group": "apps", "kind": "deployments"}
    assert await caller.used("wide") == {"count/deployments.apps": "0"}


async def test_quota_of_custom_resources(caller: Caller) -> None:
    group = f"{caller.namespace}.example.com"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await caller.call("POST", definitions, widget_crd(group))).status == 201
    try:
        count = f"count/widgets.{group}"
        await caller.quota({count: "1"})
        api = f"/apis/{group}/v1"

        async def served() -> bool:
            status = (await caller.call("GET", f"{definitions}/widgets.{group}")).body["status"]
            return "kind" in (status.get("acceptedNames") or {})

        await wait_until(served)

        async def create(name: str) -> Answer:
            body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}}
            return await caller.create("widgets", body, api)

        async def charged() -> bool:
            # A real server learns of the kind and of the quota after a while; objects before that are free.
            answer = await create("one")
            if answer.status == 201 and (await caller.used())[count] == "0":
                await caller.call("DELETE", f"{api}/namespaces/{caller.namespace}/widgets/one")
            return str((await caller.used())[count]) == "1"

        await wait_until(charged)
        invalid = {"apiVersion": f"{group}/v1", "kind": "Widget", "spec": {"size": "x", "more": 1}}
        answer = await caller.create("widgets", {**invalid, "metadata": {"name": "two"}}, api)
        assert (answer.status, answer.warnings) == (422, ['unknown field "spec.more"'])
        refused = await create("two")
        assert refused.body["message"] == (
            f'widgets.{group} "two" is forbidden: exceeded quota: q, requested: {count}=1, used: {count}=1, limited: {count}=1'
        )
    finally:
        await caller.call("DELETE", f"{definitions}/widgets.{group}")


async def test_a_name_that_exists_is_refused_by_an_exhausted_quota_first(caller: Caller) -> None:
    await caller.create("configmaps", {"metadata": {"name": "a"}})
    await caller.quota({"configmaps": "1"}, {"configmaps": "1"})

    async def refused() -> Answer | None:
        answer = await caller.create("configmaps", {"metadata": {"name": "a"}})
        return answer if answer.status == 403 else None

    assert (await wait_until(refused)).message.startswith("exceeded quota: q, requested: configmaps=1")


# Storage classes


async def test_claims_get_the_default_class_and_grow_if_it_allows(caller: Caller) -> None:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    names = [f"{caller.namespace}-{suffix}" for suffix in ("fixed", "growing")]
    for name, growing in zip(names, (False, True), strict=True):
        body = {"metadata": {"name": name}, "provisioner": "example.com/x", "allowVolumeExpansion": growing}
        assert (await caller.call("POST", "/apis/storage.k8s.io/v1/storageclasses", body)).status == 201
    claims = f"/api/v1/namespaces/{caller.namespace}/persistentvolumeclaims"

    async def claim(name: str, *, dry: bool = False, **spec: Any) -> Answer:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        body = {"metadata": {"name": name}, "spec": spec}
        return await caller.create("persistentvolumeclaims", body, dry=dry)

    async def grow(name: str) -> Answer:
        bound = {"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}
        assert (await caller.call("PATCH", f"{claims}/{name}/status", bound, MERGE_PATCH)).status == 200
        larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
        return await caller.call("PATCH", f"{claims}/{name}", larger, MERGE_PATCH)

    path = f"/apis/storage.k8s.io/v1/storageclasses/{names[1]}"
    await caller.call("PATCH", path, {"metadata": {"annotations": default}}, MERGE_PATCH)
    try:

        async def defaulted() -> bool:
            spec = (await claim("probe", dry=True)).body["spec"]
            return bool(spec.get("storageClassName") == names[1])

        await wait_until(defaulted)
        assert (await claim("growing")).body["spec"]["storageClassName"] == names[1]
        assert (await claim("none", storageClassName="")).body["spec"]["storageClassName"] == ""
        await claim("fixed", storageClassName=names[0])
        assert (await grow("growing")).status == 200
        assert (await grow("fixed")).message == (
            "only dynamically provisioned pvc can be resized and "
            "the storageclass that provisions the pvc must support resize"
        )
    finally:
        for name in names:
            await caller.call("DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{name}")


# Pod security


@pytest.mark.parametrize(
    ("labels", "spec", "message"),
    [
        (
            {RESTRICTED: "baseline"},
            {"containers": [PRIVILEGED_CONTAINER], "hostNetwork": True},
            (
                'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true), privileged '
                '(container "c" must not set securityContext.privileged=true)'
            ),
        ),
        (
            {RESTRICTED: "restricted", f"{RESTRICTED}-version": "v1.34"},
            {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]},
            (
                'violates PodSecurity "restricted:v1.34": allowPrivilegeEscalation != false (containers "a", "b" must set '
                'securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers "a", "b" must set '
                'securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or containers "a", "b" must set '
                'securityContext.runAsNonRoot=true), seccompProfile (pod or containers "a", "b" must set '
                'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")'
            ),
        ),
        (
            {RESTRICTED: "restricted", f"{RESTRICTED}-version": "v1.7"},
            {"containers": [{"name": "a", "image": "x"}], "volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
            (
                'violates PodSecurity "restricted:v1.7": restricted volume types (volume "v" uses restricted volume type '
                '"hostPath"), runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)'
            ),
        ),
    ],
)
async def test_pods_that_violate_the_level_of_their_namespace_are_refused(
    caller: Caller, labels: JSON, spec: JSON, message: str
) -> None:
    await caller.label_namespace(labels)

    async def refused() -> Answer | None:
        answer = await caller.create("pods", {"metadata": {"name": "p"}, "spec": spec}, dry=True)
        return answer if answer.status == 403 else None

    answer = await wait_until(refused)
    assert answer.body["message"] == f'pods "p" is forbidden: {message}'
    assert answer.body["details"] == {"name": "p", "kind": "pods"}
    safe = {"containers": [{"name": "c", "image": "x", "securityContext": SAFE_CONTEXT}]}
    allowed = await caller.create("pods", {"metadata": {"name": "safe"}, "spec": safe})
    assert (allowed.status, allowed.warnings) == (201, [])


async def test_templates_are_allowed_with_a_warning(caller: Caller) -> None:
    await caller.label_namespace({RESTRICTED: "baseline"})
    pod = {"containers": [PRIVILEGED_CONTAINER], "restartPolicy": "Never"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod}
    warning = (
        'would violate PodSecurity "baseline:latest": privileged '
        '(container "c" must not set securityContext.privileged=true)'
    )
    job = {"metadata": {"name": "j"}, "spec": {"template": template}}
    cron = {"metadata": {"name": "c"}, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}}

    async def warned() -> Answer | None:
        answer = await caller.create("jobs", job, "/apis/batch/v1", dry=True)
        return answer if answer.warnings else None

    answer = await wait_until(warned)
    assert (answer.status, answer.warnings) == (201, [warning])
    assert (await caller.create("cronjobs", cron, "/apis/batch/v1")).warnings == [warning]


async def test_a_pod_that_is_refused_is_warned_of_too(caller: Caller) -> None:
    await caller.label_namespace({RESTRICTED: "baseline"})
    annotation = "seccomp.security.alpha.kubernetes.io/pod"
    body = {
        "metadata": {"name": "p", "annotations": {annotation: "runtime/default"}},
        "spec": {"containers": [PRIVILEGED_CONTAINER]},
    }

    async def refused() -> Answer | None:
        answer = await caller.create("pods", body, dry=True)
        return answer if answer.status == 403 else None

    assert (await wait_until(refused)).warnings == [
        f'metadata.annotations[{annotation}]: non-functional in v1.27+; use the "seccompProfile" field instead'
    ]


async def test_a_stricter_namespace_is_warned_of_its_pods(caller: Caller) -> None:
    for name in ("a", "b", "c"):
        assert (
            await caller.create("pods", {"metadata": {"name": name}, "spec": {"containers": [PRIVILEGED_CONTAINER]}})
        ).status == 201
    assert (await caller.pod("d", hostPID=True)).status == 201

    async def warned() -> Answer | None:
        await caller.label_namespace({RESTRICTED: None})
        answer = await caller.label_namespace({RESTRICTED: "baseline"})
        return answer if len(answer.warnings) == 3 and "2 other" in answer.warnings[1] else None

    assert (await wait_until(warned)).warnings == [
        f'existing pods in namespace "{caller.namespace}" violate the new PodSecurity enforce level "baseline:latest"',
        "a (and 2 other pods): privileged",
        "d: host namespaces",
    ]
    assert (await caller.label_namespace({RESTRICTED: "privileged"})).warnings == []


async def test_invalid_labels_of_a_namespace_are_refused(caller: Caller) -> None:
    answer = await caller.label_namespace({RESTRICTED: "tight", "pod-security.kubernetes.io/warn-version": "1.2"})
    assert answer.status == 422
    assert answer.body["message"] == (
        f'Namespace "{caller.namespace}" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: '
        'Invalid value: "tight": must be one of privileged, baseline, restricted, '
        "metadata.labels[pod-security.kubernetes.io/warn-version]: "
        'Invalid value: "1.2": must be "latest" or "v1.x"]'
    )
    created = await caller.call("POST", "/api/v1/namespaces", {"metadata": {"name": "x", "labels": {RESTRICTED: "no"}}})
    assert created.status == 422

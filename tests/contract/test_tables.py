"""Our tables against those of a real server: the same objects must give the same columns and cells."""

import json
import ssl
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from gangline.apiserver.http.negotiation import negotiate
from gangline.apiserver.registry.object_kind import ObjectKind
from gangline.apiserver.tables.builtin_rows import builtin_printer
from gangline.apiserver.tables.columns import BUILTIN_COLUMNS
from gangline.apiserver.tables.table import GENERIC_PRINTER, TablePrinter, custom_printer
from support.servers.real import RealServer
from support.waiting import wait_until_blocking

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

GROUPS = {
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/configmaps",
    "ControllerRevision": "/apis/apps/v1/controllerrevisions",
    "CronJob": "/apis/batch/v1/cronjobs",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Deployment": "/apis/apps/v1/deployments",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/endpointslices",
    "Endpoints": "/api/v1/endpoints",
    "Event": "/api/v1/events",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "Job": "/apis/batch/v1/jobs",
    "Lease": "/apis/coordination.k8s.io/v1/leases",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/networkpolicies",
    "Node": "/api/v1/nodes",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "Pod": "/api/v1/pods",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "PodTemplate": "/api/v1/podtemplates",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "ResourceQuota": "/api/v1/resourcequotas",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "Secret": "/api/v1/secrets",
    "Service": "/api/v1/services",
    "ServiceAccount": "/api/v1/serviceaccounts",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "CertificateSigningRequest": "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "IPAddress": "/apis/networking.k8s.io/v1/ipaddresses",
    "Ingress": "/apis/networking.k8s.io/v1/ingresses",
    "IngressClass": "/apis/networking.k8s.io/v1/ingressclasses",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "PriorityLevelConfiguration": "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/resourceclaimtemplates",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ServiceCIDR": "/apis/networking.k8s.io/v1/servicecidrs",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "VolumeAttributesClass": "/apis/storage.k8s.io/v1/volumeattributesclasses",
}
GENERIC_KINDS = {
    "Role": "/apis/rbac.authorization.k8s.io/v1/roles",
    "LimitRange": "/api/v1/limitranges",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
CONTAINERS = [{"name": "c", "image": "x:1"}, {"name": "d", "image": "y"}]
LABELS = {"app": "x"}
TEMPLATE: dict[str, Any] = {"metadata": {"labels": LABELS}, "spec": {"containers": CONTAINERS}}
OLD = "2020-01-01T00:00:00Z"


def get(server: RealServer, path: str, accept: str = "application/json", **query: str) -> Any:
    request = urllib.request.Request(
        f"{server.url}{path}?{urlencode(query)}",
        headers={"Authorization": f"Bearer {server.token}", "Accept": accept},
    )
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=server.ca)),
    )
    with opener.open(request, timeout=60) as response:
        return json.load(response)


def make(server: RealServer, path: str, body: dict[str, Any], status: dict[str, Any] | None = None) -> None:
    answer = server.call("POST", path, body)
    assert answer.status == 201, answer.body
    if status is not None:
        name = answer.body["metadata"]["name"]
        answer = server.call(
            "PATCH",
            f"{path}/{name}/status",
            {"status": status},
            content_type="application/merge-patch+json",
        )
        assert answer.status == 200, answer.body


def ours(kind: ObjectKind, listed: Any, now: datetime) -> Any:
    form = negotiate(TABLE, {}, now=lambda: now)
    items = [{"kind": kind.kind, "apiVersion": kind.api_version, **item} for item in listed["items"]]
    return json.loads(form.encode_list(kind, items, listed["metadata"]))


def assert_same_table(server: RealServer, path: str, shown_by: TablePrinter, *, custom: bool = False) -> None:
    listed = get(server, path)
    theirs = get(server, path, TABLE)
    now = datetime.now(UTC)
    kind = ObjectKind(listed["apiVersion"], listed["kind"].removesuffix("List"), shown_by, custom=custom)
    # Ages may have moved on by a second between the two requests.
    tables = [ours(kind, listed, now + timedelta(seconds=shift)) for shift in (-1, 0, 1)]
    assert tables[0]["columnDefinitions"] == theirs["columnDefinitions"]
    for index, row in enumerate(theirs["rows"]):
        candidates = [table["rows"][index] for table in tables]
        if kind.kind == "DaemonSet":
            # Its rows lose an annotation that older versions of the API need; nobody misses it.
            for each in (row, *candidates):
                each["object"]["metadata"].pop("annotations", None)
        if row not in candidates:
            assert candidates[1] == row
    assert len(tables[0]["rows"]) == len(theirs["rows"])


@pytest.mark.parametrize("kind", sorted(BUILTIN_COLUMNS))
def test_columns_are_those_of_the_real_server(real_server: RealServer, kind: str) -> None:
    theirs = get(real_server, GROUPS[kind], TABLE, limit="1")
    assert json.loads(bytes(builtin_printer(kind).column_definitions)) == theirs["columnDefinitions"]


@pytest.mark.parametrize("kind", sorted(GENERIC_KINDS))
def test_other_kinds_have_the_generic_columns(real_server: RealServer, kind: str) -> None:
    assert builtin_printer(kind) is GENERIC_PRINTER
    theirs = get(real_server, GENERIC_KINDS[kind], TABLE, limit="1")
    assert json.loads(bytes(GENERIC_PRINTER.column_definitions)) == theirs["columnDefinitions"]


def container(name: str, restarts: int = 0, ready: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": "x",
        "imageID": "",
        "ready": ready,
        "restartCount": restarts,
        **more,
    }


RUNNING = {"running": {"startedAt": OLD}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": OLD}}
CRASHED = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": OLD}}
INITIALIZED = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]
INIT = [{"name": "i", "image": "x"}, {"name": "side", "image": "x", "restartPolicy": "Always"}]
PODS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "fresh": ({}, None),
    "gated": ({"schedulingGates": [{"name": "a.b/c"}]}, None),
    "running": (
        {"nodeName": "n", "readinessGates": [{"conditionType": "a/b"}]},
        {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "conditions": [*INITIALIZED, {"type": "a/b", "status": "True"}],
            "containerStatuses": [
                container("c", 3, ready=True, state=RUNNING, lastState=CRASHED),
                container("d", ready=True, state=RUNNING),
            ],
        },
    ),
    "crashing": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [
                container("c", 5, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState=CRASHED),
                container("d", state=RUNNING, ready=True),
            ],
        },
    ),
    "half-done": (
        {},
        {
            "phase": "Running",
            "conditions": INITIALIZED,
            "containerStatuses": [
                container("c", state=ENDED),
                container("d", state=RUNNING, ready=True),
            ],
        },
    ),
    "half-done-not-ready": (
        {},
        {
            "phase": "Running",
            "containerStatuses": [
                container("c", state=ENDED),
                container("d", state=RUNNING, ready=True),
            ],
        },
    ),
    "done": ({}, {"phase": "Succeeded", "containerStatuses": [container("c", state=ENDED)]}),
    "failed": (
        {},
        {"phase": "Failed", "containerStatuses": [container("c", state={"terminated": {"exitCode": 3}})]},
    ),
    "signalled": (
        {},
        {
            "phase": "Failed",
            "containerStatuses": [container("c", state={"terminated": {"exitCode": 137, "signal": 9}})],
        },
    ),
    "evicted": ({}, {"phase": "Failed", "reason": "Evicted"}),
    "init-waits": (
        {"initContainers": INIT},
        {
            "phase": "Pending",
            "initContainerStatuses": [container("i", state={"waiting": {"reason": "PodInitializing"}})],
        },
    ),
    "init-pulls": (
        {"initContainers": INIT},
        {
            "phase": "Pending",
            "initContainerStatuses": [container("i", state={"waiting": {"reason": "ErrImagePull"}})],
        },
    ),
    "init-crashes": (
        {"initContainers": INIT},
        {"phase": "Pending", "initContainerStatuses": [container("i", 2, state=CRASHED, lastState=CRASHED)]},
    ),
    "init-code": (
        {"initContainers": INIT},
        {
            "phase": "Pending",
            "initContainerStatuses": [container("i", 1, state={"terminated": {"exitCode": 7}})],
        },
    ),
    "init-done": (
        {"initContainers": INIT},
        {
            "phase": "Running",
            "conditions": INITIALIZED,
            "initContainerStatuses": [
                container("i", 4, state=ENDED),
                container("side", 1, ready=True, started=True, state=RUNNING, lastState=CRASHED),
            ],
            "containerStatuses": [container("c", ready=True, state=RUNNING)],
        },
    ),
}


def test_pods_in_every_state_have_the_same_row(real_server: RealServer, real_namespace: str) -> None:
    path = f"/api/v1/namespaces/{real_namespace}/pods"
    for name, (spec, status) in PODS.items():
        make(
            real_server,
            path,
            {"metadata": {"name": name}, "spec": {"containers": CONTAINERS, **spec}},
            status,
        )
    assert real_server.call("DELETE", f"{path}/running").status == 200
    assert_same_table(real_server, path, builtin_printer("Pod"))


def core(kind: str) -> str:
    return f"/api/v1/namespaces/{{ns}}/{kind}"


def apps(kind: str) -> str:
    return f"/apis/apps/v1/namespaces/{{ns}}/{kind}"


WORKLOAD = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}
EXPRESSIONS = {
    "matchLabels": LABELS,
    "matchExpressions": [
        {"key": "app", "operator": "Exists"},
        {"key": "z", "operator": "NotIn", "values": ["b", "a"]},
    ],
}
JOB_TEMPLATE = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
ONCE: dict[str, Any] = {"template": JOB_TEMPLATE}
OBJECTS: list[tuple[str, str, dict[str, Any], dict[str, Any] | None]] = [
    ("ConfigMap", core("configmaps"), {"data": {"a": "1"}, "binaryData": {"b": "eA=="}}, None),
    ("Secret", core("secrets"), {"stringData": {"a": "1"}, "type": "x/y"}, None),
    ("ServiceAccount", core("serviceaccounts"), {"secrets": [{"name": "s"}]}, None),
    ("Service", core("services"), {"spec": {"ports": [{"port": 80}], "selector": LABELS}}, None),
    ("Service", core("services"), {"spec": {"clusterIP": "None"}}, None),
    (
        "Service",
        core("services"),
        {"spec": {"type": "NodePort", "ports": [{"port": 80}], "externalIPs": ["1.2.3.4"]}},
        None,
    ),
    ("Service", core("services"), {"spec": {"type": "ExternalName", "externalName": "a.b"}}, None),
    ("Service", core("services"), {"spec": {"type": "LoadBalancer", "ports": [{"port": 81}]}}, None),
    (
        "Service",
        core("services"),
        {"spec": {"type": "LoadBalancer", "ports": [{"port": 82, "name": "h"}, {"port": 53, "protocol": "UDP", "name": "d"}]}},
        {"loadBalancer": {"ingress": [{"hostname": "b.c"}, {"ip": "1.1.1.1"}]}},
    ),
    ("PersistentVolumeClaim", core("persistentvolumeclaims"), {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}, None),
    ("PersistentVolumeClaim", core("persistentvolumeclaims"), {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeName": "v",
            "storageClassName": "s",
            "resources": {"requests": {"storage": "1Gi"}},
        }},
        {"phase": "Bound", "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "2Gi"}},
    ),
    ("ResourceQuota", core("resourcequotas"), {"spec": {"hard": {"limits.cpu": "2", "pods": "3", "requests.cpu": "1"}}},
        {"hard": {"limits.cpu": "2", "pods": "3", "requests.cpu": "1"}, "used": {"pods": "1", "limits.cpu": "1", "requests.cpu": "0"}}),
    ("Event", core("events"), {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}", "fieldPath": "spec.x"},
        "reason": "R", "message": " m ", "type": "Normal", "count": 3, "firstTimestamp": OLD, "lastTimestamp": OLD,
        "source": {"component": "k", "host": "h"}}, None),
    ("Event", "/apis/events.k8s.io/v1/namespaces/{ns}/events", {
        "regarding": {"kind": "Pod", "name": "q", "namespace": "{ns}"}, "reason": "R", "note": "n", "type": "Warning",
        "eventTime": "2020-01-01T00:00:00.000000Z", "reportingController": "a/b", "reportingInstance": "i", "action": "A",
        "series": {"count": 7, "lastObservedTime": "2020-02-01T00:00:00.000000Z"}}, None),
    ("Lease", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {"spec": {"holderIdentity": "me"}}, None),
    ("Deployment", apps("deployments"), {"spec": {**WORKLOAD, "selector": EXPRESSIONS, "replicas": 3}},
        {"replicas": 3, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}),
    ("ReplicaSet", apps("replicasets"), {"spec": {**WORKLOAD, "replicas": 2}}, {"replicas": 2, "readyReplicas": 1}),
    ("StatefulSet", apps("statefulsets"), {"spec": {**WORKLOAD, "serviceName": "s"}}, {"replicas": 1, "readyReplicas": 1}),
    ("DaemonSet", apps("daemonsets"), {"spec": WORKLOAD}, {
        "currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 2, "numberReady": 1}),
    ("Job", "/apis/batch/v1/namespaces/{ns}/jobs", {"spec": ONCE}, {"startTime": OLD, "active": 1}),
    ("Job", "/apis/batch/v1/namespaces/{ns}/jobs", {"spec": {**ONCE, "completions": 4, "parallelism": 2}}, None),
    ("Job", "/apis/batch/v1/namespaces/{ns}/jobs", {"spec": {**ONCE, "parallelism": 2}}, None),
    ("Job", "/apis/batch/v1/namespaces/{ns}/jobs", {"spec": {**ONCE, "suspend": True}},
        {"conditions": [{"type": "Suspended", "status": "True"}]}),
    ("CronJob", "/apis/batch/v1/namespaces/{ns}/cronjobs", {
        "spec": {"schedule": "* * * * *", "timeZone": "Etc/UTC", "jobTemplate": {"spec": ONCE}}},
        {"lastScheduleTime": OLD}),
    ("PodDisruptionBudget", "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
        {"spec": {"minAvailable": "50%", "selector": {}}}, None),
    ("PodDisruptionBudget", "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
        {"spec": {"maxUnavailable": 1, "selector": {}}}, None),
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings", {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "Group", "name": "g"},
                     {"kind": "ServiceAccount", "name": "a", "namespace": "{ns}"}]}, None),
    ("NetworkPolicy", "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies", {"spec": {"podSelector": {}}}, None),
    ("Ingress", "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses", {
        "spec": {"ingressClassName": "nginx", "tls": [{}], "rules": [{"host": f"{i}.example.com"} for i in range(5)]}},
        {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"hostname": "lb.example.com"}]}}),
    ("Ingress", "/apis/networking.k8s.io/v1/namespaces/{ns}/ingresses", {
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}, None),
    ("CSIStorageCapacity", "/apis/storage.k8s.io/v1/namespaces/{ns}/csistoragecapacities",
        {"storageClassName": "fast", "capacity": "1Gi"}, None),
    ("ResourceClaim", "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims", {"spec": {}}, None),
    ("Endpoints", core("endpoints"), {"subsets": [
        {"addresses": [{"ip": f"10.0.1.{i}"} for i in range(1, 6)], "ports": [{"port": 80}]}]}, None),
    ("Endpoints", core("endpoints"), {"subsets": [{"addresses": [{"ip": "10.0.1.1"}]}]}, None),
    ("Endpoints", core("endpoints"), {}, None),
    ("EndpointSlice", "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices", {
        "addressType": "IPv4", "endpoints": [{"addresses": [f"10.0.1.{i}"]} for i in range(1, 6)],
        "ports": [{"port": 80, "name": "a"}]}, None),
    ("EndpointSlice", "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
        {"addressType": "IPv4", "endpoints": []}, None),
    ("HorizontalPodAutoscaler", "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers", {
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}, None),
    ("HorizontalPodAutoscaler", "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers", {
        "spec": {"maxReplicas": 5, "minReplicas": 2,
                 "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                 "metrics": [
                     {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                     {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "3"}}},
                     {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "3"}}},
                 ]}}, None),
    ("ReplicationController", core("replicationcontrollers"),
        {"spec": {"replicas": 1, "selector": LABELS, "template": TEMPLATE}}, None),
    ("ControllerRevision", apps("controllerrevisions"), {"revision": 3, "data": {}, "metadata": {
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "o", "uid": "u", "controller": True}]}}, None),
    ("LimitRange", core("limitranges"), {"spec": {"limits": []}}, None),
]  # fmt: skip


def filled(value: Any, namespace: str) -> Any:
    return json.loads(json.dumps(value).replace("{ns}", namespace))


def test_namespaced_objects_have_the_same_row(real_server: RealServer, real_namespace: str) -> None:
    paths: dict[str, str] = {}
    for index, (kind, path, body, status) in enumerate(filled(OBJECTS, real_namespace)):
        named = {**body, "metadata": {**body.get("metadata", {}), "name": f"{kind.lower()}-{index}"}}
        make(real_server, path, named, status)
        paths[path] = kind
    for path, kind in paths.items():
        assert_same_table(real_server, path, builtin_printer(kind))


CLUSTER_OBJECTS: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
    ("Node", {"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "big"}},
              "spec": {"unschedulable": True}},
     {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
      "nodeInfo": {"kubeletVersion": "v1", "osImage": "Linux", "kernelVersion": "6", "containerRuntimeVersion": "",
                   "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "", "operatingSystem": "",
                   "architecture": ""}}),
    ("Node", {}, None),
    ("PersistentVolume", {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
                                   "hostPath": {"path": "/x"}, "claimRef": {"namespace": "a", "name": "b"}}}, None),
    ("PriorityClass", {"value": 7}, None),
    ("StorageClass", {"provisioner": "a/b"}, None),
    ("StorageClass", {"provisioner": "a/b", "allowVolumeExpansion": True,
                      "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}, None),
    ("RuntimeClass", {"handler": "h"}, None),
    ("IngressClass", {"spec": {"controller": "a.b/c", "parameters": {
        "apiGroup": "g.io", "kind": "K", "name": "n"}}}, None),
    ("CSIDriver", {"spec": {"attachRequired": False, "tokenRequests": [{"audience": "a"}, {"audience": "b"}]}}, None),
    ("CSINode", {"spec": {"drivers": [{"name": "d.io", "nodeID": "n"}]}}, None),
    ("VolumeAttachment", {"spec": {"attacher": "a.io", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}, None),
    ("ValidatingAdmissionPolicyBinding", {"spec": {"policyName": "p", "validationActions": ["Deny"], "paramRef": {
        "name": "n", "parameterNotFoundAction": "Allow"}}}, None),
    ("PriorityLevelConfiguration", {"spec": {"type": "Limited", "limited": {"limitResponse": {
        "type": "Queue", "queuing": {}}}}}, None),
    ("ResourceSlice", {"spec": {"driver": "d.io", "nodeName": "n", "pool": {
        "name": "p", "resourceSliceCount": 1}}}, None),
    ("ServiceCIDR", {"spec": {"cidrs": ["10.99.0.0/16"]}}, None),
    ("ClusterRoleBinding", {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}}, None),
]  # fmt: skip


def test_cluster_objects_have_the_same_row(real_server: RealServer, real_namespace: str) -> None:
    names = []
    try:
        for index, (kind, body, status) in enumerate(CLUSTER_OBJECTS):
            name = f"{real_namespace}-{index}"
            names.append((GROUPS[kind], name))
            make(
                real_server,
                GROUPS[kind],
                {**body, "metadata": {**body.get("metadata", {}), "name": name}},
                status,
            )
        for kind in {kind for kind, _, _ in CLUSTER_OBJECTS} | {"APIService", "Namespace"}:
            assert_same_table(real_server, GROUPS[kind], builtin_printer(kind))
    finally:
        for path, name in names:
            real_server.call("DELETE", f"{path}/{name}")


def test_custom_columns_show_the_same_cells(real_server: RealServer, real_namespace: str) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "Null", "type": "string", "jsonPath": ".spec.n"},
        {"name": "Float", "type": "string", "jsonPath": ".spec.f"},
        {"name": "Cut", "type": "integer", "jsonPath": ".spec.f"},
        {"name": "Number", "type": "number", "jsonPath": ".spec.i", "format": "double"},
        {"name": "Flag", "type": "string", "jsonPath": ".spec.b"},
        {"name": "Bool", "type": "boolean", "jsonPath": ".spec.b", "description": "on or off"},
        {"name": "NoDate", "type": "date", "jsonPath": ".spec.d"},
        {"name": "NoInt", "type": "integer", "jsonPath": ".spec.d"},
        {"name": "Empty", "type": "date", "jsonPath": ".spec.e"},
        {"name": "Object", "type": "string", "jsonPath": ".spec.o", "priority": 1},
        {"name": "Filter", "type": "string", "jsonPath": '.spec.l[?(@.t=="x")].v'},
        {"name": "Outside", "type": "string", "jsonPath": ".spec.l[7].v"},
        {"name": "All", "type": "string", "jsonPath": ".spec.l[*].t"},
        {"name": "Last", "type": "string", "jsonPath": ".spec.l[-1].t"},
        {"name": "Deep", "type": "string", "jsonPath": "..v"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"n": {"type": "string", "nullable": True}},
            }
        },
    }
    group = f"{real_namespace}.example.com"
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{**version, "additionalPrinterColumns": columns}],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    make(real_server, crds, definition)
    path = f"/apis/{group}/v1/namespaces/{real_namespace}/gadgets"
    try:
        wait_until_blocking(lambda: real_server.call("GET", path).status == 200, seconds=20)
        gadget = {"apiVersion": f"{group}/v1", "kind": "Gadget"}
        spec = {
            "n": None, "f": 2.5, "i": 3, "b": True, "d": "nope", "e": "", "o": {"b": "<x>", "a": 1.0},
            "l": [{"t": "x", "v": [1, 2]}, {"t": "y", "v": 2}],
        }  # fmt: skip
        make(real_server, path, {**gadget, "metadata": {"name": "full"}, "spec": spec})
        make(real_server, path, {**gadget, "metadata": {"name": "bare"}})
        assert_same_table(real_server, path, custom_printer(columns), custom=True)
    finally:
        real_server.call("DELETE", f"{crds}/gadgets.{group}")

"""Objects to create on a real server and with our own rules: good ones and bad ones, and how to compare the two."""

import copy
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.registry.resources import builtin_resources
from gangline.apiserver.registry.strategies import resource_strategy
from gangline.schema.problems import FieldProblem

JSON = dict[str, Any]
CASES_FILE = Path(__file__).parent / "kinds.yaml"
UPDATES_FILE = Path(__file__).parent / "kind_updates.yaml"

CREATION_TIME = "2024-01-01T00:00:00Z"
TEST_UID = "11111111-2222-3333-4444-555555555555"
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SERVER_SET_FIELDS = ("uid", "creationTimestamp", "resourceVersion", "managedFields", "selfLink")


class KindResource(NamedTuple):
    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/namespaces/{namespace}/{self.plural}" if self.namespaced else f"{root}/{self.plural}"


_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
RESOURCES = {
    resource.kind if resource.group != "events.k8s.io" else "EventsV1": resource
    for resource in (
        KindResource("", "v1", "Pod", "pods"),
        KindResource("", "v1", "Service", "services"),
        KindResource("", "v1", "ConfigMap", "configmaps"),
        KindResource("", "v1", "Secret", "secrets"),
        KindResource("", "v1", "ServiceAccount", "serviceaccounts"),
        KindResource("", "v1", "Node", "nodes", namespaced=False),
        KindResource("", "v1", "Namespace", "namespaces", namespaced=False),
        KindResource("", "v1", "Event", "events"),
        KindResource("events.k8s.io", "v1", "Event", "events"),
        KindResource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
        KindResource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False),
        KindResource("", "v1", "ResourceQuota", "resourcequotas"),
        KindResource("", "v1", "LimitRange", "limitranges"),
        KindResource("", "v1", "Endpoints", "endpoints"),
        KindResource("apps", "v1", "Deployment", "deployments"),
        KindResource("apps", "v1", "ReplicaSet", "replicasets"),
        KindResource("apps", "v1", "StatefulSet", "statefulsets"),
        KindResource("apps", "v1", "DaemonSet", "daemonsets"),
        KindResource("batch", "v1", "Job", "jobs"),
        KindResource("batch", "v1", "CronJob", "cronjobs"),
        KindResource("coordination.k8s.io", "v1", "Lease", "leases"),
        KindResource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        KindResource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False),
        KindResource("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False),
        KindResource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        KindResource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
        KindResource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
        KindResource("networking.k8s.io", "v1", "Ingress", "ingresses"),
        KindResource("networking.k8s.io", "v1", "IngressClass", "ingressclasses", namespaced=False),
        KindResource("networking.k8s.io", "v1", "IPAddress", "ipaddresses", namespaced=False),
        KindResource("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", namespaced=False),
        KindResource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", namespaced=False),
        KindResource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", namespaced=False),
        KindResource("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False),
        KindResource("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
        KindResource("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False),
        KindResource("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", namespaced=False),
        KindResource(
            _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
        ),
        KindResource(
            _ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
        ),
        KindResource(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False),
        KindResource(
            _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False
        ),
        KindResource("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", namespaced=False),
        KindResource(
            "flowcontrol.apiserver.k8s.io",
            "v1",
            "PriorityLevelConfiguration",
            "prioritylevelconfigurations",
            namespaced=False,
        ),
        KindResource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False),
        KindResource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims"),
        KindResource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates"),
        KindResource("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False),
        KindResource(_RBAC, "v1", "Role", "roles"),
        KindResource(_RBAC, "v1", "RoleBinding", "rolebindings"),
        KindResource(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False),
        KindResource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    )
}


@cache
def kind_strategy(resource: KindResource) -> Strategy:
    """The strategy by which our server serves a kind."""
    wanted = (resource.group, resource.version, resource.plural)
    return resource_strategy(
        next(item for item in builtin_resources() if (item.group, item.version, item.plural) == wanted)
    )


class CreateResult(NamedTuple):
    """The result of a request: the stored object or the problems, and the warnings."""

    stored: JSON | None
    causes: list[JSON]
    warnings: list[str]


def admitted_object(resource: KindResource, body: JSON, namespace: str) -> JSON:
    """What the registry does around our rules, up to `create`."""
    obj = copy.deepcopy(body)
    obj["apiVersion"] = f"{resource.group}/{resource.version}" if resource.group else resource.version
    obj["kind"] = resource.kind
    meta = obj.setdefault("metadata", {})
    if resource.namespaced:
        meta["namespace"] = namespace
    rules = kind_strategy(resource)
    rules.normalize(obj)
    if resource.kind == "Pod":
        obj["spec"].setdefault("priority", 0)
        obj["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")
    return obj


def our_create_result(resource: KindResource, body: JSON, namespace: str) -> CreateResult:
    """The result of creating an object by our rules."""
    obj = admitted_object(resource, body, namespace)
    rules = kind_strategy(resource)
    obj["metadata"].update(uid=TEST_UID, creationTimestamp=CREATION_TIME)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"):
        obj["metadata"].pop(name, None)
    rules.prepare_for_create(obj, CREATION_TIME)
    problems = rules.validate(obj)
    causes = [status_cause(problem) for problem in problems]
    return CreateResult(None if causes else normalized_object(obj), causes, [] if causes else rules.warnings(obj, None))


def our_update_result(
    resource: KindResource, body: JSON, old: JSON, namespace: str, *, status: bool = False
) -> CreateResult:
    """The result of replacing `old`, an object from the server's response, by our rules."""
    obj = admitted_object(resource, body, namespace)
    rules = kind_strategy(resource)
    meta, before = obj["metadata"], old["metadata"]
    for name in (
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "managedFields",
        "generation",
        "deletionTimestamp",
    ):
        meta.pop(name, None)
        if name in before:
            meta[name] = copy.deepcopy(before[name])
    (rules.status.prepare_for_update if status else rules.prepare_for_update)(obj, copy.deepcopy(old))
    check = rules.status.validate_update if status else rules.validate_update
    causes = [status_cause(problem) for problem in check(obj, old)]
    return CreateResult(None if causes else normalized_object(obj), causes, [] if causes else rules.warnings(obj, old))


def status_cause(problem: FieldProblem) -> JSON:
    return {"reason": problem.kind.reason, "message": problem.message, "field": problem.field}


def normalized_object(obj: JSON) -> JSON:
    """An object without the fields that differ from server to server."""
    found: JSON = json.loads(_UUID.sub("<uid>", json.dumps(obj)))
    for name in _SERVER_SET_FIELDS:
        found["metadata"].pop(name, None)
    found.get("status", {}).pop("lastPhaseTransitionTime", None)
    for condition in found.get("status", {}).get("conditions", ()):
        condition.pop("lastTransitionTime", None)
    spec = found.get("spec", {})
    if found["kind"] == "Service" and spec.get("clusterIP", "None") != "None":
        spec["clusterIP"], spec["clusterIPs"] = "<ip>", ["<ip>"]
    if found["kind"] == "Service" and spec.get("type") != "ExternalName" and "clusterIP" not in spec:
        spec["clusterIP"], spec["clusterIPs"] = "<ip>", ["<ip>"]
    for port in spec.get("ports", ()) if found["kind"] == "Service" else ():
        port.pop("nodePort", None)
    return found


def cause_lines(causes: list[JSON]) -> list[str]:
    """Causes to compare: sorted, for maps have no order. Left out are ids, differences of structs, which Go's own
    printer tells, and whether nothing is shown as `null` or as empty."""
    return sorted(_cause_line(one) for one in causes)


def _cause_line(one: JSON) -> str:
    message = _UUID.sub("<uid>", one.get("message", "")).partition("\n")[0]
    message = re.sub(r":( ?)(\{\}|\[\])", r":\1null", message)
    if one["field"] == "spec.template":
        message = re.sub(r"value: \{.*\}", "value: ...", message)
    if "<secret contents redacted>" in message:
        message = message.partition(">")[0]
    return f"{one['field']} {one['reason']} {message}"


def mutated_body(body: JSON, chance: random.Random) -> JSON:
    """A copy of a body with one to three of its values replaced or removed."""
    copied = copy.deepcopy(body)
    for _ in range(chance.choice((1, 1, 2, 3))):
        places = [path for path in _value_paths(copied, ()) if path and path[:2] != ("metadata", "name")]
        if places:
            _replace_value(copied, chance.choice(places), chance)
    if not isinstance(copied.get("metadata"), dict):
        copied["metadata"] = {}
    return copied


def _value_paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _value_paths(inner, (*path, key))


_REPLACEMENTS: dict[type, tuple[Any, ...]] = {
    str: ("", "Bad Value", "a.b", "x" * 64, "-a", "../x", "/abs", None, "1", "a/b"),
    bool: (True, False, None),
    int: (0, -1, 1, 70000, None, 2**31 - 1),
    list: ([], None),
    dict: ({}, None),
}


def _replace_value(body: JSON, path: tuple[Any, ...], chance: random.Random) -> None:
    *way, last = path
    parent: Any = body
    for key in way:
        parent = parent[key]
    others = _REPLACEMENTS.get(type(parent[last]), ())
    if not others or chance.random() < 0.1:
        parent.pop(last)
    else:
        parent[last] = copy.deepcopy(chance.choice(others))


def load_cases() -> Iterator[tuple[str, JSON]]:
    """(kind, body) of every object to create."""
    for kind, bodies in msgspec.yaml.decode(CASES_FILE.read_bytes()).items():
        for body in bodies:
            yield kind, with_name(body)


def load_updates() -> Iterator[tuple[str, JSON, JSON, bool]]:
    """(kind, object, replacement, whether of the status) of every update."""
    for kind, old, new, *of_status in msgspec.yaml.decode(UPDATES_FILE.read_bytes()):
        yield kind, old, new, bool(of_status)


def with_name(body: JSON, name: str = "x") -> JSON:
    """The body with a name, unless it has one."""
    return {**body, "metadata": {"name": name, **(body.get("metadata") or {})}}


def with_namespace(body: JSON, namespace: str) -> JSON:
    """The body with `$NS` replaced by the namespace."""
    found: JSON = json.loads(json.dumps(body).replace("$NS", namespace))
    return found

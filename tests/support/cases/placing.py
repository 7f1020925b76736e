"""Random small clusters with a pod that may or may not fit a node, to compare kube-scheduler with us.

Every case has its own nodes and labels, so all of them live side by side in one cluster and do not see each other.
"""

from random import Random
from typing import NamedTuple

from gangline.api.meta import JSON

ZONE_LABEL, HOSTNAME_LABEL, GPU_RESOURCE = (
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "example.com/gpu",
)
CASE_LABEL, PROBE_LABEL, CSI_DRIVER = "case", "probe", "disk.example.com"
TIE_RESOURCE = "example.com/tie"
KEPT_FINALIZER = "example.com/kept"
REQUIRED_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
# What admission puts on every new node.
NOT_READY_TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"}


class PlacementCase(NamedTuple):
    name: str
    nodes: list[JSON]
    bound_pods: list[JSON]
    pod: JSON
    # Residents that are on their way out.
    terminating_pods: list[JSON]
    # Volumes and their claims.
    volumes: list[tuple[JSON, JSON]]
    # How many volumes can be attached to nodes.
    attach_limits: list[JSON]


def placement_cases(seed: int, count: int, spaces: tuple[str, str], scheduler: str) -> list[PlacementCase]:
    """`count` clusters, each once per node, with the pod tied to that node."""
    return [
        _CaseGenerator(Random(f"{seed}/{number}"), f"c{number}n{node}", spaces, scheduler).case(node)
        for number in range(count)
        for node in range(3)
    ]


class _CaseGenerator:
    def __init__(self, chance: Random, name: str, spaces: tuple[str, str], scheduler: str) -> None:
        self._chance, self._name, self._namespaces, self._scheduler = chance, name, spaces, scheduler

    def case(self, tied: int) -> PlacementCase:
        nodes = [self._node(number) for number in range(3)]
        # Nothing but an amount ties the pod to a node: a selector would change what spread looks at.
        nodes[tied]["status"]["allocatable"][TIE_RESOURCE] = "1"
        residents = [self._bound_pod(number) for number in range(self._chance.randrange(7))]
        leaving = [each for each in residents if self._chance_of(0.3)]
        pod = self._pod()
        for amounts in pod["spec"]["containers"][0]["resources"].values():
            amounts[TIE_RESOURCE] = "1"
        volumes, limits = self._storage([*residents, pod]) if self._chance_of(0.35) else ([], [])
        return PlacementCase(self._name, nodes, residents, pod, leaving, volumes, limits)

    def _storage(self, pods: list[JSON]) -> tuple[list[tuple[JSON, JSON]], list[JSON]]:
        """Volumes for the last pod and for some of the others, in its namespace; and how many nodes can have."""
        found = []
        for number, pod in enumerate(pods):
            if pod["metadata"]["namespace"] == self._namespaces[0] and (pod is pods[-1] or self._chance_of(0.7)):
                name = f"{self._name}-v{number}"
                found.append((self._volume(name, free=pod is not pods[-1]), self._claim(name)))
                source = {"persistentVolumeClaim": {"claimName": name}}
                pod["spec"]["volumes"] = [{"name": "data", **source}]
        limits = [self._csi_node(number) for number in range(3) if self._chance_of(0.8)]
        return found, limits

    def _volume(self, name: str, *, free: bool) -> JSON:
        """Of a driver or not; in a zone by its label or by its affinity, or on a node; or anywhere."""
        chance, zones = self._chance, [f"{self._name}-{letter}" for letter in "xy"]
        labels = {CASE_LABEL: self._name}
        spec: JSON = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
        }
        if self._chance_of(0.8):
            spec["csi"] = {"driver": CSI_DRIVER, "volumeHandle": name}
        else:
            spec["hostPath"] = {"path": "/data"}
        if self._chance_of(0.4) and not free:
            labels[ZONE_LABEL] = chance.choice([*zones, "__".join(zones)])
        if self._chance_of(0.5) and not free:
            key, value = chance.choice([(ZONE_LABEL, zones[0]), (HOSTNAME_LABEL, f"{self._name}-1")])
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        return {"metadata": {"name": name, "labels": labels}, "spec": spec}

    def _claim(self, name: str) -> JSON:
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        # One that is to be deleted, and is still there.
        kept = {"finalizers": [KEPT_FINALIZER]} if self._chance_of(0.1) else {}
        return {
            "metadata": {"name": name, "namespace": self._namespaces[0], "annotations": bound, **kept},
            "spec": {
                "volumeName": name,
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }

    def _csi_node(self, number: int) -> JSON:
        name = f"{self._name}-{number}"
        driver: JSON = {
            "name": CSI_DRIVER,
            "nodeID": name,
            "allocatable": {"count": self._chance.choice([1, 1, 1, 2])},
        }
        return {"metadata": {"name": name, "labels": {CASE_LABEL: self._name}}, "spec": {"drivers": [driver]}}

    def _chance_of(self, share: float) -> bool:
        return self._chance.random() < share

    def _node(self, number: int) -> JSON:
        chance, name = self._chance, f"{self._name}-{number}"
        labels = {CASE_LABEL: self._name, HOSTNAME_LABEL: name, "gen": chance.choice(["3", "7", "x"])}
        if self._chance_of(0.8):
            labels[ZONE_LABEL] = f"{self._name}-{chance.choice('xy')}"
        if self._chance_of(0.5):
            labels["disk"] = chance.choice(["ssd", "hdd"])
        taints = [
            {"key": key, "value": chance.choice(["1", "2"]), "effect": effect}
            for key, effect in (("a", "NoSchedule"), ("b", "NoExecute"), ("c", "PreferNoSchedule"))
            if self._chance_of(0.12)
        ]
        offered = {
            "cpu": chance.choice(["1", "2", "3500m"]),
            "memory": "3Gi",
            "ephemeral-storage": "2Gi",
            "pods": chance.choice(["3", "9", "9"]),
        }
        if self._chance_of(0.7):
            offered[GPU_RESOURCE] = chance.choice(["1", "2"])
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self._chance_of(0.04)},
            "status": {"allocatable": offered, "capacity": offered},
        }

    def _bound_pod(self, number: int) -> JSON:
        chance = self._chance
        spec: JSON = {
            "containers": [self._container("main")],
            "nodeName": f"{self._name}-{chance.randrange(3)}",
        }
        if self._chance_of(0.3):
            spec["affinity"] = {"podAntiAffinity": {REQUIRED_TERMS: [self._affinity_term()]}}
        return self._pod_body(f"{self._name}-r{number}", spec, {"app": chance.choice(["a", "b"]), **self._team_label()})

    def _pod(self) -> JSON:
        chance = self._chance
        spec: JSON = {
            "schedulerName": self._scheduler,
            "containers": [
                self._container("main"),
                *([self._container("more")] if self._chance_of(0.3) else []),
            ],
            "tolerations": [NOT_READY_TOLERATION, *(self._toleration() for _ in range(chance.randrange(3)))],
        }
        if self._chance_of(0.4):
            spec["initContainers"] = [
                self._container(f"i{number}", sidecar=self._chance_of(0.5)) for number in range(1 + chance.randrange(3))
            ]
        elif self._chance_of(0.15):
            # What the pod asks for as a whole: not less than its containers together.
            spec["resources"] = {"requests": {"cpu": chance.choice(["2", "3500m"]), "memory": "9Gi"}}
            if self._chance_of(0.7):
                del spec["resources"]["requests"]["memory"]
        spec["nodeSelector"] = {CASE_LABEL: self._name} | ({"disk": "ssd"} if self._chance_of(0.15) else {})
        if self._chance_of(0.5):
            spec["topologySpreadConstraints"] = [self._spread_constraint()]
        affinity: JSON = {}
        if self._chance_of(0.3):
            wanted = [self._node_term() for _ in range(1 + chance.randrange(2))]
            affinity["nodeAffinity"] = {REQUIRED_TERMS: {"nodeSelectorTerms": wanted}}
        if self._chance_of(0.35):
            affinity["podAffinity"] = {REQUIRED_TERMS: [self._affinity_term() for _ in range(1 + self._chance_of(0.2))]}
        if self._chance_of(0.35):
            affinity["podAntiAffinity"] = {REQUIRED_TERMS: [self._affinity_term()]}
        spec["affinity"] = affinity
        return self._pod_body(
            f"{self._name}-probe",
            spec,
            {"app": "a", PROBE_LABEL: "yes", **self._team_label()},
            self._namespaces[0],
        )

    def _pod_body(self, name: str, spec: JSON, labels: dict[str, str], space: str = "") -> JSON:
        metadata = {
            "name": name,
            "namespace": space or self._chance.choice([self._namespaces[0], self._namespaces[0], self._namespaces[1]]),
            "labels": {CASE_LABEL: self._name, **labels},
        }
        return {"metadata": metadata, "spec": spec}

    def _team_label(self) -> dict[str, str]:
        return {"team": self._chance.choice(["red", "blue"])} if self._chance_of(0.6) else {}

    def _container(self, name: str, *, sidecar: bool = False) -> JSON:
        chance = self._chance
        requests = {"cpu": chance.choice(["0", "100m", "250m", "500m", "1"])}
        if self._chance_of(0.4):
            requests["memory"] = chance.choice(["1Gi", "1500M", "500Mi"])
        if self._chance_of(0.15):
            requests["ephemeral-storage"] = chance.choice(["1Gi", "1500M"])
        if self._chance_of(0.12):
            requests[GPU_RESOURCE] = "1"
        limits = {GPU_RESOURCE: "1"} if GPU_RESOURCE in requests else {}
        body: JSON = {"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}}
        if self._chance_of(0.2):
            address = chance.choice(["", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"])
            port = {"containerPort": 80, "hostPort": 80, "protocol": chance.choice(["TCP", "TCP", "UDP"])}
            # Two containers of one pod may not have the same port.
            if name == "main":
                body["ports"] = [port | ({"hostIP": address} if address else {})]
        return body | ({"restartPolicy": "Always"} if sidecar else {})

    def _toleration(self) -> JSON:
        chance = self._chance
        found: JSON = {"key": chance.choice("abc")}
        if self._chance_of(0.5):
            found["operator"] = "Exists"
            if self._chance_of(0.15):
                del found["key"]
        else:
            found["value"] = chance.choice(["1", "2"])
        if self._chance_of(0.5):
            found["effect"] = chance.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
        return found

    def _node_term(self) -> JSON:
        chance = self._chance
        known = [
            {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]},
            {"key": "disk", "operator": "NotIn", "values": ["ssd"]},
            {"key": "disk", "operator": "Exists"},
            {"key": "disk", "operator": "DoesNotExist"},
            {"key": "gen", "operator": "Gt", "values": ["4"]},
            {"key": "gen", "operator": "Lt", "values": ["4"]},
        ]
        if self._chance_of(0.2):
            operator, node = chance.choice(["In", "NotIn"]), f"{self._name}-{chance.randrange(3)}"
            return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [node]}]}
        return {"matchExpressions": [chance.choice(known)]}

    def _label_selector(self) -> JSON:
        chance = self._chance
        labels = {CASE_LABEL: self._name} | ({"app": chance.choice(["a", "b"])} if self._chance_of(0.8) else {})
        found: JSON = {"matchLabels": labels}
        if self._chance_of(0.3):
            operator = chance.choice(["In", "NotIn", "Exists", "DoesNotExist"])
            values = {"values": ["red"]} if "In" in operator else {}
            found["matchExpressions"] = [{"key": "team", "operator": operator, **values}]
        return found

    def _affinity_term(self) -> JSON:
        chance = self._chance
        found: JSON = {"topologyKey": chance.choice([HOSTNAME_LABEL, ZONE_LABEL])}
        if self._chance_of(0.95):
            found["labelSelector"] = self._label_selector()
        if self._chance_of(0.2):
            found["namespaces"] = [self._namespaces[1]]
        if self._chance_of(0.2):
            found["namespaceSelector"] = chance.choice([{}, {"matchLabels": {"colour": "green"}}])
        if "labelSelector" in found and "matchExpressions" not in found["labelSelector"] and self._chance_of(0.2):
            found[chance.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["team"]
        return found

    def _spread_constraint(self) -> JSON:
        chance = self._chance
        found: JSON = {
            "topologyKey": chance.choice([HOSTNAME_LABEL, ZONE_LABEL, ZONE_LABEL]),
            "maxSkew": chance.choice([1, 1, 2]),
            "whenUnsatisfiable": chance.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": self._label_selector() if self._chance_of(0.9) else {},
        }
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self._chance_of(0.3):
            found["minDomains"] = chance.choice([1, 2, 3])
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self._chance_of(0.4):
                found[policy] = chance.choice(["Honor", "Ignore"])
        if "matchExpressions" not in found["labelSelector"] and self._chance_of(0.2):
            found["matchLabelKeys"] = ["team"]
        return found

"""Pod templates with one mistake each, which a CRD accepts and an API server rejects when the pod is created."""

from copy import deepcopy
from typing import Any, NamedTuple

from gangline.api.meta import JSON

VALID_POD_SPEC: JSON = {
    "containers": [
        {
            "name": "tensorflow",
            "image": "train:1",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}],
            "ports": [{"name": "http", "containerPort": 80}, {"containerPort": 81}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            "livenessProbe": {"exec": {"command": ["true"]}},
        },
        {"name": "sidecar", "image": "logs:1"},
    ],
    "initContainers": [{"name": "fetch", "image": "fetch:1"}],
    "volumes": [{"name": "data", "emptyDir": {}}],
}
"""Everything in it is right."""


class PodMistake(NamedTuple):
    """A wrong value and its path, the field and message of the error, and the suggested fix."""

    changed_path: str
    value: Any
    reported_path: str
    expected_message: str
    suggestion: str = ""

    @property
    def spec(self) -> JSON:
        """The good spec, with the mistake in it."""
        spec = deepcopy(VALID_POD_SPEC)
        *above, last = _path_steps(self.changed_path)
        place: Any = spec
        for step in above:
            place = place[step]
        if isinstance(place, list) and last == len(place):
            place.append(self.value)
        elif self.value is None:
            del place[last]
        else:
            place[last] = self.value
        return spec


def _path_steps(path: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in path.split(".")]


FIRST_CONTAINER, SECOND_CONTAINER = "containers[0]", "containers[1]"
POD_MISTAKES = {
    "pull policy": PodMistake("containers.0.imagePullPolicy", "ifnotpresent", f"{FIRST_CONTAINER}.imagePullPolicy", '"IfNotPresent"', "imagePullPolicy: IfNotPresent"),
    "message policy": PodMistake("containers.0.terminationMessagePolicy", "Logs", f"{FIRST_CONTAINER}.terminationMessagePolicy", "FallbackToLogsOnError"),
    "protocol": PodMistake("containers.0.ports.0.protocol", "tcp", f"{FIRST_CONTAINER}.ports[0].protocol", '"TCP"', "protocol: TCP"),
    "dns policy": PodMistake("dnsPolicy", "clusterfirst", "dnsPolicy", '"ClusterFirst"', "dnsPolicy: ClusterFirst"),
    "dns without servers": PodMistake("dnsPolicy", "None", "dnsConfig", "must provide `dnsConfig`"),
    "propagation": PodMistake("containers.0.volumeMounts.0.mountPropagation", "HostToPod", f"{FIRST_CONTAINER}.volumeMounts[0].mountPropagation", "HostToContainer"),
    "container name": PodMistake("containers.1.name", "My_Sidecar", f"{SECOND_CONTAINER}.name", "RFC 1123", "name: my-sidecar"),
    "init container twice": PodMistake("initContainers.0.name", "sidecar", "initContainers[0].name", 'Duplicate value: "sidecar"'),
    "blank around the image": PodMistake("containers.0.image", "train:1 ", f"{FIRST_CONTAINER}.image", "whitespace"),
    "port name": PodMistake("containers.0.ports.0.name", "Web_Server", f"{FIRST_CONTAINER}.ports[0].name", "a-z", "name: web-server"),
    "port name twice": PodMistake("containers.0.ports.1.name", "http", f"{FIRST_CONTAINER}.ports[1].name", "Duplicate value"),
    "port number": PodMistake("containers.0.ports.0.containerPort", 70000, f"{FIRST_CONTAINER}.ports[0].containerPort", "between 1 and 65535"),
    "host port": PodMistake("containers.0.ports.0.hostPort", -1, f"{FIRST_CONTAINER}.ports[0].hostPort", "between 1 and 65535"),
    "request above limit": PodMistake("containers.0.resources.requests.cpu", "2", f"{FIRST_CONTAINER}.resources.requests.cpu", "must be less than or equal to cpu limit of 1", "cpu: 1"),
    "negative request": PodMistake("containers.0.resources.requests.cpu", "-1", f"{FIRST_CONTAINER}.resources.requests.cpu", "greater than or equal to 0"),
    "gpu without limit": PodMistake("containers.0.resources", {"requests": {"nvidia.com/gpu": 1}}, f"{FIRST_CONTAINER}.resources.limits", "Limit must be set", "limits: {nvidia.com/gpu: 1}"),
    "half a gpu": PodMistake("containers.0.resources", {"limits": {"nvidia.com/gpu": "500m"}}, f"{FIRST_CONTAINER}.resources.limits[\"nvidia.com/gpu\"]", "integer"),
    "resource without domain": PodMistake("containers.0.resources", {"limits": {"gpu": 1}}, f"{FIRST_CONTAINER}.resources.limits.gpu", "write its full name, nvidia.com/gpu", "nvidia.com/gpu: 1"),
    "unknown volume": PodMistake("containers.0.volumeMounts.0.name", "date", f"{FIRST_CONTAINER}.volumeMounts[0].name", 'there is no volume "date"; name one of data', "name: data"),
    "no volumes": PodMistake("volumes", None, f"{FIRST_CONTAINER}.volumeMounts[0].name", 'there is no volume "data"; add it to volumes'),
    "volume of two kinds": PodMistake("volumes.0.hostPath", {"path": "/"}, "volumes[0].hostPath", "may not specify more than 1 volume type"),
    "value and valueFrom": PodMistake("containers.0.env.0.valueFrom", {"fieldRef": {"fieldPath": "metadata.name"}}, f"{FIRST_CONTAINER}.env[0].valueFrom", "may not be specified when `value` is not empty"),
    "unknown field of the pod": PodMistake("containers.0.env.0", {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.nme"}}}, f"{FIRST_CONTAINER}.env[0].valueFrom.fieldRef.fieldPath", "metadata.nme"),
    "probe without action": PodMistake("containers.0.livenessProbe", {"periodSeconds": 5}, f"{FIRST_CONTAINER}.livenessProbe", "must specify a handler type"),
    "probe of an init container": PodMistake("initContainers.0.livenessProbe", {"exec": {"command": ["true"]}}, "initContainers[0].livenessProbe", "may not be set for init containers"),
    "toleration": PodMistake("tolerations", [{"key": "gpu", "operator": "Equals", "value": "x"}], "tolerations[0].operator", '"Equal"', "operator: Equal"),
    "node selector": PodMistake("nodeSelector", {"a b": "x"}, "nodeSelector", "must consist of alphanumeric"),
    "account": PodMistake("serviceAccountName", "My Account", "serviceAccountName", "RFC 1123"),
}  # fmt: skip

VALID_VARIANTS = {
    "host network": PodMistake("hostNetwork", value=True, reported_path="", expected_message=""),
    "propagation": PodMistake("containers.0.volumeMounts.0.mountPropagation", "HostToContainer", "", ""),
    "two mounts of a volume": PodMistake("containers.0.volumeMounts.1", {"name": "data", "mountPath": "/more"}, "", ""),
    "a volume of no kind": PodMistake("volumes.0", {"name": "data"}, "", ""),
    "gpu": PodMistake("containers.0.resources", {"limits": {"nvidia.com/gpu": 1}}, "", ""),
    "a sidecar": PodMistake("initContainers.0.restartPolicy", "Always", "", ""),
    "an empty value beside valueFrom": PodMistake("containers.0.env.0", {"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "", ""),
    "a variable with a dot": PodMistake("containers.0.env.0.name", "a.b-c", "", ""),
    "hook": PodMistake("containers.0.lifecycle", {"preStop": {"sleep": {"seconds": 5}}}, "", ""),
    "a toleration of everything": PodMistake("tolerations", [{"operator": "Exists"}], "", ""),
    "numbers as quantities": PodMistake("containers.0.resources", {"limits": {"cpu": 2, "memory": 1e9}}, "", ""),
    "a name of a host": PodMistake("hostname", "a-b", "", ""),
}  # fmt: skip
"""As good, and less usual."""

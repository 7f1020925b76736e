"""Pod templates with one mistake each, which a definition takes and an API server refuses when the pod is created."""

from copy import deepcopy
from typing import Any, NamedTuple

from gangline.api.meta import JSON

GOOD: JSON = {
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


class Bad(NamedTuple):
    """What to write where, what is said of which field, and what is said to be written."""

    at: str
    value: Any
    path: str
    says: str
    write: str = ""

    @property
    def spec(self) -> JSON:
        """The good spec, with the mistake in it."""
        spec = deepcopy(GOOD)
        *above, last = _steps(self.at)
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


def _steps(path: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in path.split(".")]


ONE, TWO = "containers[0]", "containers[1]"
BAD = {
    "pull policy": Bad("containers.0.imagePullPolicy", "ifnotpresent", f"{ONE}.imagePullPolicy", '"IfNotPresent"', "imagePullPolicy: IfNotPresent"),
    "message policy": Bad("containers.0.terminationMessagePolicy", "Logs", f"{ONE}.terminationMessagePolicy", "FallbackToLogsOnError"),
    "protocol": Bad("containers.0.ports.0.protocol", "tcp", f"{ONE}.ports[0].protocol", '"TCP"', "protocol: TCP"),
    "dns policy": Bad("dnsPolicy", "clusterfirst", "dnsPolicy", '"ClusterFirst"', "dnsPolicy: ClusterFirst"),
    "dns without servers": Bad("dnsPolicy", "None", "dnsConfig", "must provide `dnsConfig`"),
    "propagation": Bad("containers.0.volumeMounts.0.mountPropagation", "HostToPod", f"{ONE}.volumeMounts[0].mountPropagation", "HostToContainer"),
    "container name": Bad("containers.1.name", "My_Sidecar", f"{TWO}.name", "RFC 1123", "name: my-sidecar"),
    "init container twice": Bad("initContainers.0.name", "sidecar", "initContainers[0].name", 'Duplicate value: "sidecar"'),
    "blank around the image": Bad("containers.0.image", "train:1 ", f"{ONE}.image", "whitespace"),
    "port name": Bad("containers.0.ports.0.name", "Web_Server", f"{ONE}.ports[0].name", "a-z", "name: web-server"),
    "port name twice": Bad("containers.0.ports.1.name", "http", f"{ONE}.ports[1].name", "Duplicate value"),
    "port number": Bad("containers.0.ports.0.containerPort", 70000, f"{ONE}.ports[0].containerPort", "between 1 and 65535"),
    "host port": Bad("containers.0.ports.0.hostPort", -1, f"{ONE}.ports[0].hostPort", "between 1 and 65535"),
    "request above limit": Bad("containers.0.resources.requests.cpu", "2", f"{ONE}.resources.requests.cpu", "must be less than or equal to cpu limit of 1", "cpu: 1"),
    "negative request": Bad("containers.0.resources.requests.cpu", "-1", f"{ONE}.resources.requests.cpu", "greater than or equal to 0"),
    "gpu without limit": Bad("containers.0.resources", {"requests": {"nvidia.com/gpu": 1}}, f"{ONE}.resources.limits", "Limit must be set", "limits: {nvidia.com/gpu: 1}"),
    "half a gpu": Bad("containers.0.resources", {"limits": {"nvidia.com/gpu": "500m"}}, f"{ONE}.resources.limits[\"nvidia.com/gpu\"]", "integer"),
    "resource without domain": Bad("containers.0.resources", {"limits": {"gpu": 1}}, f"{ONE}.resources.limits.gpu", "standard resource"),
    "unknown volume": Bad("containers.0.volumeMounts.0.name", "date", f"{ONE}.volumeMounts[0].name", 'there is no volume "date"; name one of data', "name: data"),
    "no volumes": Bad("volumes", None, f"{ONE}.volumeMounts[0].name", 'there is no volume "data"; add it to volumes'),
    "volume of two kinds": Bad("volumes.0.hostPath", {"path": "/"}, "volumes[0].hostPath", "may not specify more than 1 volume type"),
    "value and valueFrom": Bad("containers.0.env.0.valueFrom", {"fieldRef": {"fieldPath": "metadata.name"}}, f"{ONE}.env[0].valueFrom", "may not be specified when `value` is not empty"),
    "unknown field of the pod": Bad("containers.0.env.0", {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.nme"}}}, f"{ONE}.env[0].valueFrom.fieldRef.fieldPath", "metadata.nme"),
    "probe without action": Bad("containers.0.livenessProbe", {"periodSeconds": 5}, f"{ONE}.livenessProbe", "must specify a handler type"),
    "probe of an init container": Bad("initContainers.0.livenessProbe", {"exec": {"command": ["true"]}}, "initContainers[0].livenessProbe", "may not be set for init containers"),
    "toleration": Bad("tolerations", [{"key": "gpu", "operator": "Equals", "value": "x"}], "tolerations[0].operator", '"Equal"', "operator: Equal"),
    "node selector": Bad("nodeSelector", {"a b": "x"}, "nodeSelector", "must consist of alphanumeric"),
    "account": Bad("serviceAccountName", "My Account", "serviceAccountName", "RFC 1123"),
}  # fmt: skip

FINE = {
    "host network": Bad("hostNetwork", value=True, path="", says=""),
    "propagation": Bad("containers.0.volumeMounts.0.mountPropagation", "HostToContainer", "", ""),
    "two mounts of a volume": Bad("containers.0.volumeMounts.1", {"name": "data", "mountPath": "/more"}, "", ""),
    "a volume of no kind": Bad("volumes.0", {"name": "data"}, "", ""),
    "gpu": Bad("containers.0.resources", {"limits": {"nvidia.com/gpu": 1}}, "", ""),
    "a sidecar": Bad("initContainers.0.restartPolicy", "Always", "", ""),
    "an empty value beside valueFrom": Bad("containers.0.env.0", {"name": "A", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, "", ""),
    "a variable with a dot": Bad("containers.0.env.0.name", "a.b-c", "", ""),
    "hook": Bad("containers.0.lifecycle", {"preStop": {"sleep": {"seconds": 5}}}, "", ""),
    "a toleration of everything": Bad("tolerations", [{"operator": "Exists"}], "", ""),
    "numbers as quantities": Bad("containers.0.resources", {"limits": {"cpu": 2, "memory": 1e9}}, "", ""),
    "a name of a host": Bad("hostname", "a-b", "", ""),
}  # fmt: skip
"""As good, and less usual."""

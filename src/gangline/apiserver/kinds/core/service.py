"""Services.

The real server allocates addresses before it validates, and a problem found on the way is the only one told. Here
`create` and `update` do what needs no pool, `validate` tells those problems first, and the registry takes addresses
and ports from the pools of `pools.py` once all is well.
"""

import ipaddress
from collections.abc import Iterable
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.core import service_ips
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata
from gangline.apiserver.kinds.machinery.problems import (
    duplicate,
    each,
    forbidden,
    invalid,
    required,
    unsupported,
)
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.apiserver.kinds.pod import containers, probes
from gangline.schema.problems import Problem

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_ONLY_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_LONGEST_AFFINITY = 86400


class ServiceKind(Kind):
    struct = "core.v1.Service"
    has_status = True
    created_by_update = True

    def name_check(self, name: str) -> tuple[str, ...]:
        return formats.dns_1035_label(name)

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        _set_affinity(spec)
        kind = spec.setdefault("type", "ClusterIP")
        for port in spec.get("ports", ()):
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (0, ""):
                port["targetPort"] = port["port"]
        if service_ips.is_external(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind in {"ClusterIP", "NodePort", "LoadBalancer"}:
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            for ingress in obj["status"]["loadBalancer"].get("ingress", ()):
                if ingress.get("ip"):
                    ingress.setdefault("ipMode", "VIP")

    def create(self, obj: JSON, now: str) -> None:
        super().create(obj, now)
        spec = obj["spec"]
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        service_ips.choose_families(spec, None)

    def update(self, obj: JSON, old: JSON) -> None:
        super().update(obj, old)
        new, before = obj["spec"], old["spec"]
        service_ips.drop_by_type(new, before)
        service_ips.keep_allocated(new, before)
        service_ips.align_addresses(new, before)
        service_ips.choose_families(new, before)

    def validate(self, obj: JSON) -> list[Problem]:
        return service_ips.family_problems(obj["spec"]) or super().validate(obj)

    def validate_update(self, obj: JSON, old: JSON) -> list[Problem]:
        return service_ips.family_problems(obj["spec"]) or super().validate_update(obj, old)

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *self.validate_metadata_update(obj, old),
            *service_ips.address_change(obj["spec"], old["spec"]),
            *_class_change(obj["spec"], old["spec"]),
            *self.check(obj),
        ]

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        found: list[Problem] = []
        before = {one.get("ip") for one in old["status"].get("loadBalancer", {}).get("ingress", ())}
        for index, ingress in enumerate(obj["status"]["loadBalancer"].get("ingress", ())):
            found += _ingress(ingress, before, f"status.loadBalancer.ingress[{index}]")
        return found

    def check(self, obj: JSON) -> list[Problem]:
        spec = obj["spec"]
        return [
            *_topology(obj["metadata"].get("annotations", {})),
            *_type_rules(spec),
            *_ports(spec),
            *metadata.labels(spec.get("selector", {}), "spec.selector"),
            *_affinity(spec),
            *_addresses(spec),
            *_node_ports(spec),
            *_balancing(spec),
            *_traffic(spec),
        ]

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        spec = obj["spec"]
        told: list[str] = []
        if _HINTS in obj["metadata"].get("annotations", {}):
            told.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
        if spec.get("clusterIPs") == [service_ips.HEADLESS]:
            told += [f"spec.{name} is ignored for headless services" for name in _ignored(spec)]
        external = spec["type"] == "ExternalName"
        if external and spec.get("externalIPs"):
            told.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
        if not external and spec.get("externalName"):
            told.append('spec.externalName is ignored when spec.type is not "ExternalName"')
        return told


def _ignored(spec: JSON) -> Iterable[str]:
    if spec.get("loadBalancerIP"):
        yield "loadBalancerIP"
    if spec.get("externalIPs"):
        yield "externalIPs"
    if spec["sessionAffinity"] != "None":
        yield "SessionAffinity"


def _set_affinity(spec: JSON) -> None:
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.get("sessionAffinityConfig", {})
        if "timeoutSeconds" not in config.get("clientIP", {}):
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}


def _class_change(new: JSON, old: JSON) -> list[Problem]:
    name = "loadBalancerClass"
    if new["type"] == old["type"] == "LoadBalancer" and new.get(name) != old.get(name):
        return [invalid(f"spec.{name}", new.get(name), "may not change once set")]
    return []


def _ingress(ingress: JSON, before: set[str | None], path: str) -> list[Problem]:
    address, mode, name = ingress.get("ip", ""), ingress.get("ipMode"), ingress.get("hostname", "")
    found: list[Problem] = []
    if address and address not in before:
        found += each(f"{path}.ip", address, formats.ip_address(address))
    if mode is None and address:
        found.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif mode is not None and not address:
        found.append(forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    elif mode is not None and mode not in {"Proxy", "VIP"}:
        found.append(unsupported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
    if name:
        found += each(f"{path}.hostname", name, formats.dns_subdomain(name))
        if not formats.ip_address(name):
            found.append(invalid(f"{path}.hostname", name, "must be a DNS name, not an IP address"))
    return found


def _topology(annotations: dict[str, str]) -> list[Problem]:
    hints, mode = annotations.get(_HINTS), annotations.get(_MODE)
    if hints is None or mode is None or hints == mode:
        return []
    told = f"must match annotations[{_HINTS}] when both are specified"
    return [invalid(f"metadata.annotations[{_MODE}]", mode, told)]


def _type_rules(spec: JSON) -> list[Problem]:
    found: list[Problem] = []
    kind, headless = spec["type"], spec.get("clusterIPs") == [service_ips.HEADLESS]
    if not spec.get("ports") and not headless and kind != "ExternalName":
        found.append(required("spec.ports"))
    if kind in {"LoadBalancer", "NodePort"} and headless:
        told = f"may not be set to 'None' for {kind} services"
        found.append(invalid("spec.clusterIPs[0]", service_ips.HEADLESS, told))
    if kind == "ExternalName":
        found += [
            forbidden(f"spec.{name}", "may not be set for ExternalName services")
            for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
            if spec.get(name)
        ]
        alias = spec.get("externalName", "").removesuffix(".")
        path = "spec.externalName"
        found += each(path, alias, formats.dns_subdomain(alias)) if alias else [required(path)]
    return found


def _ports(spec: JSON) -> list[Problem]:
    found: list[Problem] = []
    names: set[str] = set()
    ports = spec.get("ports", ())
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if name:
            found += each(f"{path}.name", name, formats.dns_label(name))
            if name in names:
                found.append(duplicate(f"{path}.name", name))
            names.add(name)
        elif len(ports) > 1:
            found.append(required(f"{path}.name"))
        found += each(f"{path}.port", port["port"], formats.port_number(port["port"]))
        if port["protocol"] not in containers.PROTOCOLS:
            found.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
        found += probes.port(port["targetPort"], f"{path}.targetPort")
        if "appProtocol" in port:
            name = port["appProtocol"]
            found += each(f"{path}.appProtocol", name, formats.qualified_name(name))
    return found


def _affinity(spec: JSON) -> list[Problem]:
    affinity = spec["sessionAffinity"]
    if affinity not in {"ClientIP", "None"}:
        return [unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))]
    if affinity == "ClientIP":
        seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= _LONGEST_AFFINITY:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            return [invalid(path, seconds, f"must be greater than 0 and less than {_LONGEST_AFFINITY}")]
    return []


def _addresses(spec: JSON) -> list[Problem]:
    found: list[Problem] = []
    for index, address in enumerate(spec.get("externalIPs", ())):
        path = f"spec.externalIPs[{index}]"
        said = formats.ip_address(address)
        found += each(path, address, said) if said else outside(address, path)
    if spec["type"] not in _TYPES:
        found.append(unsupported("spec.type", spec["type"], _TYPES))
    return found


def outside(address: str, path: str) -> list[Problem]:
    """Of an endpoint: not an address that means something else."""
    value = ipaddress.ip_address(address)
    rules = (
        (value.is_unspecified, "may not be unspecified"),
        (value.is_loopback, "may not be in the loopback range"),
        (value.is_link_local, "may not be in the link-local range"),
        (
            value.is_multicast and str(value).startswith(("224.0.0.", "ff02")),
            "may not be in the link-local multicast range",
        ),
    )
    return [
        invalid(path, address, f"{told} ({_RANGES.get(told, address)})") for wrong, told in rules if wrong
    ]


_RANGES = {
    "may not be in the loopback range": "127.0.0.0/8, ::1/128",
    "may not be in the link-local range": "169.254.0.0/16, fe80::/10",
    "may not be in the link-local multicast range": "224.0.0.0/24, ff02::/10",
}


def _node_ports(spec: JSON) -> list[Problem]:
    found: list[Problem] = []
    ports = spec.get("ports", ())
    for index, port in enumerate(ports):
        if spec["type"] == "ClusterIP" and port.get("nodePort"):
            told = "may not be used when `type` is 'ClusterIP'"
            found.append(forbidden(f"spec.ports[{index}].nodePort", told))
    taken: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port["protocol"], port.get("nodePort", 0))
        if key[1] and key in taken:
            found.append(duplicate(f"spec.ports[{index}].nodePort", key[1]))
        taken.add(key)
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        pair = (port["protocol"], port["port"])
        if pair in seen:
            found.append(duplicate(f"spec.ports[{index}]", _shown_port(*pair)))
        seen.add(pair)
    return found


def _shown_port(protocol: str, port: int) -> Any:
    shown = {"name": "", "protocol": protocol, "port": port, "targetPort": 0, "nodePort": 0}
    return gostruct.internal(shown, "Name Protocol AppProtocol Port TargetPort NodePort")


def _balancing(spec: JSON) -> list[Problem]:
    found: list[Problem] = []
    balanced = spec["type"] == "LoadBalancer"
    ranges, path = spec.get("loadBalancerSourceRanges", ()), "spec.LoadBalancerSourceRanges"
    if ranges and not balanced:
        found.append(forbidden(path, _ONLY_BALANCED))
    for index, value in enumerate(ranges):
        found += each(f"{path}[{index}]", value.strip(), formats.cidr(value.strip()))
    for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if name in spec and not balanced:
            found.append(forbidden(f"spec.{name}", _ONLY_BALANCED))
    if balanced and "loadBalancerClass" in spec:
        value = spec["loadBalancerClass"]
        found += each("spec.loadBalancerClass", value, formats.qualified_name(value))
    return found


def _traffic(spec: JSON) -> list[Problem]:
    found: list[Problem] = []
    known = ("Cluster", "Local")
    external: Any = spec.get("externalTrafficPolicy")
    if external is not None and not service_ips.is_external(spec):
        told = "may only be set for externally-accessible services"
        found.append(invalid("spec.externalTrafficPolicy", external, told))
    elif external is not None and external not in known:
        found.append(unsupported("spec.externalTrafficPolicy", external, known))
    checked = spec["type"] == "LoadBalancer" and external == "Local"
    if spec.get("healthCheckNodePort") and not checked:
        told = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        found.append(invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], told))
    internal = spec.get("internalTrafficPolicy", "Cluster")
    if internal not in known:
        found.append(unsupported("spec.internalTrafficPolicy", internal, known))
    wanted = spec.get("trafficDistribution")
    if wanted is not None and wanted not in _DISTRIBUTIONS:
        found.append(unsupported("spec.trafficDistribution", wanted, _DISTRIBUTIONS))
    return found

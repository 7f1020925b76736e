"""Services.

kube-apiserver allocates addresses before it validates, and reports a problem of the allocation alone. Here the
`prepare_for_...` methods do what needs no pool, `validate` reports those problems first, and the registry allocates
addresses and ports from the pools of `ip_pools.py` once there are no problems.
"""

import ipaddress
from collections.abc import Iterable
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.core import service_ips
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.apiserver.kinds.pod import containers, probes
from gangline.base.host_features import POD_RANGE
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required, unsupported

_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_TRAFFIC_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_TOPOLOGY_HINTS_ANNOTATION, _TOPOLOGY_MODE_ANNOTATION = (
    "service.kubernetes.io/topology-aware-hints",
    "service.kubernetes.io/topology-mode",
)
_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"
_MAX_AFFINITY_SECONDS = 86400


class ServiceStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        before = {ingress_point.get("ip") for ingress_point in old["status"].get("loadBalancer", {}).get("ingress", ())}
        for index, ingress in enumerate(obj["status"]["loadBalancer"].get("ingress", ())):
            problems += _validate_ingress(ingress, before, f"status.loadBalancer.ingress[{index}]")
        return problems


class ServiceStrategy(Strategy):
    struct = "core.v1.Service"
    has_status = True
    name_errors = staticmethod(formats.dns_1035_label_errors)
    status_strategy = ServiceStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        _set_affinity_defaults(spec)
        kind = spec.setdefault("type", "ClusterIP")
        for port in spec.get("ports", ()):
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (0, ""):
                port["targetPort"] = port["port"]
        if service_ips.is_externally_accessible(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if kind in {"ClusterIP", "NodePort", "LoadBalancer"}:
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if kind == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            for ingress in obj["status"]["loadBalancer"].get("ingress", ()):
                if ingress.get("ip"):
                    ingress.setdefault("ipMode", "VIP")

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        spec = obj["spec"]
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        service_ips.set_ip_families(spec, None)

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        new, before = obj["spec"], old["spec"]
        service_ips.drop_type_dependent_fields(new, before)
        service_ips.keep_allocated_values(new, before)
        service_ips.sync_cluster_ips(new, before)
        service_ips.set_ip_families(new, before)

    def validate(self, obj: JSON) -> list[FieldProblem]:
        return service_ips.validate_ip_families(obj["spec"]) or super().validate(obj)

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return service_ips.validate_ip_families(obj["spec"]) or super().validate_update(obj, old)

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.metadata.validate_update(obj, old),
            *service_ips.validate_cluster_ip_update(obj["spec"], old["spec"]),
            *_validate_class_update(obj["spec"], old["spec"]),
            *self.validate_content(obj),
        ]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        return [
            *_validate_topology_annotations(obj["metadata"].get("annotations", {})),
            *_validate_type_fields(spec),
            *_validate_ports(spec),
            *metadata.validate_labels(spec.get("selector", {}), "spec.selector"),
            *_validate_session_affinity(spec),
            *_validate_external_ips(spec),
            *_validate_node_ports(spec),
            *_validate_load_balancer(spec),
            *_validate_traffic_policies(spec),
        ]

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        spec = obj["spec"]
        warnings: list[str] = []
        if _TOPOLOGY_HINTS_ANNOTATION in obj["metadata"].get("annotations", {}):
            warnings.append(
                f"annotation {_TOPOLOGY_HINTS_ANNOTATION} is deprecated, please use {_TOPOLOGY_MODE_ANNOTATION} instead"
            )
        if spec.get("clusterIPs") == [service_ips.HEADLESS]:
            warnings += [f"spec.{name} is ignored for headless services" for name in _headless_ignored_fields(spec)]
        external = spec["type"] == "ExternalName"
        if external and spec.get("externalIPs"):
            warnings.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
        if not external and spec.get("externalName"):
            warnings.append('spec.externalName is ignored when spec.type is not "ExternalName"')
        return warnings


def _headless_ignored_fields(spec: JSON) -> Iterable[str]:
    if spec.get("loadBalancerIP"):
        yield "loadBalancerIP"
    if spec.get("externalIPs"):
        yield "externalIPs"
    if spec["sessionAffinity"] != "None":
        yield "SessionAffinity"


def _set_affinity_defaults(spec: JSON) -> None:
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.get("sessionAffinityConfig", {})
        if "timeoutSeconds" not in config.get("clientIP", {}):
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}


def _validate_class_update(new: JSON, old: JSON) -> list[FieldProblem]:
    name = "loadBalancerClass"
    if new["type"] == old["type"] == "LoadBalancer" and new.get(name) != old.get(name):
        return [invalid(f"spec.{name}", new.get(name), "may not change once set")]
    return []


def _validate_ingress(ingress: JSON, before: set[str | None], path: str) -> list[FieldProblem]:
    address, mode, name = ingress.get("ip", ""), ingress.get("ipMode"), ingress.get("hostname", "")
    problems: list[FieldProblem] = []
    if address and address not in before:
        problems += invalid_each(f"{path}.ip", address, formats.ip_address_errors(address))
    if mode is None and address:
        problems.append(required(f"{path}.ipMode", "must be specified when `ip` is set"))
    elif mode is not None and not address:
        problems.append(forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set"))
    elif mode is not None and mode not in {"Proxy", "VIP"}:
        problems.append(unsupported(f"{path}.ipMode", mode, ("Proxy", "VIP")))
    if name:
        problems += invalid_each(f"{path}.hostname", name, formats.dns_subdomain_errors(name))
        if not formats.ip_address_errors(name):
            problems.append(invalid(f"{path}.hostname", name, "must be a DNS name, not an IP address"))
    return problems


def _validate_topology_annotations(annotations: dict[str, str]) -> list[FieldProblem]:
    hints, mode = annotations.get(_TOPOLOGY_HINTS_ANNOTATION), annotations.get(_TOPOLOGY_MODE_ANNOTATION)
    if hints is None or mode is None or hints == mode:
        return []
    detail = f"must match annotations[{_TOPOLOGY_HINTS_ANNOTATION}] when both are specified"
    return [invalid(f"metadata.annotations[{_TOPOLOGY_MODE_ANNOTATION}]", mode, detail)]


def _validate_type_fields(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    kind, headless = spec["type"], spec.get("clusterIPs") == [service_ips.HEADLESS]
    if not spec.get("ports") and not headless and kind != "ExternalName":
        problems.append(required("spec.ports"))
    if kind in {"LoadBalancer", "NodePort"} and headless:
        detail = f"may not be set to 'None' for {kind} services"
        problems.append(invalid("spec.clusterIPs[0]", service_ips.HEADLESS, detail))
    if kind == "ExternalName":
        problems += [
            forbidden(f"spec.{name}", "may not be set for ExternalName services")
            for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy")
            if spec.get(name)
        ]
        alias = spec.get("externalName", "").removesuffix(".")
        path = "spec.externalName"
        problems += invalid_each(path, alias, formats.dns_subdomain_errors(alias)) if alias else [required(path)]
    return problems


def _validate_ports(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    names: set[str] = set()
    ports = spec.get("ports", ())
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if name:
            problems += invalid_each(f"{path}.name", name, formats.dns_label_errors(name))
            if name in names:
                problems.append(duplicate(f"{path}.name", name))
            names.add(name)
        elif len(ports) > 1:
            problems.append(required(f"{path}.name"))
        problems += invalid_each(f"{path}.port", port["port"], formats.port_number_errors(port["port"]))
        if port["protocol"] not in containers.PROTOCOLS:
            problems.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
        problems += probes.validate_port(port["targetPort"], f"{path}.targetPort")
        if "appProtocol" in port:
            name = port["appProtocol"]
            problems += invalid_each(f"{path}.appProtocol", name, formats.qualified_name_errors(name))
    return problems


def _validate_session_affinity(spec: JSON) -> list[FieldProblem]:
    affinity = spec["sessionAffinity"]
    if affinity not in {"ClientIP", "None"}:
        return [unsupported("spec.sessionAffinity", affinity, ("ClientIP", "None"))]
    if affinity == "ClientIP":
        seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= _MAX_AFFINITY_SECONDS:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            return [invalid(path, seconds, f"must be greater than 0 and less than {_MAX_AFFINITY_SECONDS}")]
    return []


def _validate_external_ips(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, address in enumerate(spec.get("externalIPs", ())):
        path = f"spec.externalIPs[{index}]"
        errors = formats.ip_address_errors(address)
        problems += invalid_each(path, address, errors) if errors else validate_endpoint_ip(address, path)
    if spec["type"] not in _SERVICE_TYPES:
        problems.append(unsupported("spec.type", spec["type"], _SERVICE_TYPES))
    return problems


_POD_ADDRESSES = ipaddress.ip_network(POD_RANGE)
"""Pods of a local cluster have loopback addresses of their own, which kube-apiserver would not take as endpoints."""


def validate_endpoint_ip(address: str, path: str) -> list[FieldProblem]:
    """Problems of an address that is unspecified, loopback, link-local or link-local multicast."""
    value = ipaddress.ip_address(address)
    rules = (
        (value.is_unspecified, "may not be unspecified"),
        (value.is_loopback and value not in _POD_ADDRESSES, "may not be in the loopback range"),
        (value.is_link_local, "may not be in the link-local range"),
        (
            value.is_multicast and str(value).startswith(("224.0.0.", "ff02")),
            "may not be in the link-local multicast range",
        ),
    )
    return [
        invalid(path, address, f"{detail} ({_SPECIAL_IP_RANGES.get(detail, address)})")
        for applies, detail in rules
        if applies
    ]


_SPECIAL_IP_RANGES = {
    "may not be in the loopback range": "127.0.0.0/8, ::1/128",
    "may not be in the link-local range": "169.254.0.0/16, fe80::/10",
    "may not be in the link-local multicast range": "224.0.0.0/24, ff02::/10",
}


def _validate_node_ports(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    ports = spec.get("ports", ())
    for index, port in enumerate(ports):
        if spec["type"] == "ClusterIP" and port.get("nodePort"):
            detail = "may not be used when `type` is 'ClusterIP'"
            problems.append(forbidden(f"spec.ports[{index}].nodePort", detail))
    earlier_node_ports: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port["protocol"], port.get("nodePort", 0))
        if key[1] and key in earlier_node_ports:
            problems.append(duplicate(f"spec.ports[{index}].nodePort", key[1]))
        earlier_node_ports.add(key)
    earlier_ports: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        pair = (port["protocol"], port["port"])
        if pair in earlier_ports:
            problems.append(duplicate(f"spec.ports[{index}]", _port_struct(*pair)))
        earlier_ports.add(pair)
    return problems


def _port_struct(protocol: str, port: int) -> Any:
    fields = {"name": "", "protocol": protocol, "port": port, "targetPort": 0, "nodePort": 0}
    return gostruct.go_struct(fields, "Name Protocol AppProtocol Port TargetPort NodePort")


def _validate_load_balancer(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    balanced = spec["type"] == "LoadBalancer"
    ranges, path = spec.get("loadBalancerSourceRanges", ()), "spec.LoadBalancerSourceRanges"
    if ranges and not balanced:
        problems.append(forbidden(path, _LOAD_BALANCER_ONLY))
    for index, value in enumerate(ranges):
        problems += invalid_each(f"{path}[{index}]", value.strip(), formats.cidr_errors(value.strip()))
    for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if name in spec and not balanced:
            problems.append(forbidden(f"spec.{name}", _LOAD_BALANCER_ONLY))
    if balanced and "loadBalancerClass" in spec:
        value = spec["loadBalancerClass"]
        problems += invalid_each("spec.loadBalancerClass", value, formats.qualified_name_errors(value))
    return problems


def _validate_traffic_policies(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    supported = ("Cluster", "Local")
    external: Any = spec.get("externalTrafficPolicy")
    if external is not None and not service_ips.is_externally_accessible(spec):
        detail = "may only be set for externally-accessible services"
        problems.append(invalid("spec.externalTrafficPolicy", external, detail))
    elif external is not None and external not in supported:
        problems.append(unsupported("spec.externalTrafficPolicy", external, supported))
    checked = spec["type"] == "LoadBalancer" and external == "Local"
    if spec.get("healthCheckNodePort") and not checked:
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        problems.append(invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], detail))
    internal = spec.get("internalTrafficPolicy", "Cluster")
    if internal not in supported:
        problems.append(unsupported("spec.internalTrafficPolicy", internal, supported))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _TRAFFIC_DISTRIBUTIONS:
        problems.append(unsupported("spec.trafficDistribution", distribution, _TRAFFIC_DISTRIBUTIONS))
    return problems

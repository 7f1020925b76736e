"""Endpoints, endpoint slices and network policies: defaults and the most common checks."""

from typing import Any, ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.core import service
from gangline.apiserver.kinds.machinery import formats, metadata, selectors
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.kinds.pod import containers
from gangline.schema.problems import FieldProblem, duplicate, invalid, invalid_each, required, too_many, unsupported

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


class EndpointsStrategy(Strategy):
    struct = "core.v1.Endpoints"
    revalidates_on_update: ClassVar[bool] = True

    def set_defaults(self, obj: JSON) -> None:
        for subset in obj.get("subsets", ()):
            for port in subset.get("ports", ()):
                port.setdefault("protocol", "TCP")

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        for index, subset in enumerate(obj.get("subsets", ())):
            problems += _validate_subset(subset, f"subsets[{index}]")
        return problems

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


def _validate_subset(subset: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    groups = ("addresses", "notReadyAddresses")
    if not any(subset.get(name) for name in groups):
        problems.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    for name in groups:
        for index, address in enumerate(subset.get(name, ())):
            problems += _validate_endpoint_address(address, f"{path}.{name}[{index}]")
    ports = subset.get("ports", ())
    for index, port in enumerate(ports):
        problems += _validate_endpoint_port(port, f"{path}.ports[{index}]", name_required=len(ports) > 1)
    return problems


def _validate_endpoint_address(address: JSON, path: str) -> list[FieldProblem]:
    value = address.get("ip", "")
    errors = formats.ip_address_errors(value)
    problems = invalid_each(f"{path}.ip", value, errors)
    if address.get("hostname"):
        problems += invalid_each(f"{path}.hostname", address["hostname"], formats.dns_label_errors(address["hostname"]))
    if "nodeName" in address:
        problems += invalid_each(
            f"{path}.nodeName", address["nodeName"], formats.dns_subdomain_errors(address["nodeName"])
        )
    if errors:
        return [*problems, invalid(f"{path}.ip", value, "must be a valid IP address")]
    return problems + service.validate_endpoint_ip(value, f"{path}.ip")


def _validate_endpoint_port(port: JSON, path: str, *, name_required: bool) -> list[FieldProblem]:
    name, problems = port.get("name", ""), []
    if name:
        problems += invalid_each(f"{path}.name", name, formats.dns_label_errors(name))
    elif name_required:
        problems.append(required(f"{path}.name"))
    problems += invalid_each(f"{path}.port", port["port"], formats.port_number_errors(port["port"]))
    if port["protocol"] not in containers.PROTOCOLS:
        problems.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
    return problems


class EndpointSliceStrategy(Strategy):
    struct = "discovery.v1.EndpointSlice"
    has_generation = True

    def set_defaults(self, obj: JSON) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def generation_fields(self, obj: JSON) -> Any:
        rest = {name: value for name, value in obj.items() if name != "metadata"}
        return rest, obj["metadata"].get("labels")

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        kind = obj["addressType"]
        problems: list[FieldProblem] = []
        if not kind:
            problems.append(required("addressType"))
        elif kind not in _ADDRESS_TYPES:
            problems.append(unsupported("addressType", kind, _ADDRESS_TYPES))
        problems += _validate_slice_ports(obj.get("ports") or ())
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            problems += _validate_endpoint(endpoint, kind, f"endpoints[{index}]")
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.validate(obj),
            *metadata.validate_immutable(obj["addressType"], old["addressType"], "addressType"),
        ]


def _validate_slice_ports(ports: list[JSON] | tuple[()]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name:
            problems += invalid_each(f"{path}.name", name, formats.dns_label_errors(name))
        if name in names:
            problems.append(duplicate(f"{path}.name", name))
        names.add(name)
        if port["protocol"] not in containers.PROTOCOLS:
            problems.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
    return problems


def _validate_endpoint(endpoint: JSON, kind: str, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    addresses, field_path = endpoint.get("addresses") or [], f"{path}.addresses"
    if not addresses:
        problems.append(required(field_path, "must contain at least 1 address"))
    elif len(addresses) > 100:
        problems.append(too_many(field_path, len(addresses), 100))
    for index, address in enumerate(addresses if kind in {"IPv4", "IPv6"} else ()):
        if errors := formats.ip_address_errors(address):
            problems += invalid_each(f"{field_path}[{index}]", address, errors)
            continue
        if formats.ip_family(address) != kind:
            problems.append(invalid(field_path, address, f"must be an {kind} address"))
        problems += service.validate_endpoint_ip(address, f"{field_path}[{index}]")
    if "nodeName" in endpoint:
        problems += invalid_each(
            f"{path}.nodeName", endpoint["nodeName"], formats.dns_subdomain_errors(endpoint["nodeName"])
        )
    if "hostname" in endpoint:
        problems += invalid_each(
            f"{path}.hostname", endpoint["hostname"], formats.dns_label_errors(endpoint["hostname"])
        )
    return problems


class NetworkPolicyStrategy(Strategy):
    struct = "networking.v1.NetworkPolicy"
    has_generation = True

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        for rule in [*spec.get("ingress", ()), *spec.get("egress", ())]:
            for port in rule.get("ports", ()):
                port.setdefault("protocol", "TCP")
        if "policyTypes" not in spec:
            spec["policyTypes"] = ["Ingress", *(["Egress"] if "egress" in spec else [])]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return selectors.validate_label_selector(obj["spec"].get("podSelector"), "spec.podSelector")

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*self.validate(obj), *self.metadata.validate_update(obj, old), *self.validate_content(obj)]

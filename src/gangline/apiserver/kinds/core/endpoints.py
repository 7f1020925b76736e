"""Endpoints, endpoint slices and network policies: enough for clients that write them."""

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
    allow_create_on_update = True
    revalidates_on_update: ClassVar[bool] = True

    def set_defaults(self, obj: JSON) -> None:
        for subset in obj.get("subsets", ()):
            for port in subset.get("ports", ()):
                port.setdefault("protocol", "TCP")

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        found: list[FieldProblem] = []
        for index, subset in enumerate(obj.get("subsets", ())):
            found += _validate_subset(subset, f"subsets[{index}]")
        return found

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


def _validate_subset(subset: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    groups = ("addresses", "notReadyAddresses")
    if not any(subset.get(name) for name in groups):
        found.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    for name in groups:
        for index, address in enumerate(subset.get(name, ())):
            found += _validate_endpoint_address(address, f"{path}.{name}[{index}]")
    ports = subset.get("ports", ())
    for index, port in enumerate(ports):
        found += _validate_endpoint_port(port, f"{path}.ports[{index}]", named=len(ports) > 1)
    return found


def _validate_endpoint_address(address: JSON, path: str) -> list[FieldProblem]:
    value = address.get("ip", "")
    said = formats.ip_address_errors(value)
    found = invalid_each(f"{path}.ip", value, said)
    if address.get("hostname"):
        found += invalid_each(f"{path}.hostname", address["hostname"], formats.dns_label_errors(address["hostname"]))
    if "nodeName" in address:
        found += invalid_each(
            f"{path}.nodeName", address["nodeName"], formats.dns_subdomain_errors(address["nodeName"])
        )
    if said:
        return [*found, invalid(f"{path}.ip", value, "must be a valid IP address")]
    return found + service.validate_endpoint_ip(value, f"{path}.ip")


def _validate_endpoint_port(port: JSON, path: str, *, named: bool) -> list[FieldProblem]:
    name, found = port.get("name", ""), []
    if name:
        found += invalid_each(f"{path}.name", name, formats.dns_label_errors(name))
    elif named:
        found.append(required(f"{path}.name"))
    found += invalid_each(f"{path}.port", port["port"], formats.port_number_errors(port["port"]))
    if port["protocol"] not in containers.PROTOCOLS:
        found.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
    return found


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
        found: list[FieldProblem] = []
        if not kind:
            found.append(required("addressType"))
        elif kind not in _ADDRESS_TYPES:
            found.append(unsupported("addressType", kind, _ADDRESS_TYPES))
        found += _validate_slice_ports(obj.get("ports") or ())
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            found += _validate_endpoint(endpoint, kind, f"endpoints[{index}]")
        return found

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.validate(obj),
            *metadata.validate_immutable(obj["addressType"], old["addressType"], "addressType"),
        ]


def _validate_slice_ports(ports: list[JSON] | tuple[()]) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name:
            found += invalid_each(f"{path}.name", name, formats.dns_label_errors(name))
        if name in names:
            found.append(duplicate(f"{path}.name", name))
        names.add(name)
        if port["protocol"] not in containers.PROTOCOLS:
            found.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
    return found


def _validate_endpoint(endpoint: JSON, kind: str, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    addresses, here = endpoint.get("addresses") or [], f"{path}.addresses"
    if not addresses:
        found.append(required(here, "must contain at least 1 address"))
    elif len(addresses) > 100:
        found.append(too_many(here, len(addresses), 100))
    for index, address in enumerate(addresses if kind in {"IPv4", "IPv6"} else ()):
        if said := formats.ip_address_errors(address):
            found += invalid_each(f"{here}[{index}]", address, said)
            continue
        if formats.ip_family(address) != kind:
            found.append(invalid(here, address, f"must be an {kind} address"))
        found += service.validate_endpoint_ip(address, f"{here}[{index}]")
    if "nodeName" in endpoint:
        found += invalid_each(
            f"{path}.nodeName", endpoint["nodeName"], formats.dns_subdomain_errors(endpoint["nodeName"])
        )
    if "hostname" in endpoint:
        found += invalid_each(f"{path}.hostname", endpoint["hostname"], formats.dns_label_errors(endpoint["hostname"]))
    return found


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

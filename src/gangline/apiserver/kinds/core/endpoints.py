"""Endpoints, endpoint slices and network policies: enough for clients that write them."""

from typing import Any, ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.core import service
from gangline.apiserver.kinds.machinery import formats, metadata, selectors
from gangline.apiserver.kinds.machinery.problems import (
    duplicate,
    each,
    invalid,
    required,
    too_many,
    unsupported,
)
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.apiserver.kinds.pod import containers
from gangline.schema.problems import Problem

_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")


class EndpointsKind(Kind):
    struct = "core.v1.Endpoints"
    created_by_update = True
    validated_whole: ClassVar[bool] = True

    def set_defaults(self, obj: JSON) -> None:
        for subset in obj.get("subsets", ()):
            for port in subset.get("ports", ()):
                port.setdefault("protocol", "TCP")

    def check(self, obj: JSON) -> list[Problem]:
        found: list[Problem] = []
        for index, subset in enumerate(obj.get("subsets", ())):
            found += _subset(subset, f"subsets[{index}]")
        return found

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        return ["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"]


def _subset(subset: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    groups = ("addresses", "notReadyAddresses")
    if not any(subset.get(name) for name in groups):
        found.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
    for name in groups:
        for index, address in enumerate(subset.get(name, ())):
            found += _address(address, f"{path}.{name}[{index}]")
    ports = subset.get("ports", ())
    for index, port in enumerate(ports):
        found += _port(port, f"{path}.ports[{index}]", named=len(ports) > 1)
    return found


def _address(address: JSON, path: str) -> list[Problem]:
    value = address.get("ip", "")
    said = formats.ip_address(value)
    found = each(f"{path}.ip", value, said)
    if address.get("hostname"):
        found += each(f"{path}.hostname", address["hostname"], formats.dns_label(address["hostname"]))
    if "nodeName" in address:
        found += each(f"{path}.nodeName", address["nodeName"], formats.dns_subdomain(address["nodeName"]))
    if said:
        return [*found, invalid(f"{path}.ip", value, "must be a valid IP address")]
    return found + service.outside(value, f"{path}.ip")


def _port(port: JSON, path: str, *, named: bool) -> list[Problem]:
    name, found = port.get("name", ""), []
    if name:
        found += each(f"{path}.name", name, formats.dns_label(name))
    elif named:
        found.append(required(f"{path}.name"))
    found += each(f"{path}.port", port["port"], formats.port_number(port["port"]))
    if port["protocol"] not in containers.PROTOCOLS:
        found.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
    return found


class EndpointSliceKind(Kind):
    struct = "discovery.v1.EndpointSlice"
    generation = True

    def set_defaults(self, obj: JSON) -> None:
        for port in obj.get("ports") or ():
            port.setdefault("name", "")
            port.setdefault("protocol", "TCP")

    def spec_of(self, obj: JSON) -> Any:
        rest = {name: value for name, value in obj.items() if name != "metadata"}
        return rest, obj["metadata"].get("labels")

    def check(self, obj: JSON) -> list[Problem]:
        kind = obj["addressType"]
        found: list[Problem] = []
        if not kind:
            found.append(required("addressType"))
        elif kind not in _ADDRESS_TYPES:
            found.append(unsupported("addressType", kind, _ADDRESS_TYPES))
        found += _slice_ports(obj.get("ports") or ())
        for index, endpoint in enumerate(obj.get("endpoints") or ()):
            found += _endpoint(endpoint, kind, f"endpoints[{index}]")
        return found

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *self.validate(obj),
            *metadata.immutable(obj["addressType"], old["addressType"], "addressType"),
        ]


def _slice_ports(ports: list[JSON] | tuple[()]) -> list[Problem]:
    found: list[Problem] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port["name"]
        if name:
            found += each(f"{path}.name", name, formats.dns_label(name))
        if name in names:
            found.append(duplicate(f"{path}.name", name))
        names.add(name)
        if port["protocol"] not in containers.PROTOCOLS:
            found.append(unsupported(f"{path}.protocol", port["protocol"], containers.PROTOCOLS))
    return found


def _endpoint(endpoint: JSON, kind: str, path: str) -> list[Problem]:
    found: list[Problem] = []
    addresses, here = endpoint.get("addresses") or [], f"{path}.addresses"
    if not addresses:
        found.append(required(here, "must contain at least 1 address"))
    elif len(addresses) > 100:
        found.append(too_many(here, len(addresses), 100))
    for index, address in enumerate(addresses if kind in {"IPv4", "IPv6"} else ()):
        if said := formats.ip_address(address):
            found += each(f"{here}[{index}]", address, said)
            continue
        if formats.family(address) != kind:
            found.append(invalid(here, address, f"must be an {kind} address"))
        found += service.outside(address, f"{here}[{index}]")
    if "nodeName" in endpoint:
        found += each(f"{path}.nodeName", endpoint["nodeName"], formats.dns_subdomain(endpoint["nodeName"]))
    if "hostname" in endpoint:
        found += each(f"{path}.hostname", endpoint["hostname"], formats.dns_label(endpoint["hostname"]))
    return found


class NetworkPolicyKind(Kind):
    struct = "networking.v1.NetworkPolicy"
    generation = True

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        for rule in [*spec.get("ingress", ()), *spec.get("egress", ())]:
            for port in rule.get("ports", ()):
                port.setdefault("protocol", "TCP")
        if "policyTypes" not in spec:
            spec["policyTypes"] = ["Ingress", *(["Egress"] if "egress" in spec else [])]

    def check(self, obj: JSON) -> list[Problem]:
        return selectors.selector(obj["spec"].get("podSelector"), "spec.podSelector")

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [*self.validate(obj), *self.validate_metadata_update(obj, old), *self.check(obj)]

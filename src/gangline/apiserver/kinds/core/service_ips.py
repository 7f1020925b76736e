"""Cluster IPs, IP families and node ports of services: what is kept, what is allocated, what may change."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.problems import FieldProblem, duplicate, invalid, invalid_each, unsupported

HEADLESS = "None"
_IP_FAMILIES = ("IPv4", "IPv6")
_CLUSTER_IP_FAMILY = "IPv4"
"""The only family in which this server allocates addresses."""
_IP_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")


def is_externally_accessible(spec: JSON) -> bool:
    """Whether a service can be reached from outside the cluster."""
    return spec["type"] in {"NodePort", "LoadBalancer"} or (
        spec["type"] == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def needs_cluster_ip(spec: JSON) -> bool:
    """Whether the registry has to allocate a cluster IP for this service."""
    return spec["type"] != "ExternalName" and not spec.get("clusterIPs")


def set_cluster_ip(spec: JSON, address: str) -> None:
    """Set the cluster IP of a service."""
    spec["clusterIP"], spec["clusterIPs"] = address, [address]


def ports_without_node_port(spec: JSON) -> list[JSON]:
    """The ports for which the registry has to allocate a `nodePort`."""
    needs_ports = spec["type"] == "NodePort" or (
        spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
    )
    return [port for port in spec.get("ports", ()) if needs_ports and not port.get("nodePort")]


def set_ip_families(spec: JSON, old: JSON | None) -> None:
    """Set the IP families and the family policy of a service, unless they are invalid."""
    if spec["type"] == "ExternalName":
        return
    free = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if "ipFamilyPolicy" not in spec:
        old_policy = (old or {}).get("ipFamilyPolicy")
        spec["ipFamilyPolicy"] = old_policy or ("RequireDualStack" if free else "SingleStack")
    if validate_ip_families(spec):
        return
    families = list(spec.get("ipFamilies", ()))
    remaining = spec.get("clusterIPs", [])[len(families) :]
    families += [formats.ip_family(address) for address in remaining if address != HEADLESS]
    families = families or [_CLUSTER_IP_FAMILY]
    if free and len(families) == 1 and spec["ipFamilyPolicy"] != "SingleStack":
        families.append("IPv6" if families[0] == "IPv4" else "IPv4")
    spec["ipFamilies"] = families


def validate_ip_families(spec: JSON) -> list[FieldProblem]:
    """Problems for which kube-apiserver refuses a service before it validates the service."""
    if spec["type"] == "ExternalName":
        return []
    if problems := _validate_cluster_ips(spec):
        return problems
    policy, addresses = spec.get("ipFamilyPolicy"), spec.get("clusterIPs", ())
    families = spec.get("ipFamilies", ())
    if policy == "SingleStack":
        detail = "must be 'RequireDualStack' or 'PreferDualStack' when multiple"
        if len(addresses) == 2:
            problems.append(invalid("spec.ipFamilyPolicy", policy, f"{detail} cluster IPs are specified"))
        if len(families) == 2:
            problems.append(invalid("spec.ipFamilyPolicy", policy, f"{detail} IP families are specified"))
    if problems or (spec.get("clusterIP") == HEADLESS and not spec.get("selector")):
        return problems
    if policy == "RequireDualStack":
        detail = "this cluster is not configured for dual-stack services"
        problems.append(invalid("spec.ipFamilyPolicy", policy, detail))
    for index, family in enumerate(families):
        if family != _CLUSTER_IP_FAMILY:
            detail = "not configured on this cluster"
            problems.append(invalid(f"spec.ipFamilies[{index}]", family, detail))
    return problems


def _validate_cluster_ips(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    single, addresses = spec.get("clusterIP", ""), spec.get("clusterIPs", [])
    if single and addresses and addresses[0] != single:
        problems.append(invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    if not single and addresses:
        detail = "must be empty when `clusterIP` is not specified"
        problems.append(invalid("spec.clusterIPs", addresses, detail))
    earlier_families: set[str] = set()
    for index, family in enumerate(spec.get("ipFamilies", ())):
        if family not in _IP_FAMILIES:
            problems.append(unsupported(f"spec.ipFamilies[{index}]", family, _IP_FAMILIES))
        if family in earlier_families:
            problems.append(duplicate(f"spec.ipFamilies[{index}]", family))
        earlier_families.add(family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in _IP_FAMILY_POLICIES:
        problems.append(unsupported("spec.ipFamilyPolicy", policy, _IP_FAMILY_POLICIES))
    return problems + _validate_ip_list(addresses, spec.get("ipFamilies", []))


def _validate_ip_list(addresses: list[str], families: list[str]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    path = "spec.clusterIPs"
    for index, address in enumerate(addresses):
        if index == 0 and address == HEADLESS:
            if len(addresses) > 1:
                problems.append(invalid(path, addresses, "'None' must be the first and only value"))
        else:
            problems += invalid_each(f"{path}[{index}]", address, formats.ip_address_errors(address))
    broken = bool(problems)
    if len(addresses) > 2:
        problems.append(invalid(path, addresses, "may only hold up to 2 values"))
    if broken or addresses == [HEADLESS]:
        return problems
    if len(addresses) > 1 and len({formats.ip_family(ip) for ip in addresses}) < 2:
        detail = "may specify no more than one IP for each IP family"
        problems.append(invalid(path, addresses, detail))
    for index, (address, family) in enumerate(zip(addresses, families, strict=False)):
        if formats.ip_family(address) != family:
            detail = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            problems.append(invalid(f"{path}[{index}]", address, detail))
    return problems


def drop_type_dependent_fields(new: JSON, old: JSON) -> None:
    """Remove fields that only the old type of a service had, unless the client changed them."""
    if old["type"] != "ExternalName" and new["type"] == "ExternalName":
        groups = (("clusterIP", "clusterIPs"), ("ipFamilies",), ("ipFamilyPolicy",), ("internalTrafficPolicy",))
        for names in groups:
            if all(new.get(name) == old.get(name) for name in names):
                for name in names:
                    new.pop(name, None)
    if _uses_node_ports(old) and not _uses_node_ports(new) and _node_ports(new) <= _node_ports(old):
        for port in new.get("ports", ()):
            port.pop("nodePort", None)
    if old["type"] == "LoadBalancer" and new["type"] != "LoadBalancer":
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass", "healthCheckNodePort"):
            if new.get(name) == old.get(name):
                new.pop(name, None)
    same = new.get("externalTrafficPolicy") == old.get("externalTrafficPolicy")
    if same and is_externally_accessible(old) and not is_externally_accessible(new):
        new.pop("externalTrafficPolicy", None)


def _uses_node_ports(spec: JSON) -> bool:
    return spec["type"] in {"NodePort", "LoadBalancer"}


def _node_ports(spec: JSON) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports", ()) if port.get("nodePort")}


def keep_allocated_values(new: JSON, old: JSON) -> None:
    """Keep allocated addresses and ports of the old service that the new one does not set."""
    if "ExternalName" not in {new["type"], old["type"]}:
        if not new.get("clusterIP") and old.get("clusterIP"):
            new["clusterIP"] = old["clusterIP"]
        if not new.get("clusterIPs") and old.get("clusterIPs") and new.get("clusterIP") == old.get("clusterIP"):
            new["clusterIPs"] = list(old["clusterIPs"])
    if _uses_node_ports(new) and _uses_node_ports(old):
        used = _node_ports(new) & _node_ports(old)
        old_ports = {port.get("name", ""): port.get("nodePort", 0) for port in old.get("ports", ())}
        for port in new.get("ports", ()):
            number = old_ports.get(port.get("name", ""), 0)
            if "nodePort" not in port and number and number not in used:
                port["nodePort"] = number


def sync_cluster_ips(new: JSON, old: JSON) -> None:
    """Make `clusterIPs` follow a changed `clusterIP`."""
    single, listed = new.get("clusterIP", ""), new.get("clusterIPs", [])
    if single == old.get("clusterIP", "") or (listed and listed != old.get("clusterIPs", [])):
        return
    if single:
        new["clusterIPs"] = [single]
    else:
        new.pop("clusterIPs", None)


def validate_cluster_ip_update(new: JSON, old: JSON) -> list[FieldProblem]:
    """Problems of changed cluster IPs."""
    if "ExternalName" in {new["type"], old["type"]}:
        return []
    now, before = new.get("clusterIPs", []), old.get("clusterIPs", [])
    if now == before:
        return []
    if not now:
        return [invalid("spec.clusterIPs[0]", now, "primary clusterIP can not be unset")]
    return [
        invalid(f"spec.clusterIPs[{index}]", now, "may not change once set")
        for index, (address, old_address) in enumerate(zip(now, before, strict=False))
        if address != old_address
    ]

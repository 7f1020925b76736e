"""Validation of pod specs, in pods and in templates."""

from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, quantities
from gangline.apiserver.kinds.machinery.problems import (
    duplicate,
    each,
    forbidden,
    invalid,
    required,
    unsupported,
)
from gangline.apiserver.kinds.pod import containers, placement, security, volumes
from gangline.schema.problems import Problem

_RESTART = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RARE = frozenset(
    [
        "nodeSelector",
        "affinity",
        "dnsConfig",
        "readinessGates",
        "schedulingGates",
        "topologySpreadConstraints",
        "nodeName",
        "serviceAccountName",
        "activeDeadlineSeconds",
        "hostname",
        "subdomain",
        "hostAliases",
        "priorityClassName",
        "runtimeClassName",
        "preemptionPolicy",
        "overhead",
        "os",
        "hostUsers",
        "resources",
        "resourceClaims",
        "hostnameOverride",
        "hostNetwork",
    ]
)


def pod_spec(spec: JSON, pod_name: str, path: str, *, of_pod: bool) -> list[Problem]:
    """A pod spec with its defaults. `pod_name` is empty in templates."""
    good, found = (
        volumes.volumes(spec["volumes"], pod_name, f"{path}.volumes") if "volumes" in spec else ({}, [])
    )
    pod = containers.Surroundings(spec, good)
    if "resourceClaims" in spec:
        found += _resource_claims(spec["resourceClaims"], f"{path}.resourceClaims")
    regular, init = spec["containers"] or [], spec.get("initContainers", [])
    found += containers.regular(regular, pod, f"{path}.containers")
    if init:
        found += containers.init(init, regular, pod, f"{path}.initContainers")
    if "ephemeralContainers" in spec:
        listed, others = spec["ephemeralContainers"], [*regular, *init]
        found += containers.ephemeral(listed, others, pod, f"{path}.ephemeralContainers")
    rare = not spec.keys().isdisjoint(_RARE)
    if rare:
        found += _resources_and_network(spec, pod, path, of_pod=of_pod)
    if spec["restartPolicy"] not in _RESTART:
        found.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTART))
    if spec["dnsPolicy"] not in _DNS:
        found.append(unsupported(f"{path}.dnsPolicy", spec["dnsPolicy"], _DNS))
    if "nodeSelector" in spec:
        found += metadata.labels(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec["securityContext"] or spec.get("shareProcessNamespace"):
        found += security.pod_security(spec["securityContext"], spec, f"{path}.securityContext")
    if rare or spec["dnsPolicy"] == "None":
        found += _scheduling(spec, path)
        found += _names(spec, path)
    if "tolerations" in spec:
        found += placement.tolerations(spec["tolerations"], f"{path}.tolerations")
    if rare:
        found += _rest(spec, path)
    return found


def _resource_claims(claims: list[JSON], path: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            found.append(required(f"{here}.name"))
        elif name in seen:
            found.append(duplicate(f"{here}.name", name))
        else:
            found += each(f"{here}.name", name, formats.dns_label(name))
        seen.add(name)
        chosen = [one for one in ("resourceClaimName", "resourceClaimTemplateName") if one in claim]
        if len(chosen) > 1:
            told = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            found.append(invalid(here, gostruct.internal(claim, gostruct.CLAIM), told))
        if not chosen:
            told = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.append(invalid(here, gostruct.internal(claim, gostruct.CLAIM), told))
        for one in chosen:
            found += each(f"{here}.{one}", claim[one], formats.dns_subdomain(claim[one]))
    return found


def _resources_and_network(
    spec: JSON, pod: containers.Surroundings, path: str, *, of_pod: bool
) -> list[Problem]:
    found: list[Problem] = []
    if "resources" in spec:
        here = f"{path}.resources"
        if "claims" in spec["resources"]:
            found.append(forbidden(f"{here}.claims", "claims may not be set for Resources at pod-level"))
        found += quantities.requirements(spec["resources"], here, pod.claims, pod_level=True)
    if spec.get("hostNetwork"):
        found += _host_network_ports(spec["containers"] or (), f"{path}.containers", of_pod=of_pod)
    return found


def _host_network_ports(listed: Iterable[JSON], path: str, *, of_pod: bool) -> list[Problem]:
    told = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(f"{path}[{index}].ports[{number}].hostPort", port.get("hostPort", 0), told)
        for index, container in enumerate(listed)
        for number, port in enumerate(container.get("ports", ()))
        if (of_pod or "hostPort" in port) and port.get("hostPort", 0) != port["containerPort"]
    ]


def _scheduling(spec: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    if "affinity" in spec:
        found += placement.affinity(spec["affinity"], f"{path}.affinity")
    found += _dns(spec.get("dnsConfig"), spec["dnsPolicy"], f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates", ())):
        kind = gate.get("conditionType", "")
        here = f"{path}.readinessGates[{index}].conditionType"
        found += each(here, kind, formats.qualified_name(kind))
    found += _gates(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        found += placement.spread(spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints")
    return found + security.host_namespaces(spec, path)


def _gates(gates: list[JSON] | tuple[()], path: str) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        found += each(f"{path}[{index}]", name, formats.qualified_name(name))
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return found


def _dns(config: JSON | None, policy: str, path: str) -> list[Problem]:
    if policy == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            told = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", told)]
    if config is None:
        return []
    servers = config.get("nameservers", [])
    found: list[Problem] = []
    if len(servers) > 3:
        found.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        found += each(f"{path}.nameservers[{index}]", server, formats.ip_address(server))
    found += _dns_searches(config.get("searches", []), path)
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            found.append(required(f"{path}.options[{index}]", "must not be empty"))
    return found


def _dns_searches(searches: list[str], path: str) -> list[Problem]:
    found: list[Problem] = []
    if len(searches) > 32:
        found.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        told = "must not have more than 2048 characters (including spaces) in the search list"
        found.append(invalid(f"{path}.searches", searches, told))
    for index, search in enumerate(searches):
        if search != ".":
            short = search.removesuffix(".")
            said = formats.dns_subdomain_with_underscore(short)
            found += each(f"{path}.searches[{index}]", short, said)
    return found


def _names(spec: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    for name in ("serviceAccountName", "nodeName"):
        if name in spec:
            found += each(f"{path}.{name}", spec[name], formats.dns_subdomain(spec[name]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        found.append(invalid(f"{path}.activeDeadlineSeconds", deadline, formats.between(1, 2**31 - 1)))
    for name in ("hostname", "subdomain"):
        if name in spec:
            found += each(f"{path}.{name}", spec[name], formats.dns_label(spec[name]))
    return found


def _rest(spec: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    for index, alias in enumerate(spec.get("hostAliases", ())):
        here = f"{path}.hostAliases[{index}]"
        found += each(f"{here}.ip", alias.get("ip", ""), formats.ip_address(alias.get("ip", "")))
        for number, name in enumerate(alias.get("hostnames", ())):
            found += each(f"{here}.hostnames[{number}]", name, formats.dns_subdomain(name))
    for name in ("priorityClassName", "runtimeClassName"):
        if name in spec:
            found += each(f"{path}.{name}", spec[name], formats.dns_subdomain(spec[name]))
    if "preemptionPolicy" in spec:
        found += preemption(spec["preemptionPolicy"], f"{path}.preemptionPolicy")
    if "overhead" in spec:
        found += quantities.requirements({"limits": spec["overhead"]}, f"{path}.overhead", frozenset())
    if "os" in spec:
        system = spec["os"].get("name", "")
        if not system:
            found.append(required(f"{path}.os.name"))
        elif system not in {"linux", "windows"}:
            found.append(unsupported(f"{path}.os", system, ("linux", "windows")))
    return found


def preemption(policy: str, path: str) -> list[Problem]:
    """Of a pod or a priority class."""
    known = ("PreemptLowerPriority", "Never")
    if policy in known:
        return []
    return [unsupported(path, policy, known)] if policy else [required(path)]

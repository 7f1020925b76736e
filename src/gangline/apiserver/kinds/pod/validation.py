"""Validation of pod specs, in pods and in templates."""

from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, quantities
from gangline.apiserver.kinds.pod import containers, placement, security, volumes
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required, unsupported

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RARE_FIELDS = frozenset(
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


def validate_pod_spec(spec: JSON, pod_name: str, path: str, *, of_pod: bool) -> list[FieldProblem]:
    """A pod spec with its defaults. `pod_name` is empty in templates."""
    good, found = (
        volumes.validate_volumes(spec["volumes"], pod_name, f"{path}.volumes") if "volumes" in spec else ({}, [])
    )
    pod = containers.ContainerContext(spec, good)
    if "resourceClaims" in spec:
        found += _validate_resource_claims(spec["resourceClaims"], f"{path}.resourceClaims")
    regular, init = spec["containers"] or [], spec.get("initContainers", [])
    found += containers.validate_containers(regular, pod, f"{path}.containers")
    if init:
        found += containers.validate_init_containers(init, regular, pod, f"{path}.initContainers")
    if "ephemeralContainers" in spec:
        listed, others = spec["ephemeralContainers"], [*regular, *init]
        found += containers.validate_ephemeral_containers(listed, others, pod, f"{path}.ephemeralContainers")
    rare = not spec.keys().isdisjoint(_RARE_FIELDS)
    if rare:
        found += _validate_resources_and_network(spec, pod, path, of_pod=of_pod)
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        found.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES))
    if spec["dnsPolicy"] not in _DNS_POLICIES:
        found.append(unsupported(f"{path}.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES))
    if "nodeSelector" in spec:
        found += metadata.validate_labels(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec["securityContext"] or spec.get("shareProcessNamespace"):
        found += security.validate_pod_security_context(spec["securityContext"], spec, f"{path}.securityContext")
    if rare or spec["dnsPolicy"] == "None":
        found += _validate_scheduling(spec, path)
        found += _validate_names_and_deadline(spec, path)
    if "tolerations" in spec:
        found += placement.validate_tolerations(spec["tolerations"], f"{path}.tolerations")
    if rare:
        found += _validate_rare_fields(spec, path)
    return found


def _validate_resource_claims(claims: list[JSON], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            found.append(required(f"{here}.name"))
        elif name in seen:
            found.append(duplicate(f"{here}.name", name))
        else:
            found += invalid_each(f"{here}.name", name, formats.dns_label_errors(name))
        seen.add(name)
        chosen = [one for one in ("resourceClaimName", "resourceClaimTemplateName") if one in claim]
        if len(chosen) > 1:
            told = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            found.append(invalid(here, gostruct.go_struct(claim, gostruct.RESOURCE_CLAIM_FIELDS), told))
        if not chosen:
            told = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            found.append(invalid(here, gostruct.go_struct(claim, gostruct.RESOURCE_CLAIM_FIELDS), told))
        for one in chosen:
            found += invalid_each(f"{here}.{one}", claim[one], formats.dns_subdomain_errors(claim[one]))
    return found


def _validate_resources_and_network(
    spec: JSON, pod: containers.ContainerContext, path: str, *, of_pod: bool
) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if "resources" in spec:
        here = f"{path}.resources"
        if "claims" in spec["resources"]:
            found.append(forbidden(f"{here}.claims", "claims may not be set for Resources at pod-level"))
        found += quantities.validate_resource_requirements(spec["resources"], here, pod.claims, pod_level=True)
    if spec.get("hostNetwork"):
        found += _validate_host_network_ports(spec["containers"] or (), f"{path}.containers", of_pod=of_pod)
    return found


def _validate_host_network_ports(listed: Iterable[JSON], path: str, *, of_pod: bool) -> list[FieldProblem]:
    told = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(f"{path}[{index}].ports[{number}].hostPort", port.get("hostPort", 0), told)
        for index, container in enumerate(listed)
        for number, port in enumerate(container.get("ports", ()))
        if (of_pod or "hostPort" in port) and port.get("hostPort", 0) != port["containerPort"]
    ]


def _validate_scheduling(spec: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if "affinity" in spec:
        found += placement.validate_affinity(spec["affinity"], f"{path}.affinity")
    found += _validate_dns_config(spec.get("dnsConfig"), spec["dnsPolicy"], f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates", ())):
        kind = gate.get("conditionType", "")
        here = f"{path}.readinessGates[{index}].conditionType"
        found += invalid_each(here, kind, formats.qualified_name_errors(kind))
    found += _validate_scheduling_gates(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        found += placement.validate_spread_constraints(
            spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints"
        )
    return found + security.validate_host_namespaces(spec, path)


def _validate_scheduling_gates(gates: list[JSON] | tuple[()], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        found += invalid_each(f"{path}[{index}]", name, formats.qualified_name_errors(name))
        if name in seen:
            found.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return found


def _validate_dns_config(config: JSON | None, policy: str, path: str) -> list[FieldProblem]:
    if policy == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            told = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", told)]
    if config is None:
        return []
    servers = config.get("nameservers", [])
    found: list[FieldProblem] = []
    if len(servers) > 3:
        found.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        found += invalid_each(f"{path}.nameservers[{index}]", server, formats.ip_address_errors(server))
    found += _validate_dns_searches(config.get("searches", []), path)
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            found.append(required(f"{path}.options[{index}]", "must not be empty"))
    return found


def _validate_dns_searches(searches: list[str], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if len(searches) > 32:
        found.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        told = "must not have more than 2048 characters (including spaces) in the search list"
        found.append(invalid(f"{path}.searches", searches, told))
    for index, search in enumerate(searches):
        if search != ".":
            short = search.removesuffix(".")
            said = formats.underscored_subdomain_errors(short)
            found += invalid_each(f"{path}.searches[{index}]", short, said)
    return found


def _validate_names_and_deadline(spec: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for name in ("serviceAccountName", "nodeName"):
        if name in spec:
            found += invalid_each(f"{path}.{name}", spec[name], formats.dns_subdomain_errors(spec[name]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        found.append(invalid(f"{path}.activeDeadlineSeconds", deadline, formats.range_message(1, 2**31 - 1)))
    for name in ("hostname", "subdomain"):
        if name in spec:
            found += invalid_each(f"{path}.{name}", spec[name], formats.dns_label_errors(spec[name]))
    return found


def _validate_rare_fields(spec: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for index, alias in enumerate(spec.get("hostAliases", ())):
        here = f"{path}.hostAliases[{index}]"
        found += invalid_each(f"{here}.ip", alias.get("ip", ""), formats.ip_address_errors(alias.get("ip", "")))
        for number, name in enumerate(alias.get("hostnames", ())):
            found += invalid_each(f"{here}.hostnames[{number}]", name, formats.dns_subdomain_errors(name))
    for name in ("priorityClassName", "runtimeClassName"):
        if name in spec:
            found += invalid_each(f"{path}.{name}", spec[name], formats.dns_subdomain_errors(spec[name]))
    if "preemptionPolicy" in spec:
        found += validate_preemption_policy(spec["preemptionPolicy"], f"{path}.preemptionPolicy")
    if "overhead" in spec:
        found += quantities.validate_resource_requirements(
            {"limits": spec["overhead"]}, f"{path}.overhead", frozenset()
        )
    if "os" in spec:
        system = spec["os"].get("name", "")
        if not system:
            found.append(required(f"{path}.os.name"))
        elif system not in {"linux", "windows"}:
            found.append(unsupported(f"{path}.os", system, ("linux", "windows")))
    return found


def validate_preemption_policy(policy: str, path: str) -> list[FieldProblem]:
    """Of a pod or a priority class."""
    known = ("PreemptLowerPriority", "Never")
    if policy in known:
        return []
    return [unsupported(path, policy, known)] if policy else [required(path)]

"""Validation of pod specs, in pods and in templates."""

from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, quantities
from gangline.apiserver.kinds.machinery.pod_amounts import container_amounts, parse_amounts
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
    """Problems of a pod spec with its defaults, of a pod or a template. `pod_name` is empty for templates."""
    valid_volumes, problems = (
        volumes.validate_volumes(spec["volumes"], pod_name, f"{path}.volumes") if "volumes" in spec else ({}, [])
    )
    pod = containers.ContainerContext(spec, valid_volumes)
    if "resourceClaims" in spec:
        problems += _validate_resource_claims(spec["resourceClaims"], f"{path}.resourceClaims")
    regular, init = spec["containers"] or [], spec.get("initContainers", [])
    problems += containers.validate_containers(regular, pod, f"{path}.containers")
    if init:
        problems += containers.validate_init_containers(init, regular, pod, f"{path}.initContainers")
    if "ephemeralContainers" in spec:
        ephemeral, others = spec["ephemeralContainers"], [*regular, *init]
        problems += containers.validate_ephemeral_containers(ephemeral, others, pod, f"{path}.ephemeralContainers")
    rare = not spec.keys().isdisjoint(_RARE_FIELDS)
    if rare:
        problems += _validate_resources_and_network(spec, pod, path, of_pod=of_pod)
    if spec["restartPolicy"] not in _RESTART_POLICIES:
        problems.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES))
    if spec["dnsPolicy"] not in _DNS_POLICIES:
        problems.append(unsupported(f"{path}.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES))
    if "nodeSelector" in spec:
        problems += metadata.validate_labels(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec["securityContext"] or spec.get("shareProcessNamespace"):
        problems += security.validate_pod_security_context(spec["securityContext"], spec, f"{path}.securityContext")
    if rare or spec["dnsPolicy"] == "None":
        problems += _validate_scheduling(spec, path)
        problems += _validate_names_and_deadline(spec, path)
    if "tolerations" in spec:
        problems += placement.validate_tolerations(spec["tolerations"], f"{path}.tolerations")
    if rare:
        problems += _validate_rare_fields(spec, path)
    return problems


def _validate_resource_claims(claims: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_names: set[str] = set()
    for index, claim in enumerate(claims):
        item_path, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            problems.append(required(f"{item_path}.name"))
        elif name in earlier_names:
            problems.append(duplicate(f"{item_path}.name", name))
        else:
            problems += invalid_each(f"{item_path}.name", name, formats.dns_label_errors(name))
        earlier_names.add(name)
        sources = [source for source in ("resourceClaimName", "resourceClaimTemplateName") if source in claim]
        if len(sources) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            problems.append(invalid(item_path, gostruct.go_struct(claim, gostruct.RESOURCE_CLAIM_FIELDS), detail))
        if not sources:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            problems.append(invalid(item_path, gostruct.go_struct(claim, gostruct.RESOURCE_CLAIM_FIELDS), detail))
        for source in sources:
            problems += invalid_each(
                f"{item_path}.{source}", claim[source], formats.dns_subdomain_errors(claim[source])
            )
    return problems


def _validate_resources_and_network(
    spec: JSON, pod: containers.ContainerContext, path: str, *, of_pod: bool
) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if "resources" in spec:
        field_path = f"{path}.resources"
        if "claims" in spec["resources"]:
            problems.append(forbidden(f"{field_path}.claims", "claims may not be set for Resources at pod-level"))
        problems += quantities.validate_resource_requirements(spec["resources"], field_path, pod.claims, pod_level=True)
        problems += _validate_pod_resources(spec, field_path)
    if spec.get("hostNetwork"):
        problems += _validate_host_network_ports(spec["containers"] or (), f"{path}.containers", of_pod=of_pod)
    return problems


def _validate_pod_resources(spec: JSON, path: str) -> list[FieldProblem]:
    """Containers may not ask for more than their pod does."""
    problems: list[FieldProblem] = []
    pod = {field: parse_amounts(spec["resources"].get(field)) for field in ("requests", "limits")}
    for field, amounts in pod.items():
        for name, total in container_amounts(spec, field).items():
            is_bound = field == "requests" or name.startswith(quantities.HUGE_PAGES_PREFIX)
            if is_bound and name in amounts and total > amounts[name]:
                detail = f"must be greater than or equal to aggregate container {field} of {total}"
                problems.append(invalid(f"{path}.{field}[{name}]", str(amounts[name]), detail))
    for index, container in enumerate(spec["containers"] or ()):
        for name, amount in parse_amounts((container.get("resources") or {}).get("limits")).items():
            if name in pod["limits"] and amount > pod["limits"][name]:
                detail = f"must be less than or equal to pod limits of {pod['limits'][name]}"
                problems.append(invalid(f"{path}.containers[{index}][{name}].limits", str(amount), detail))
    return problems


def _validate_host_network_ports(container_list: Iterable[JSON], path: str, *, of_pod: bool) -> list[FieldProblem]:
    detail = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(f"{path}[{index}].ports[{number}].hostPort", port.get("hostPort", 0), detail)
        for index, container in enumerate(container_list)
        for number, port in enumerate(container.get("ports", ()))
        if (of_pod or "hostPort" in port) and port.get("hostPort", 0) != port["containerPort"]
    ]


def _validate_scheduling(spec: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if "affinity" in spec:
        problems += placement.validate_affinity(spec["affinity"], f"{path}.affinity")
    problems += _validate_dns_config(spec.get("dnsConfig"), spec["dnsPolicy"], f"{path}.dnsConfig")
    for index, gate in enumerate(spec.get("readinessGates", ())):
        kind = gate.get("conditionType", "")
        item_path = f"{path}.readinessGates[{index}].conditionType"
        problems += invalid_each(item_path, kind, formats.qualified_name_errors(kind))
    problems += _validate_scheduling_gates(spec.get("schedulingGates", ()), f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        problems += placement.validate_spread_constraints(
            spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints"
        )
    return problems + security.validate_host_namespaces(spec, path)


def _validate_scheduling_gates(gates: list[JSON] | tuple[()], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_names: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        problems += invalid_each(f"{path}[{index}]", name, formats.qualified_name_errors(name))
        if name in earlier_names:
            problems.append(duplicate(f"{path}[{index}]", name))
        earlier_names.add(name)
    return problems


def _validate_dns_config(config: JSON | None, policy: str, path: str) -> list[FieldProblem]:
    if policy == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", detail)]
    if config is None:
        return []
    servers = config.get("nameservers", [])
    problems: list[FieldProblem] = []
    if len(servers) > 3:
        problems.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        problems += invalid_each(f"{path}.nameservers[{index}]", server, formats.ip_address_errors(server))
    problems += _validate_dns_searches(config.get("searches", []), path)
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            problems.append(required(f"{path}.options[{index}]", "must not be empty"))
    return problems


def _validate_dns_searches(searches: list[str], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if len(searches) > 32:
        problems.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        problems.append(invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            short = search.removesuffix(".")
            errors = formats.underscored_subdomain_errors(short)
            problems += invalid_each(f"{path}.searches[{index}]", short, errors)
    return problems


def _validate_names_and_deadline(spec: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for name in ("serviceAccountName", "nodeName"):
        if name in spec:
            problems += invalid_each(f"{path}.{name}", spec[name], formats.dns_subdomain_errors(spec[name]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        problems.append(invalid(f"{path}.activeDeadlineSeconds", deadline, formats.range_message(1, 2**31 - 1)))
    for name in ("hostname", "subdomain"):
        if name in spec:
            problems += invalid_each(f"{path}.{name}", spec[name], formats.dns_label_errors(spec[name]))
    return problems


def _validate_rare_fields(spec: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, alias in enumerate(spec.get("hostAliases", ())):
        item_path = f"{path}.hostAliases[{index}]"
        problems += invalid_each(f"{item_path}.ip", alias.get("ip", ""), formats.ip_address_errors(alias.get("ip", "")))
        for number, name in enumerate(alias.get("hostnames", ())):
            problems += invalid_each(f"{item_path}.hostnames[{number}]", name, formats.dns_subdomain_errors(name))
    for name in ("priorityClassName", "runtimeClassName"):
        if name in spec:
            problems += invalid_each(f"{path}.{name}", spec[name], formats.dns_subdomain_errors(spec[name]))
    if "preemptionPolicy" in spec:
        problems += validate_preemption_policy(spec["preemptionPolicy"], f"{path}.preemptionPolicy")
    if "overhead" in spec:
        problems += quantities.validate_resource_requirements(
            {"limits": spec["overhead"]}, f"{path}.overhead", frozenset()
        )
    if "os" in spec:
        system = spec["os"].get("name", "")
        if not system:
            problems.append(required(f"{path}.os.name"))
        elif system not in {"linux", "windows"}:
            problems.append(unsupported(f"{path}.os", system, ("linux", "windows")))
    return problems


def validate_preemption_policy(policy: str, path: str) -> list[FieldProblem]:
    """Problems of the preemption policy of a pod or a priority class."""
    supported = ("PreemptLowerPriority", "Never")
    if policy in supported:
        return []
    return [unsupported(path, policy, supported)] if policy else [required(path)]

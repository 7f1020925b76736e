"""Ingresses, their classes, and the ranges of Services' addresses."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.names import regex_message
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, unsupported

_CLASS_ANNOTATION = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_FORBIDDEN_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_AT_END = ("/..", "/.")
_WILDCARD_MESSAGE = regex_message(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
    r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    "*.example.com",
)


class IngressStrategy(DeclaredStrategy):
    def validate(self, obj: JSON) -> list[FieldProblem]:
        annotation = (obj["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
        named = obj["spec"].get("ingressClassName")
        problems = super().validate(obj)
        if annotation is not None and named is not None and annotation != named:
            where = f"annotations.{_CLASS_ANNOTATION}"
            problems.append(invalid(where, annotation, "must match `ingressClassName` when both are specified"))
        return problems

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec, problems = obj["spec"], []
        rules, backend = spec.get("rules", ()), spec.get("defaultBackend")
        if not rules and backend is None:
            problems.append(invalid("spec", None, "either `defaultBackend` or `rules` must be specified"))
        if backend is not None:
            problems += _validate_backend(backend, "spec.defaultBackend")
        for index, rule in enumerate(rules):
            problems += _validate_rule(rule, f"spec.rules[{index}]")
        for index, tls in enumerate(spec.get("tls", ())):
            problems += _validate_tls(tls, f"spec.tls[{index}]")
        return problems + [
            problem for problem in super().validate_content(obj) if not problem.field.endswith(".pathType")
        ]


class IngressClassStrategy(DeclaredStrategy):
    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems = super().validate_content(obj)
        parameters = obj["spec"].get("parameters") or {}
        match parameters.get("scope"), parameters.get("namespace"):
            case "Namespace", None:
                problems.append(required("spec.parameters.namespace", "`parameters.scope` is set to 'Namespace'"))
            case "Cluster", str():
                problems.append(forbidden("spec.parameters.namespace", "`parameters.scope` is set to 'Cluster'"))
        return problems


class ServiceCidrStrategy(DeclaredStrategy):
    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems, cidrs = super().validate_content(obj), obj["spec"].get("cidrs", ())
        families = [formats.ip_family(cidr) for cidr in cidrs]
        if len(cidrs) > 2:
            problems.append(invalid("spec.cidrs", obj["spec"], "may only hold up to 2 values"))
        elif len(set(families)) < len(families):
            detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            problems.append(invalid("spec.cidrs", cidrs, detail))
        return problems


def _host_errors(host: str) -> tuple[str, ...]:
    if "*" not in host:
        return formats.dns_subdomain_errors(host)
    return () if host.startswith("*.") and not formats.dns_subdomain_errors(host[2:]) else (_WILDCARD_MESSAGE,)


def _validate_rule(rule: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if host := rule.get("host"):
        if not formats.ip_address_errors(host):
            problems.append(invalid(f"{path}.host", host, "must be a DNS name, not an IP address"))
        problems += invalid_each(f"{path}.host", host, _host_errors(host))
    http = rule.get("http")
    if http is not None and not http.get("paths"):
        problems.append(required(f"{path}.http.paths"))
    for index, item in enumerate((http or {}).get("paths") or ()):
        problems += _validate_path(item, f"{path}.http.paths[{index}]")
    return problems


def _validate_path(item: JSON, path: str) -> list[FieldProblem]:
    kind, text = item.get("pathType"), item.get("path", "")
    if kind is None:
        return [required(f"{path}.pathType", "pathType must be specified")]
    problems: list[FieldProblem] = []
    if kind not in _PATH_TYPES:
        problems.append(unsupported(f"{path}.pathType", kind, _PATH_TYPES))
    elif not text.startswith("/") and (text or kind != "ImplementationSpecific"):
        problems.append(invalid(f"{path}.path", text, "must be an absolute path"))
    if kind in ("Exact", "Prefix"):
        wrong = [f"must not contain '{part}'" for part in _FORBIDDEN_IN_PATHS if part in text]
        wrong += [f"cannot end with '{part}'" for part in _FORBIDDEN_AT_END if text.endswith(part)]
        problems += invalid_each(f"{path}.path", text, wrong)
    return problems + _validate_backend(item.get("backend") or {}, f"{path}.backend")


def _validate_backend(backend: JSON, path: str) -> list[FieldProblem]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if resource is not None:
        return [required(f"{path}.resource.{name}") for name in ("kind", "name") if not resource.get(name)]
    if service is None:
        return [invalid(path, "", "resource or service backend is required")]
    name, port = service.get("name", ""), service.get("port") or {}
    problems = (
        invalid_each(f"{path}.service.name", name, formats.dns_1035_label_errors(name))
        if name
        else [required(f"{path}.service.name")]
    )
    if port.get("name") and port.get("number"):
        problems.append(invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        problems += invalid_each(f"{path}.service.port.name", port["name"], formats.port_name_errors(port["name"]))
    elif port.get("number"):
        number = port["number"]
        problems += invalid_each(f"{path}.service.port.number", number, formats.port_number_errors(number))
    else:
        problems.append(required(path, "port name or number is required"))
    return problems


def _validate_tls(tls: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, host in enumerate(tls.get("hosts", ())):
        problems += invalid_each(f"{path}.hosts[{index}]", host, _host_errors(host))
    if name := tls.get("secretName"):
        problems += invalid_each(f"{path}.secretName", name, formats.dns_subdomain_errors(name))
    return problems

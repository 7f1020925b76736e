"""Configurations of admission webhooks."""

from urllib.parse import urlsplit

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.match_conditions import validate_match_conditions
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.problems import FieldProblem, duplicate, invalid, invalid_each, required, unsupported

_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_REVIEW_VERSIONS = ("v1", "v1beta1")
_URL_FORM = "; desired format: https://host[/path]"


class WebhookConfigurationStrategy(DeclaredStrategy):
    """Both kinds of configurations: they differ in one field, which has a default and a list of its values."""

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        names: set[str] = set()
        for index, webhook in enumerate(obj.get("webhooks", ())):
            path, name = f"webhooks[{index}]", webhook.get("name", "")
            problems += _validate_name(name, f"{path}.name")
            for number, rule in enumerate(webhook.get("rules", ())):
                problems += validate_rule(rule, f"{path}.rules[{number}]")
            problems += _validate_side_effects(webhook.get("sideEffects"), f"{path}.sideEffects")
            if not 1 <= webhook["timeoutSeconds"] <= 30:
                detail = "the timeout value must be between 1 and 30 seconds"
                problems.append(invalid(f"{path}.timeoutSeconds", webhook["timeoutSeconds"], detail))
            problems += _validate_client_config(webhook.get("clientConfig") or {}, f"{path}.clientConfig")
            problems += validate_match_conditions(webhook.get("matchConditions", ()), f"{path}.matchConditions")
            problems += _validate_versions(
                webhook.get("admissionReviewVersions") or [], f"{path}.admissionReviewVersions"
            )
            if name in names:
                problems.append(duplicate(f"{path}.name", name))
            names.add(name)
        others = super().validate_content(obj)
        return problems + [problem for problem in others if not problem.field.endswith(".sideEffects")]


def _validate_name(name: str, path: str) -> list[FieldProblem]:
    if not name:
        return [required(path)]
    if errors := formats.dns_subdomain_errors(name):
        return [invalid(path, name, ",".join(errors))]
    if name.count(".") < 2:
        return [invalid(path, name, "should be a domain with at least three segments separated by dots")]
    return []


def validate_rule(rule: JSON, path: str) -> list[FieldProblem]:
    """Problems of a rule that selects requests by operation, group, version and resource."""
    problems: list[FieldProblem] = []
    for field, words in (("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")):
        items = rule.get(field) or []
        if not items:
            problems.append(required(f"{path}.{field}"))
        if len(items) > 1 and "*" in items:
            problems.append(invalid(f"{path}.{field}", items, f"if '*' is present, must not specify other {words}"))
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            problems.append(required(f"{path}.apiVersions[{index}]"))
    return problems + _validate_resources(rule.get("resources") or [], f"{path}.resources")


def _validate_resources(resources: list[str], path: str) -> list[FieldProblem]:
    problems = [] if resources else [required(path)]
    problems += [required(f"{path}[{index}]") for index, text in enumerate(resources) if not text]
    for index, text in enumerate(resources):
        resource, _, subresource = text.partition("/")
        before = resources[:index]
        if subresource and f"{resource}/*" in before:
            detail = f"if '{resource}/*' is present, must not specify {text}"
            problems.append(invalid(f"{path}[{index}]", text, detail))
        if subresource and f"*/{subresource}" in before:
            detail = f"if '*/{subresource}' is present, must not specify {text}"
            problems.append(invalid(f"{path}[{index}]", text, detail))
    if len(resources) > 1 and "*/*" in resources:
        problems.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    plain = [text for text in resources if text and "/" not in text and text != "*"]
    if "*" in resources and plain:
        detail = "if '*' is present, must not specify other resources without subresources"
        problems.append(invalid(path, resources, detail))
    return problems


def _validate_side_effects(value: str | None, path: str) -> list[FieldProblem]:
    if value is None:
        return [required(path, f"must specify one of {', '.join(_SIDE_EFFECTS)}")]
    return [] if value in _SIDE_EFFECTS else [unsupported(path, value, _SIDE_EFFECTS)]


def _validate_client_config(config: JSON, path: str) -> list[FieldProblem]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        return [required(path, "exactly one of url or service is required")]
    if url is not None:
        return _validate_url(url, f"{path}.url")
    assert service is not None
    problems = [required(f"{path}.service.{name}") for name in ("name", "namespace") if not service.get(name)]
    if errors := formats.port_number_errors(service["port"]):
        detail = f"port is not valid: {', '.join(errors)}"
        problems.append(invalid(f"{path}.service.port", service["port"], detail))
    return problems + _validate_service_path(service.get("path") or "", f"{path}.service.path")


def _validate_url(url: str, path: str) -> list[FieldProblem]:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(path, f"url must be a valid URL: {error}{_URL_FORM}")]
    problems: list[FieldProblem] = []
    if parts.scheme != "https":
        problems.append(invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}"))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        problems.append(invalid(path, "", f"host must be specified{_URL_FORM}"))
    if at:
        problems.append(invalid(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        problems.append(invalid(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        problems.append(invalid(path, parts.query, "query parameters are not permitted in the URL"))
    return problems


def _validate_service_path(text: str, path: str) -> list[FieldProblem]:
    if text in ("", "/"):
        return []
    if text == "//":
        return [invalid(path, text, "segment[0] may not be empty")]
    problems = [] if text.startswith("/") else [invalid(path, text, "must start with a '/'")]
    for index, step in enumerate(text[1:].removesuffix("/").split("/")):
        if not step:
            problems.append(invalid(path, text, f"segment[{index}] may not be empty"))
        else:
            errors = formats.dns_subdomain_errors(step)
            problems += invalid_each(path, text, (f"segment[{index}]: {error}" for error in errors))
    return problems


def _validate_versions(versions: list[str], path: str) -> list[FieldProblem]:
    if not versions:
        return [required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")]
    problems: list[FieldProblem] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            problems.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        else:
            problems += invalid_each(f"{path}[{index}]", version, formats.dns_1035_label_errors(version))
    if not set(versions) & set(_REVIEW_VERSIONS):
        detail = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        problems.append(invalid(path, versions, detail))
    return problems

"""Pod templates of workloads: defaults, validation, warnings; and checks that workloads share."""

from collections.abc import Iterator

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, selectors
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.apiserver.kinds.pod import defaults, validation, warnings
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, unsupported


def set_template_defaults(template: JSON) -> None:
    """Set the defaults of a canonical pod template."""
    defaults.set_pod_spec_defaults(template["spec"])


def validate_pod_template(template: JSON, path: str) -> list[FieldProblem]:
    """Problems of a pod template with its defaults."""
    meta, spec = template["metadata"], template["spec"]
    problems = metadata.validate_labels(meta.get("labels", {}), f"{path}.labels")
    problems += metadata.validate_annotations(meta.get("annotations", {}), f"{path}.annotations")
    problems += validation.validate_pod_spec(spec, "", f"{path}.spec", of_pod=False)
    if "ephemeralContainers" in spec:
        detail = "ephemeral containers not allowed in pod template"
        problems.append(forbidden(f"{path}.spec.ephemeralContainers", detail))
    return problems


def validate_workload_selector(selector: JSON | None, kind: str) -> list[FieldProblem]:
    """Problems of a workload's selector, which is required and must not be empty."""
    if selector is None:
        return [required("spec.selector")]
    problems = selectors.validate_label_selector(selector, "spec.selector")
    if not selector:
        problems.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    return problems


def validate_selector_immutable(new: JSON, old: JSON) -> list[FieldProblem]:
    """A problem if the selector of a workload changed."""
    if new.get("selector") == old.get("selector"):
        return []
    printed = gostruct.json_struct(new.get("selector"), gostruct.LABEL_SELECTOR_FIELDS)
    return [invalid("spec.selector", printed, metadata.IMMUTABLE_MESSAGE)]


def selector_mismatch(template: JSON) -> FieldProblem:
    """The problem of a template whose labels the selector does not match."""
    detail = "`selector` does not match template `labels`"
    labels = template["metadata"].get("labels")
    return invalid("spec.template.metadata.labels", labels, detail)


def validate_always_restarts(spec: JSON, kind: str) -> list[FieldProblem]:
    """Problems of a template whose pods do not always restart, or have a deadline."""
    pod = spec["template"]["spec"]
    problems: list[FieldProblem] = []
    if pod["restartPolicy"] != "Always":
        problems.append(unsupported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",)))
    if "activeDeadlineSeconds" in pod:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        problems.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))
    return problems


def template_warnings(template: JSON, prefix: str) -> Iterator[str]:
    """Warnings about a pod template at `prefix`: `spec.template.`."""
    yield from warnings.pod_warnings(template["metadata"], template["spec"], prefix)


def name_warnings(name: str) -> Iterator[str]:
    """A warning about a workload's name that is no DNS label: it becomes part of the names of its pods."""
    if errors := formats.dns_label_errors(name):
        yield (
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label "
            f"is recommended: [{' '.join(errors)}]"
        )


def validate_int_or_percent(value: int | str, path: str) -> list[FieldProblem]:
    """Problems of a count (`3`) or percentage (`25%`)."""
    if isinstance(value, str):
        return invalid_each(path, value, formats.percent_errors(value))
    return validate_non_negative(path, value)


def validate_percent_limit(value: int | str, path: str) -> list[FieldProblem]:
    """A problem if a percentage exceeds 100%."""
    if isinstance(value, str) and not formats.percent_errors(value) and int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def int_or_percent_value(value: int | str) -> int:
    """The number of a count or percentage."""
    if isinstance(value, str):
        return 0 if formats.percent_errors(value) else int(value[:-1])
    return value

"""Pod templates of workloads: defaults, validation, warnings."""

from collections.abc import Iterator

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, selectors
from gangline.apiserver.kinds.machinery.problems import (
    each,
    forbidden,
    invalid,
    negative,
    required,
    unsupported,
)
from gangline.apiserver.kinds.pod import defaults, validation, warnings
from gangline.schema.problems import Problem


def set_template_defaults(template: JSON) -> None:
    """Of a template that has its shape."""
    defaults.set_spec_defaults(template["spec"])


def template(found_template: JSON, path: str) -> list[Problem]:
    """A pod template with its defaults."""
    meta, spec = found_template["metadata"], found_template["spec"]
    found = metadata.labels(meta.get("labels", {}), f"{path}.labels")
    found += metadata.annotations(meta.get("annotations", {}), f"{path}.annotations")
    found += validation.pod_spec(spec, "", f"{path}.spec", of_pod=False)
    if "ephemeralContainers" in spec:
        told = "ephemeral containers not allowed in pod template"
        found.append(forbidden(f"{path}.spec.ephemeralContainers", told))
    return found


def selector_problems(selector: JSON | None, kind: str) -> list[Problem]:
    """A workload's selector is there and selects something."""
    if selector is None:
        return [required("spec.selector")]
    found = selectors.selector(selector, "spec.selector")
    if not selector:
        found.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
    return found


def selector_change(new: JSON, old: JSON) -> list[Problem]:
    """A workload's selector stays as it is."""
    if new.get("selector") == old.get("selector"):
        return []
    shown = gostruct.ordered(new.get("selector"), gostruct.SELECTOR)
    return [invalid("spec.selector", shown, metadata.IMMUTABLE)]


def _labels(found_template: JSON) -> dict[str, str]:
    labels: dict[str, str] = found_template["metadata"].get("labels", {})
    return labels


def unmatched(found_template: JSON) -> Problem:
    told = "`selector` does not match template `labels`"
    labels = found_template["metadata"].get("labels")
    return invalid("spec.template.metadata.labels", labels, told)


def lasting(spec: JSON, kind: str) -> list[Problem]:
    """Pods of these workloads always restart."""
    pod = spec["template"]["spec"]
    found: list[Problem] = []
    if pod["restartPolicy"] != "Always":
        found.append(unsupported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",)))
    if "activeDeadlineSeconds" in pod:
        told = f"activeDeadlineSeconds in {kind} is not Supported"
        found.append(forbidden("spec.template.spec.activeDeadlineSeconds", told))
    return found


def template_warnings(found_template: JSON, prefix: str) -> Iterator[str]:
    """`prefix` is where the template is: `spec.template.`."""
    yield from warnings.pod_warnings(found_template["metadata"], found_template["spec"], prefix)


def name_warnings(name: str) -> Iterator[str]:
    """A workload's name becomes part of the names of its pods."""
    if said := formats.dns_label(name):
        yield (
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label "
            f"is recommended: [{' '.join(said)}]"
        )


def count_or_percent(value: int | str, path: str) -> list[Problem]:
    """`3` or `25%`."""
    if isinstance(value, str):
        return each(path, value, formats.percent(value))
    return negative(path, value)


def at_most_all(value: int | str, path: str) -> list[Problem]:
    """No percentage over a hundred."""
    if isinstance(value, str) and not formats.percent(value) and int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def amount(value: int | str) -> int:
    """The number of a count or percentage."""
    if isinstance(value, str):
        return 0 if formats.percent(value) else int(value[:-1])
    return value

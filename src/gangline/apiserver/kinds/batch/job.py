"""Jobs."""

import re

from gangline.api.meta import JSON
from gangline.apiserver.kinds.batch import job_policies
from gangline.apiserver.kinds.batch.job_status import validate_job_status
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, selectors
from gangline.apiserver.kinds.machinery.metadata import CoreMetadataRules, validate_non_negative
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.apiserver.kinds.pod import strategy, templates
from gangline.schema.problems import FieldProblem, invalid, invalid_each, required, too_long, unsupported

_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_MAX_INDEXED_PODS = 100_000
_MAX_INT32 = 2**31 - 1
_DOMAIN_PATH_PATTERN = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def set_job_spec_defaults(spec: JSON) -> None:
    """Set the defaults of a Job's spec. The job template of a CronJob does not get them."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MAX_INT32 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)


def set_policy_defaults(spec: JSON) -> None:
    """Set the defaults of `podFailurePolicy`, in a Job or in the job template of a CronJob."""
    for rule in spec.get("podFailurePolicy", {}).get("rules") or ():
        for pattern in rule.get("onPodConditions", ()):
            if not pattern.get("status"):
                pattern["status"] = "True"


class JobMetadataRules(CoreMetadataRules):
    """Labels that only come from the generated selector are not validated among the Job's own."""

    def validate(self, obj: JSON) -> list[FieldProblem]:
        labels = obj["metadata"].get("labels", {})
        if labels and labels.keys() <= {*_UID_LABELS, *_NAME_LABELS}:
            # They come from the template, not from a client.
            rest = {name: value for name, value in obj["metadata"].items() if name != "labels"}
            return super().validate({**obj, "metadata": rest})
        return super().validate(obj)


class JobStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        if labels := obj["spec"]["template"]["metadata"].get("labels"):
            # The default of a Job without labels, which only now has a template.
            obj["metadata"].setdefault("labels", dict(labels))

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return validate_job_status(obj, old)


class JobStrategy(Strategy):
    """The selector of a Job is generated, so that a Job owns its own pods only."""

    struct = "batch.v1.Job"
    has_status = True
    has_generation = True
    metadata_rules = JobMetadataRules
    status_strategy = JobStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        spec, meta = obj["spec"], obj["metadata"]
        templates.set_template_defaults(spec["template"])
        set_policy_defaults(spec)
        set_job_spec_defaults(spec)
        labels = spec["template"]["metadata"].get("labels")
        if labels and not meta.get("labels"):
            meta["labels"] = labels  # Shared: kube-apiserver adds generated labels to both.

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        strategy.drop_disabled_fields(obj["spec"]["template"]["spec"])
        if not obj["spec"]["manualSelector"]:
            _generate_selector(obj)
        labels, job_labels = obj["spec"]["template"]["metadata"].get("labels"), obj["metadata"].get("labels")
        if labels and (job_labels is labels or not job_labels):
            obj["metadata"]["labels"] = dict(labels)

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        strategy.drop_disabled_fields(obj["spec"]["template"]["spec"])
        super().prepare_for_update(obj, old)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems = _validate_generated_selector(obj)
        problems += _validate_spec_and_selector(obj["spec"])
        spec, name = obj["spec"], obj["metadata"].get("name", "")
        if spec["completionMode"] == "Indexed" and spec.get("completions", 0) > 0:
            last = f"{name}-{spec['completions'] - 1}"
            if formats.dns_label_errors(last):
                detail = f"will not able to create pod with invalid DNS label: {last}"
                problems.append(invalid("metadata.name", name, detail))
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        # kube-apiserver validates the new job, and its spec once more as part of the change.
        new, before = obj["spec"], old["spec"]
        problems = [*self.validate(obj), *self.metadata.validate_update(obj, old), *_validate_spec_and_selector(new)]
        problems += _validate_completions_update(new, before)
        problems += templates.validate_selector_immutable(new, before)
        problems += _validate_template_update(new["template"], old)
        for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
            problems += metadata.validate_immutable(new.get(name), before.get(name), f"spec.{name}")
        return problems

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        return job_warnings(obj, old, obj["spec"], "spec")


def job_warnings(obj: JSON, old: JSON | None, spec: JSON, path: str) -> list[str]:
    """Warnings about a new or changed Job or CronJob with this job spec at `path`."""
    warnings: list[str] = []
    if old is None:
        warnings += templates.name_warnings(obj["metadata"].get("name", ""))
    elif obj["metadata"].get("generation") == old["metadata"].get("generation"):
        return warnings
    many = spec.get("completions", 0) > 100_000 and spec.get("parallelism", 0) > 10_000
    if many and spec.get("completionMode") == "Indexed":
        warnings.append(
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
            "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    return [*warnings, *templates.template_warnings(spec["template"], f"{path}.template.")]


def _generate_selector(obj: JSON) -> None:
    meta, spec = obj["metadata"], obj["spec"]
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for name in _NAME_LABELS:
        labels.setdefault(name, meta.get("name", ""))
    for name in _UID_LABELS:
        labels.setdefault(name, meta.get("uid", ""))
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(_UID_LABELS[1], meta.get("uid", ""))


def _validate_generated_selector(obj: JSON) -> list[FieldProblem]:
    spec, meta = obj["spec"], obj["metadata"]
    selector = spec.get("selector")
    if spec["manualSelector"] or selector is None:
        return []
    expected = {name: meta.get("uid", "") for name in _UID_LABELS}
    expected |= {name: meta.get("name", "") for name in _NAME_LABELS}
    labels = spec["template"]["metadata"].get("labels", {})
    problems: list[FieldProblem] = []
    for name in (_UID_LABELS[0], _NAME_LABELS[0], _UID_LABELS[1], _NAME_LABELS[1]):
        problems += _validate_generated_label(labels, name, expected[name])
    if not selectors.validate_label_selector(selector, "") and not selectors.matches_labels(selector, expected):
        printed = gostruct.json_struct(selector, gostruct.LABEL_SELECTOR_FIELDS)
        problems.append(invalid("spec.selector", printed, "`selector` not auto-generated"))
    return problems


def _validate_generated_label(labels: dict[str, str], name: str, value: str) -> list[FieldProblem]:
    path = "spec.template.metadata.labels"
    if name not in labels:
        return [required(f"{path}[{name}]", f"must be '{value}'")]
    if labels[name] != value:
        return [invalid(f"{path}[{name}]", labels, f"must be '{value}'")]
    return []


def _validate_spec_and_selector(spec: JSON) -> list[FieldProblem]:
    problems = validate_job_spec(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        problems.append(required("spec.selector"))
    selector_problems = selectors.validate_label_selector(selector, "spec.selector")
    problems += selector_problems
    labels = spec["template"]["metadata"].get("labels", {})
    if not selector_problems and (selector is None or not selectors.matches_labels(selector, labels)):
        problems.append(templates.selector_mismatch(spec["template"]))
    return problems


def validate_job_spec(spec: JSON, path: str) -> list[FieldProblem]:
    """Problems of the spec of a Job, or of the job template of a CronJob, at `path`."""
    problems: list[FieldProblem] = []
    for name in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ):
        problems += validate_non_negative(f"{path}.{name}", spec.get(name, 0))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        problems.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "managedBy" in spec:
        problems += _validate_managed_by(spec["managedBy"], f"{path}.managedBy")
    problems += _validate_completion_mode(spec, path)
    if "podFailurePolicy" in spec:
        problems += job_policies.validate_failure_policy(spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec:
        problems += job_policies.validate_success_policy(spec, f"{path}.successPolicy")
    problems += _validate_replacement_policy(spec, f"{path}.podReplacementPolicy")
    problems += templates.validate_pod_template(spec["template"], f"{path}.template")
    return problems + _validate_restart_policy(spec, f"{path}.template.spec.restartPolicy")


def _validate_managed_by(name: str, path: str) -> list[FieldProblem]:
    host, slash, name_path = name.partition("/")
    if not name:
        return [required(path)]
    if not host or not slash or not name_path:
        return [invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    problems = invalid_each(path, host, formats.dns_subdomain_errors(host))
    if not re.fullmatch(_DOMAIN_PATH_PATTERN, name_path):
        problems.append(
            invalid(path, name_path, f"Invalid path (regex used for validation is '{_DOMAIN_PATH_PATTERN}')")
        )
    if len(name) > 63:
        problems.append(too_long(path, 63))
    return problems


def _validate_completion_mode(spec: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in {"NonIndexed", "Indexed"}:
        problems.append(unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "NonIndexed":
        return problems + [
            invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
            for name in ("backoffLimitPerIndex", "maxFailedIndexes")
            if name in spec
        ]
    if mode != "Indexed":
        return problems
    if "completions" not in spec:
        problems.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if spec.get("parallelism", 0) > _MAX_INDEXED_PODS:
        detail = f"must be less than or equal to {_MAX_INDEXED_PODS} when completion mode is Indexed"
        problems.append(invalid(f"{path}.parallelism", spec["parallelism"], detail))
    failed = spec.get("maxFailedIndexes", 0)
    if "completions" in spec and failed > spec["completions"]:
        detail = "must be less than or equal to completions"
        problems.append(invalid(f"{path}.maxFailedIndexes", failed, detail))
    if failed > _MAX_INDEXED_PODS:
        detail = f"must be less than or equal to {_MAX_INDEXED_PODS}"
        problems.append(invalid(f"{path}.maxFailedIndexes", failed, detail))
    return problems


def _validate_restart_policy(spec: JSON, path: str) -> list[FieldProblem]:
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy == "Always":
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in {"OnFailure", "Never"}:
        return [unsupported(path, policy, ("OnFailure", "Never"))]
    if "podFailurePolicy" in spec and policy != "Never":
        return [invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _validate_replacement_policy(spec: JSON, path: str) -> list[FieldProblem]:
    policy = spec.get("podReplacementPolicy")
    supported = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    return [] if policy is None or policy in supported else [unsupported(path, policy, supported)]


def _validate_completions_update(new: JSON, old: JSON) -> list[FieldProblem]:
    now, before = new.get("completions"), old.get("completions")
    if new["completionMode"] != "Indexed":
        return metadata.validate_immutable(now, before, "spec.completions")
    if now is None or now == before or now == new["parallelism"]:
        return []
    return [invalid("spec.completions", now, "can only be modified in tandem with spec.parallelism")]


def _validate_template_update(new: JSON, old: JSON) -> list[FieldProblem]:
    before = old["spec"]["template"]
    if new == before:
        return []
    if old["spec"].get("suspend") and "startTime" not in old.get("status", {}) and _changes_only_placement(new, before):
        return []
    return [invalid("spec.template", new, metadata.IMMUTABLE_MESSAGE)]


def _changes_only_placement(new: JSON, old: JSON) -> bool:
    """Whether only fields changed that decide where pods run. A Job that never started may change those."""

    def other_fields(template: JSON) -> JSON:
        free = ("nodeSelector", "tolerations", "schedulingGates")
        spec = {name: value for name, value in template["spec"].items() if name not in free}
        affinity = {name: value for name, value in spec.pop("affinity", {}).items() if name != "nodeAffinity"}
        meta = {name: value for name, value in template["metadata"].items() if name not in {"labels", "annotations"}}
        return {"spec": spec, "affinity": affinity, "metadata": meta}

    return other_fields(new) == other_fields(old)

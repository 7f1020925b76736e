"""Deployments, ReplicaSets, StatefulSets, DaemonSets, and the older ReplicationControllers."""

from typing import Any, ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, selectors
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy, restore_field
from gangline.apiserver.kinds.pod import claims, defaults, templates
from gangline.apiserver.kinds.pod import strategy as pod_strategy
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, unsupported

_EXCEEDS_REPLICAS = "cannot be greater than status.replicas"


class _WorkloadStrategy(Strategy):
    """What the four workloads share: pod templates and immutable selectors."""

    has_status = True
    has_generation = True
    prefixes_pod_names: ClassVar[bool] = True
    """Whether the names of the pods begin with the workload's name."""

    def set_defaults(self, obj: JSON) -> None:
        templates.set_template_defaults(obj["spec"]["template"])

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        self._drop_disabled_fields(obj)

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        self._drop_disabled_fields(obj)
        super().prepare_for_update(obj, old)

    def _drop_disabled_fields(self, obj: JSON) -> None:
        if (template := obj["spec"].get("template")) is not None:
            pod_strategy.drop_disabled_fields(template["spec"])

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return templates.validate_selector_immutable(obj["spec"], old["spec"])

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        warnings: list[str] = []
        if old is not None and obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return warnings
        if old is None and self.prefixes_pod_names:
            warnings += templates.name_warnings(obj["metadata"].get("name", ""))
        if (template := obj["spec"].get("template")) is not None:
            warnings += templates.template_warnings(template, "spec.template.")
        return warnings


class DeploymentStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        restore_field(obj["metadata"], old["metadata"], "labels")

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        counts = "observedGeneration replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas collisionCount"
        limited = ("updatedReplicas", "readyReplicas", "availableReplicas")
        problems = _validate_replica_counts(obj["status"], counts, limited, "readyReplicas")
        return problems + _validate_collision_count(obj["status"], old["status"])


class DeploymentStrategy(_WorkloadStrategy):
    struct = "apps.v1.Deployment"
    status_strategy = DeploymentStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        strategy = spec["strategy"]
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def generation_fields(self, obj: JSON) -> Any:
        return obj.get("spec"), obj["metadata"].get("annotations")

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems = validate_non_negative("spec.replicas", spec["replicas"])
        problems += _validate_replicated_spec(spec, "ReplicaSet")
        problems += _validate_deployment_rollout(spec["strategy"], "spec.strategy")
        ready = spec.get("minReadySeconds", 0)
        problems += validate_non_negative("spec.minReadySeconds", ready)
        problems += validate_non_negative("spec.revisionHistoryLimit", spec["revisionHistoryLimit"])
        deadline = spec["progressDeadlineSeconds"]
        problems += validate_non_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= ready:
            detail = "must be greater than minReadySeconds"
            problems.append(invalid("spec.progressDeadlineSeconds", deadline, detail))
        return problems


def _validate_replicated_spec(spec: JSON, kind: str) -> list[FieldProblem]:
    selector, template = spec.get("selector"), spec["template"]
    problems = templates.validate_workload_selector(selector, "deployment")  # The message says so for ReplicaSets, too.
    if selector is None or not selectors.validate_label_selector(selector, ""):
        labels = template["metadata"].get("labels", {})
        if selector is None or not selectors.matches_labels(selector, labels):
            problems.append(templates.selector_mismatch(template))
        problems += templates.validate_pod_template(template, "spec.template")
        problems += templates.validate_always_restarts(spec, kind)
    else:
        detail = "invalid label selector"
        problems.append(invalid("spec.selector", selector, detail))
    return problems


def _validate_deployment_rollout(strategy: JSON, path: str) -> list[FieldProblem]:
    match strategy["type"]:
        case "Recreate":
            if "rollingUpdate" not in strategy:
                return []
            detail = "may not be specified when strategy `type` is 'Recreate'"
            return [forbidden(f"{path}.rollingUpdate", detail)]
        case "RollingUpdate":
            return _validate_rolling_update(strategy["rollingUpdate"], f"{path}.rollingUpdate")
        case _:
            return [
                unsupported(path, _rollout_struct(strategy, "MaxUnavailable MaxSurge"), ("Recreate", "RollingUpdate"))
            ]


def _rollout_struct(strategy: JSON, rolling: str) -> Any:
    """An update strategy as Go prints it. `rolling` lists the fields of `rollingUpdate`."""
    return gostruct.go_struct(strategy, f"Type RollingUpdate({rolling})")


def _validate_rolling_update(rolling: JSON, path: str) -> list[FieldProblem]:
    unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    problems = templates.validate_int_or_percent(unavailable, f"{path}.maxUnavailable")
    problems += templates.validate_int_or_percent(surge, f"{path}.maxSurge")
    if templates.int_or_percent_value(unavailable) == 0 and templates.int_or_percent_value(surge) == 0:
        detail = "may not be 0 when `maxSurge` is 0"
        problems.append(invalid(f"{path}.maxUnavailable", unavailable, detail))
    return problems + templates.validate_percent_limit(unavailable, f"{path}.maxUnavailable")


class ReplicaSetStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        counts = "replicas fullyLabeledReplicas readyReplicas availableReplicas observedGeneration"
        limited = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
        return _validate_replica_counts(obj["status"], counts, limited, "readyReplicas")


class ReplicaSetStrategy(_WorkloadStrategy):
    struct = "apps.v1.ReplicaSet"
    status_strategy = ReplicaSetStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        obj["spec"].setdefault("replicas", 1)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems = validate_non_negative("spec.replicas", spec["replicas"])
        problems += validate_non_negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
        return problems + _validate_replicated_spec(spec, "ReplicaSet")


class ReplicationControllerStrategy(_WorkloadStrategy):
    """The ancestor of ReplicaSets: its selector is a map of labels, and may change."""

    struct = "core.v1.ReplicationController"
    status_strategy = ReplicaSetStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        if spec.get("template") is None:
            return
        super().set_defaults(obj)
        if labels := spec["template"]["metadata"].get("labels"):
            spec.setdefault("selector", dict(labels))
            obj["metadata"].setdefault("labels", dict(labels))

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems = validate_non_negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
        if not spec.get("selector"):
            problems.append(required("spec.selector"))
        problems += validate_non_negative("spec.replicas", spec["replicas"])
        template = spec.get("template")
        if template is None:
            return [*problems, required("spec.template")]
        if (spec.get("selector") or {}).items() - template["metadata"].get("labels", {}).items():
            problems.append(templates.selector_mismatch(template))
        problems += templates.validate_pod_template(template, "spec.template")
        return problems + templates.validate_always_restarts(spec, "ReplicationController")

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return []


class StatefulSetStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        counts = (
            "replicas readyReplicas currentReplicas updatedReplicas availableReplicas observedGeneration collisionCount"
        )
        limited = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
        problems = _validate_replica_counts(obj["status"], counts, limited, "status.readyReplicas")
        return problems + _validate_collision_count(obj["status"], old["status"])


class StatefulSetStrategy(_WorkloadStrategy):
    struct = "apps.v1.StatefulSet"
    status_strategy = StatefulSetStatusStrategy
    prefixes_pod_names = False
    name_errors = staticmethod(formats.dns_label_errors)

    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        spec = obj["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec["updateStrategy"]
        if "type" not in strategy:
            strategy["type"] = "RollingUpdate"
            strategy.setdefault("rollingUpdate", {})
        if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
            strategy["rollingUpdate"].setdefault("partition", 0)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        spec.setdefault("replicas", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        for claim in spec.get("volumeClaimTemplates", ()):
            claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
            claim["spec"].setdefault("volumeMode", "Filesystem")
            claim["status"].setdefault("phase", "Pending")

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        obj["spec"]["updateStrategy"].get("rollingUpdate", {}).pop("maxUnavailable", None)

    def validate(self, obj: JSON) -> list[FieldProblem]:
        return [*self.metadata.validate(obj), *self._validate_spec(obj["spec"], new=True)]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return self._validate_spec(obj["spec"], new=False)

    def _validate_spec(self, spec: JSON, *, new: bool) -> list[FieldProblem]:
        problems = _validate_stateful_options(spec, new=new)
        selector = spec.get("selector")
        problems += templates.validate_workload_selector(selector, "statefulset")
        if selectors.validate_label_selector(selector, ""):
            problems.append(
                invalid("spec.selector", gostruct.json_struct(selector, gostruct.LABEL_SELECTOR_FIELDS), "")
            )
        else:
            problems += _validate_stateful_template(spec, selector)
        return problems + templates.validate_always_restarts(spec, "StatefulSet")

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        may = {
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        }
        new, before = obj["spec"], old["spec"]
        if all(new.get(name) == before.get(name) for name in {*new, *before} - may):
            return []
        detail = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        return [forbidden("spec", detail)]


def _validate_stateful_template(spec: JSON, selector: JSON | None) -> list[FieldProblem]:
    meta = spec["template"]["metadata"]
    problems: list[FieldProblem] = []
    if selector is None or not selectors.matches_labels(selector, meta.get("labels", {})):
        problems.append(templates.selector_mismatch(spec["template"]))
    problems += templates.validate_pod_template(_template_with_claims(spec), "spec.template")
    # kube-apiserver validates these twice.
    problems += metadata.validate_labels(meta.get("labels", {}), "spec.template.labels")
    return problems + metadata.validate_annotations(meta.get("annotations", {}), "spec.template.annotations")


def _template_with_claims(spec: JSON) -> JSON:
    """The template as the pods get it: with a volume for each claim."""
    claims = spec.get("volumeClaimTemplates", ())
    template: JSON = spec["template"]
    if not claims and not template["spec"].keys() & {"hostname", "subdomain"}:
        return template
    names = [claim["metadata"].get("name", "") for claim in claims]
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    other_volumes = [volume for volume in template["spec"].get("volumes", ()) if volume.get("name") not in names]
    pod_spec = {name: value for name, value in template["spec"].items() if name not in {"hostname", "subdomain"}}
    return {**template, "spec": {**pod_spec, "volumes": [*claimed, *other_volumes]}}


def _validate_stateful_options(spec: JSON, *, new: bool) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    policy = spec["podManagementPolicy"]
    if policy not in {"OrderedReady", "Parallel"}:
        problems.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    problems += _validate_stateful_rollout(spec["updateStrategy"], "spec.updateStrategy")
    for name in ("whenDeleted", "whenScaled"):
        value = spec["persistentVolumeClaimRetentionPolicy"][name]
        if value not in {"Retain", "Delete"}:
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            problems.append(unsupported(path, value, ("Retain", "Delete")))
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ()) if new else ()):
        problems += claims.validate_claim_spec(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec")
    problems += validate_non_negative("spec.replicas", spec["replicas"])
    problems += validate_non_negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
    problems += validate_non_negative("spec.ordinals.start", spec.get("ordinals", {}).get("start", 0))
    name = spec.get("serviceName", "")
    if new and name:
        problems += invalid_each("spec.serviceName", name, formats.dns_label_errors(name))
    return problems


def _validate_stateful_rollout(strategy: JSON, path: str) -> list[FieldProblem]:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
    if kind == "OnDelete":
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        if rolling is None:
            return []
        printed = gostruct.go_struct({"partition": 0, **rolling}, "Partition MaxUnavailable")
        return [invalid(f"{path}.rollingUpdate", printed, detail)]
    if kind == "RollingUpdate":
        return validate_non_negative(f"{path}.rollingUpdate.partition", (rolling or {}).get("partition", 0))
    return [
        invalid(path, _rollout_struct(strategy, "Partition MaxUnavailable"), "must be 'RollingUpdate' or 'OnDelete'")
    ]


class DaemonSetStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        names = (
            "currentNumberScheduled numberMisscheduled desiredNumberScheduled numberReady observedGeneration "
            "updatedNumberScheduled numberAvailable numberUnavailable collisionCount"
        )
        return _validate_counts(obj["status"], names) + _validate_collision_count(obj["status"], old["status"])


class DaemonSetStrategy(_WorkloadStrategy):
    struct = "apps.v1.DaemonSet"
    status_strategy = DaemonSetStatusStrategy
    prefixes_pod_names = False

    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        # Set as a default, so that the client owns the field; the number is set later.
        obj["metadata"].setdefault("annotations", {}).setdefault(_TEMPLATE_GENERATION_ANNOTATION, "0")
        spec = obj["spec"]
        strategy = spec["updateStrategy"]
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        _set_template_generation(obj["metadata"], 1)

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        before = int(old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION_ANNOTATION, "1"))
        changed = obj["spec"]["template"] != old["spec"]["template"]
        _set_template_generation(obj["metadata"], before + changed)

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        # Unlike those of other workloads, a changed selector is reported before what is wrong with the rest.
        problems = self.metadata.validate_update(obj, old) + self.validate_transition(obj, old)
        return problems + self.validate_content(obj)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        selector = spec.get("selector")
        problems = selectors.validate_label_selector(selector, "spec.selector")
        labels = spec["template"]["metadata"].get("labels", {})
        if not problems and (selector is None or not selectors.matches_labels(selector, labels)):
            problems.append(templates.selector_mismatch(spec["template"]))
        if selector is not None and not selector:
            problems.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
        problems += templates.validate_pod_template(spec["template"], "spec.template")
        problems += templates.validate_always_restarts(spec, "DaemonSet")
        problems += validate_non_negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
        problems += _validate_daemon_rollout(spec["updateStrategy"], "spec.updateStrategy")
        return problems + validate_non_negative("spec.revisionHistoryLimit", spec["revisionHistoryLimit"])


_TEMPLATE_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"


def _set_template_generation(meta: JSON, generation: int) -> None:
    # A field of an older version of the kind, kept as an annotation.
    meta.setdefault("annotations", {})[_TEMPLATE_GENERATION_ANNOTATION] = str(generation)


def _validate_daemon_rollout(strategy: JSON, path: str) -> list[FieldProblem]:
    if strategy["type"] == "OnDelete":
        return []
    if strategy["type"] != "RollingUpdate":
        return [unsupported(path, _rollout_struct(strategy, "MaxUnavailable MaxSurge"), ("RollingUpdate", "OnDelete"))]
    unavailable, surge = strategy["rollingUpdate"]["maxUnavailable"], strategy["rollingUpdate"]["maxSurge"]
    field_path = f"{path}.rollingUpdate"
    problems = templates.validate_int_or_percent(unavailable, f"{field_path}.maxUnavailable")
    problems += templates.validate_int_or_percent(surge, f"{field_path}.maxSurge")
    problems += templates.validate_percent_limit(unavailable, f"{field_path}.maxUnavailable")
    problems += templates.validate_percent_limit(surge, f"{field_path}.maxSurge")
    if templates.int_or_percent_value(unavailable) and templates.int_or_percent_value(surge):
        detail = "may not be set when maxUnavailable is non-zero"
        problems.append(invalid(f"{field_path}.maxSurge", surge, detail))
    if not templates.int_or_percent_value(unavailable) and not templates.int_or_percent_value(surge):
        problems.append(required(f"{field_path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return problems


def _validate_counts(status: JSON, names: str) -> list[FieldProblem]:
    """No count of the status may be negative. `names` lists the counts, separated by spaces."""
    problems: list[FieldProblem] = []
    for name in names.split():
        problems += validate_non_negative(f"status.{name}", status.get(name, 0))
    return problems


def _validate_replica_counts(status: JSON, counts: str, limited: tuple[str, ...], ready: str) -> list[FieldProblem]:
    """Problems of negative counts, of `limited` ones above `replicas`, and of more available than ready replicas.

    `ready` is the name of the ready replicas in the message.
    """
    problems = _validate_counts(status, counts)
    most, available = status.get("replicas", 0), status.get("availableReplicas", 0)
    problems += [
        invalid(f"status.{name}", status.get(name, 0), _EXCEEDS_REPLICAS)
        for name in limited
        if status.get(name, 0) > most
    ]
    if available > status.get("readyReplicas", 0):
        problems.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))
    return problems


def _validate_collision_count(status: JSON, old: JSON) -> list[FieldProblem]:
    count = status.get("collisionCount", 0)
    if "collisionCount" not in old or count >= old["collisionCount"]:
        return []
    return [invalid("status.collisionCount", count, "cannot be decremented")]


class PodTemplateStrategy(Strategy):
    struct = "core.v1.PodTemplate"
    has_generation = True

    def generation_fields(self, obj: JSON) -> Any:
        return obj.get("template")

    def set_defaults(self, obj: JSON) -> None:
        defaults.set_pod_spec_defaults(obj["template"]["spec"])

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return templates.validate_pod_template(obj["template"], "template")


class ControllerRevisionStrategy(Strategy):
    struct = "apps.v1.ControllerRevision"

    def validate(self, obj: JSON) -> list[FieldProblem]:
        return [*super().validate(obj), *_validate_data(obj.get("data"))]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return validate_non_negative("revision", obj.get("revision", 0))

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        if obj.get("data") == old.get("data"):
            return []
        return [invalid("data", obj.get("data"), metadata.IMMUTABLE_MESSAGE)]


def _validate_data(data: object) -> list[FieldProblem]:
    if data is None:
        return [required("data", "data is mandatory")]
    return [] if isinstance(data, dict) else [required("data", "data must be a valid JSON object")]

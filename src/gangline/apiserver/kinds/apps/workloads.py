"""Deployments, ReplicaSets, StatefulSets and DaemonSets."""

from typing import Any, ClassVar

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
from gangline.apiserver.kinds.machinery.strategy import Kind, take
from gangline.apiserver.kinds.pod import claims, defaults, templates
from gangline.apiserver.kinds.pod import strategy as pod_strategy
from gangline.schema.problems import Problem

_MORE_THAN_ALL = "cannot be greater than status.replicas"


class _Workload(Kind):
    has_status = True
    generation = True
    named_pods: ClassVar[bool] = True
    """Whether the names of its pods begin with its own."""

    def set_defaults(self, obj: JSON) -> None:
        templates.set_template_defaults(obj["spec"]["template"])

    def create(self, obj: JSON, now: str) -> None:
        super().create(obj, now)
        pod_strategy.drop_disabled(obj["spec"]["template"]["spec"])

    def update(self, obj: JSON, old: JSON) -> None:
        pod_strategy.drop_disabled(obj["spec"]["template"]["spec"])
        super().update(obj, old)

    def check_update(self, obj: JSON, old: JSON) -> list[Problem]:
        return templates.selector_change(obj["spec"], old["spec"])

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        told: list[str] = []
        if old is not None and obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return told
        if old is None and self.named_pods:
            told += templates.name_warnings(obj["metadata"].get("name", ""))
        told += templates.template_warnings(obj["spec"]["template"], "spec.template.")
        return told


class DeploymentKind(_Workload):
    struct = "apps.v1.Deployment"

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

    def spec_of(self, obj: JSON) -> Any:
        return obj.get("spec"), obj["metadata"].get("annotations")

    def update_status(self, obj: JSON, old: JSON) -> None:
        super().update_status(obj, old)
        take(obj["metadata"], old["metadata"], "labels")

    def check(self, obj: JSON) -> list[Problem]:
        spec = obj["spec"]
        found = negative("spec.replicas", spec["replicas"])
        found += _replicated(spec, "ReplicaSet")
        found += _deployment_strategy(spec["strategy"], "spec.strategy")
        ready = spec.get("minReadySeconds", 0)
        found += negative("spec.minReadySeconds", ready)
        found += negative("spec.revisionHistoryLimit", spec["revisionHistoryLimit"])
        deadline = spec["progressDeadlineSeconds"]
        found += negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= ready:
            told = "must be greater than minReadySeconds"
            found.append(invalid("spec.progressDeadlineSeconds", deadline, told))
        return found

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        status = obj["status"]
        found = _not_negative(
            status,
            "observedGeneration replicas updatedReplicas readyReplicas availableReplicas unavailableReplicas collisionCount",
        )
        found += _within(status, ("updatedReplicas", "readyReplicas", "availableReplicas"))
        return found + _available_are_ready(status, "readyReplicas") + _collisions(status, old["status"])


def _replicated(spec: JSON, shown: str) -> list[Problem]:
    selector, template = spec.get("selector"), spec["template"]
    found = templates.selector_problems(selector, "deployment")  # of replica sets too
    if selector is None or not selectors.selector(selector, ""):
        labels = template["metadata"].get("labels", {})
        if selector is None or not selectors.matches(selector, labels):
            found.append(templates.unmatched(template))
        found += templates.template(template, "spec.template")
        found += templates.lasting(spec, shown)
    else:
        told = "invalid label selector"
        found.append(invalid("spec.selector", selector, told))
    return found


def _deployment_strategy(strategy: JSON, path: str) -> list[Problem]:
    match strategy["type"]:
        case "Recreate":
            if "rollingUpdate" not in strategy:
                return []
            told = "may not be specified when strategy `type` is 'Recreate'"
            return [forbidden(f"{path}.rollingUpdate", told)]
        case "RollingUpdate":
            return _rolling(strategy["rollingUpdate"], f"{path}.rollingUpdate")
        case _:
            return [
                unsupported(
                    path, _shown_strategy(strategy, "MaxUnavailable MaxSurge"), ("Recreate", "RollingUpdate")
                )
            ]


def _shown_strategy(strategy: JSON, rolling: str) -> Any:
    return gostruct.internal(strategy, f"Type RollingUpdate({rolling})")


def _rolling(rolling: JSON, path: str) -> list[Problem]:
    gone, extra = rolling["maxUnavailable"], rolling["maxSurge"]
    found = templates.count_or_percent(gone, f"{path}.maxUnavailable")
    found += templates.count_or_percent(extra, f"{path}.maxSurge")
    if templates.amount(gone) == 0 and templates.amount(extra) == 0:
        told = "may not be 0 when `maxSurge` is 0"
        found.append(invalid(f"{path}.maxUnavailable", gone, told))
    return found + templates.at_most_all(gone, f"{path}.maxUnavailable")


class ReplicaSetKind(_Workload):
    struct = "apps.v1.ReplicaSet"

    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        obj["spec"].setdefault("replicas", 1)

    def check(self, obj: JSON) -> list[Problem]:
        spec = obj["spec"]
        found = negative("spec.replicas", spec["replicas"])
        found += negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
        return found + _replicated(spec, "ReplicaSet")

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        status = obj["status"]
        names = "replicas fullyLabeledReplicas readyReplicas availableReplicas observedGeneration"
        found = _not_negative(status, names)
        found += _within(status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"))
        return found + _available_are_ready(status, "readyReplicas")


class StatefulSetKind(_Workload):
    struct = "apps.v1.StatefulSet"
    named_pods = False

    def name_check(self, name: str) -> tuple[str, ...]:
        return formats.dns_label(name)

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

    def create(self, obj: JSON, now: str) -> None:
        super().create(obj, now)
        obj["spec"]["updateStrategy"].get("rollingUpdate", {}).pop("maxUnavailable", None)

    def validate(self, obj: JSON) -> list[Problem]:
        return [*self.validate_metadata(obj), *self._spec(obj["spec"], new=True)]

    def check(self, obj: JSON) -> list[Problem]:
        return self._spec(obj["spec"], new=False)

    def _spec(self, spec: JSON, *, new: bool) -> list[Problem]:
        found = _stateful_options(spec, new=new)
        selector = spec.get("selector")
        found += templates.selector_problems(selector, "statefulset")
        if selectors.selector(selector, ""):
            found.append(invalid("spec.selector", gostruct.ordered(selector, gostruct.SELECTOR), ""))
        else:
            found += _stateful_template(spec, selector)
        return found + templates.lasting(spec, "StatefulSet")

    def check_update(self, obj: JSON, old: JSON) -> list[Problem]:
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
        told = (
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
            "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
        return [forbidden("spec", told)]

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        status = obj["status"]
        found = _not_negative(
            status,
            "replicas readyReplicas currentReplicas updatedReplicas availableReplicas observedGeneration collisionCount",
        )
        found += _within(status, ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"))
        return (
            found + _available_are_ready(status, "status.readyReplicas") + _collisions(status, old["status"])
        )


def _stateful_template(spec: JSON, selector: JSON | None) -> list[Problem]:
    meta = spec["template"]["metadata"]
    found: list[Problem] = []
    if selector is None or not selectors.matches(selector, meta.get("labels", {})):
        found.append(templates.unmatched(spec["template"]))
    found += templates.template(_with_claims(spec), "spec.template")
    # The real server looks at these once more.
    found += metadata.labels(meta.get("labels", {}), "spec.template.labels")
    return found + metadata.annotations(meta.get("annotations", {}), "spec.template.annotations")


def _with_claims(spec: JSON) -> JSON:
    """The template as its pods will be: with a volume per claim."""
    listed = spec.get("volumeClaimTemplates", ())
    template: JSON = spec["template"]
    if not listed and not template["spec"].keys() & {"hostname", "subdomain"}:
        return template
    names = [claim["metadata"].get("name", "") for claim in listed]
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    rest = [volume for volume in template["spec"].get("volumes", ()) if volume.get("name") not in names]
    inner = {name: value for name, value in template["spec"].items() if name not in {"hostname", "subdomain"}}
    return {**template, "spec": {**inner, "volumes": [*claimed, *rest]}}


def _stateful_options(spec: JSON, *, new: bool) -> list[Problem]:
    found: list[Problem] = []
    policy = spec["podManagementPolicy"]
    if policy not in {"OrderedReady", "Parallel"}:
        found.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    found += _stateful_strategy(spec["updateStrategy"], "spec.updateStrategy")
    for name in ("whenDeleted", "whenScaled"):
        value = spec["persistentVolumeClaimRetentionPolicy"][name]
        if value not in {"Retain", "Delete"}:
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            found.append(unsupported(path, value, ("Retain", "Delete")))
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ()) if new else ()):
        found += claims.claim_spec(claim["spec"], f"spec.volumeClaimTemplates[{index}].spec")
    found += negative("spec.replicas", spec["replicas"])
    found += negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
    found += negative("spec.ordinals.start", spec.get("ordinals", {}).get("start", 0))
    name = spec.get("serviceName", "")
    if new and name:
        found += each("spec.serviceName", name, formats.dns_label(name))
    return found


def _stateful_strategy(strategy: JSON, path: str) -> list[Problem]:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate")
    if kind == "OnDelete":
        told = "only allowed for updateStrategy 'RollingUpdate'"
        if rolling is None:
            return []
        shown = gostruct.internal({"partition": 0, **rolling}, "Partition MaxUnavailable")
        return [invalid(f"{path}.rollingUpdate", shown, told)]
    if kind == "RollingUpdate":
        return negative(f"{path}.rollingUpdate.partition", (rolling or {}).get("partition", 0))
    return [
        invalid(
            path,
            _shown_strategy(strategy, "Partition MaxUnavailable"),
            "must be 'RollingUpdate' or 'OnDelete'",
        )
    ]


class DaemonSetKind(_Workload):
    struct = "apps.v1.DaemonSet"
    named_pods = False

    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        # Whoever writes the object owns this; the number comes later.
        obj["metadata"].setdefault("annotations", {}).setdefault(_TEMPLATE_GENERATION, "0")
        spec = obj["spec"]
        strategy = spec["updateStrategy"]
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def create(self, obj: JSON, now: str) -> None:
        super().create(obj, now)
        _generation_of_template(obj["metadata"], 1)

    def update(self, obj: JSON, old: JSON) -> None:
        super().update(obj, old)
        before = int(old["metadata"].get("annotations", {}).get(_TEMPLATE_GENERATION, "1"))
        changed = obj["spec"]["template"] != old["spec"]["template"]
        _generation_of_template(obj["metadata"], before + changed)

    def check(self, obj: JSON) -> list[Problem]:
        spec = obj["spec"]
        selector = spec.get("selector")
        found = selectors.selector(selector, "spec.selector")
        labels = spec["template"]["metadata"].get("labels", {})
        if not found and (selector is None or not selectors.matches(selector, labels)):
            found.append(templates.unmatched(spec["template"]))
        if selector is not None and not selector:
            found.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
        found += templates.template(spec["template"], "spec.template")
        found += templates.lasting(spec, "DaemonSet")
        found += negative("spec.minReadySeconds", spec.get("minReadySeconds", 0))
        found += _daemon_strategy(spec["updateStrategy"], "spec.updateStrategy")
        return found + negative("spec.revisionHistoryLimit", spec["revisionHistoryLimit"])

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        names = (
            "currentNumberScheduled numberMisscheduled desiredNumberScheduled numberReady observedGeneration "
            "updatedNumberScheduled numberAvailable numberUnavailable collisionCount"
        )
        return _not_negative(obj["status"], names) + _collisions(obj["status"], old["status"])


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _generation_of_template(meta: JSON, generation: int) -> None:
    # A field of an older version of the kind, which lives on as an annotation.
    meta.setdefault("annotations", {})[_TEMPLATE_GENERATION] = str(generation)


def _daemon_strategy(strategy: JSON, path: str) -> list[Problem]:
    if strategy["type"] == "OnDelete":
        return []
    if strategy["type"] != "RollingUpdate":
        return [
            unsupported(
                path, _shown_strategy(strategy, "MaxUnavailable MaxSurge"), ("RollingUpdate", "OnDelete")
            )
        ]
    gone, extra = strategy["rollingUpdate"]["maxUnavailable"], strategy["rollingUpdate"]["maxSurge"]
    here = f"{path}.rollingUpdate"
    found = templates.count_or_percent(gone, f"{here}.maxUnavailable")
    found += templates.count_or_percent(extra, f"{here}.maxSurge")
    found += templates.at_most_all(gone, f"{here}.maxUnavailable")
    found += templates.at_most_all(extra, f"{here}.maxSurge")
    if templates.amount(gone) and templates.amount(extra):
        told = "may not be set when maxUnavailable is non-zero"
        found.append(invalid(f"{here}.maxSurge", extra, told))
    if not templates.amount(gone) and not templates.amount(extra):
        found.append(required(f"{here}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return found


def _not_negative(status: JSON, names: str) -> list[Problem]:
    found: list[Problem] = []
    for name in names.split():
        found += negative(f"status.{name}", status.get(name, 0))
    return found


def _within(status: JSON, names: tuple[str, ...]) -> list[Problem]:
    most = status.get("replicas", 0)
    return [
        invalid(f"status.{name}", status.get(name, 0), _MORE_THAN_ALL)
        for name in names
        if status.get(name, 0) > most
    ]


def _available_are_ready(status: JSON, shown: str) -> list[Problem]:
    available = status.get("availableReplicas", 0)
    if available <= status.get("readyReplicas", 0):
        return []
    return [invalid("status.availableReplicas", available, f"cannot be greater than {shown}")]


def _collisions(status: JSON, old: JSON) -> list[Problem]:
    count = status.get("collisionCount", 0)
    if "collisionCount" not in old or count >= old["collisionCount"]:
        return []
    return [invalid("status.collisionCount", count, "cannot be decremented")]


class PodTemplateKind(Kind):
    struct = "core.v1.PodTemplate"

    def set_defaults(self, obj: JSON) -> None:
        defaults.set_spec_defaults(obj["template"]["spec"])

    def check(self, obj: JSON) -> list[Problem]:
        return templates.template(obj["template"], "template")

"""What one DELETE does to one object: marks it, shortens its grace, or removes it. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import untyped_error
from gangline.apiserver.http.query import query_integer
from gangline.apiserver.http.routes import query_flag
from gangline.apiserver.registry.catalog import ServedKind, is_core_resource, orphans_by_default, returns_deleted_object
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import type_errors

FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
CRD_CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
INSTANCE_DELETION_PENDING = (
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
INSTANCE_DELETION_IN_PROGRESS = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")
PODS_PRESERVED_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)


class DeletionOptions(msgspec.Struct, frozen=True):
    """How to delete: for whom the request is meant, how soon, and what becomes of dependents."""

    uid: str = ""
    resource_version: str = ""
    grace_seconds: int | None = None
    propagation_policy: str = ""
    orphan_dependents: bool | None = None
    dry_run: bool = False

    @property
    def has_propagation_policy(self) -> bool:
        return bool(self.propagation_policy) or self.orphan_dependents is not None


class Deletion(msgspec.Struct, frozen=True):
    """The object with its deletion noted (None: nothing to note), and whether it goes now."""

    marked_object: JSON | None
    removes_now: bool
    returns_object: bool
    warnings: tuple[str, ...] = ()


class _DeleteOptionsKind(msgspec.Struct, frozen=True):
    group: str = "meta.k8s.io"
    kind: str = "DeleteOptions"
    plural: str = "deleteoptions"


def deletion_options(body: JSON | None, query: Mapping[str, str]) -> DeletionOptions:
    """From the body, or, only if there is none, from the query. Raises `Refused`."""
    raw: JSON = _options_from_body(body) if body else _options_from_query(query)
    problems = _option_problems(raw)
    if problems:
        raise apierrors.invalid(_DeleteOptionsKind(), "", problems)
    wanted = raw.get("preconditions") or {}
    return DeletionOptions(
        uid=wanted.get("uid") or "",
        resource_version=wanted.get("resourceVersion") or "",
        grace_seconds=raw.get("gracePeriodSeconds"),
        propagation_policy=raw.get("propagationPolicy") or "",
        orphan_dependents=raw.get("orphanDependents"),
        dry_run=bool(raw.get("dryRun")),
    )


def _options_from_body(body: JSON) -> JSON:
    kind, version = body.get("kind") or "DeleteOptions", body.get("apiVersion") or "meta.k8s.io/v1"
    if kind != "DeleteOptions":
        told = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'
        raise untyped_error(told)
    if wrong := type_errors(body, builtin_type("v1", "DeleteOptions")):
        raise untyped_error(wrong[0])
    return body


def _options_from_query(query: Mapping[str, str]) -> JSON:
    raw: JSON = {}
    grace = query_integer(query, "gracePeriodSeconds")
    if grace is not None:
        raw["gracePeriodSeconds"] = grace
    if "propagationPolicy" in query:
        raw["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        raw["orphanDependents"] = query_flag(query, "orphanDependents")
    if "dryRun" in query:
        raw["dryRun"] = [query["dryRun"]]
    return raw


def _option_problems(raw: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    policy, orphan, dry = raw.get("propagationPolicy"), raw.get("orphanDependents"), raw.get("dryRun")
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(FieldProblem(ProblemKind.INVALID, "propagationPolicy", policy, detail))
    elif policy is not None and policy not in PROPAGATION_POLICIES:
        detail = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        problems.append(FieldProblem(ProblemKind.NOT_SUPPORTED, "propagationPolicy", policy, detail))
    if dry and dry != ["All"]:
        problems.append(FieldProblem(ProblemKind.NOT_SUPPORTED, "dryRun", dry, 'supported values: "All"'))
    return problems


def deletion(entry: ServedKind, old: JSON, options: DeletionOptions, now: datetime) -> Deletion:
    """Decide. A second DELETE may shorten the grace and change nothing else."""
    metadata = dict(old["metadata"])
    finalizers = _deletion_finalizers(entry, metadata, options)
    definition = entry.plural == "customresourcedefinitions"
    if definition and "deletionTimestamp" not in metadata:
        finalizers = [*finalizers, CRD_CLEANUP_FINALIZER]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace_seconds(entry, old, options)
    namespace = is_core_resource(entry, "namespaces")
    waits = bool(finalizers) or grace > 0 or (namespace and bool(old.get("spec", {}).get("finalizers")))
    # A pod shows its end to those who watch, even when it ends at once.
    if not waits and not is_core_resource(entry, "pods"):
        return Deletion(None, removes_now=True, returns_object=returns_deleted_object(entry))
    if "deletionTimestamp" in metadata:
        _shorten_grace(metadata, grace, now)
    else:
        metadata["deletionTimestamp"] = _rfc3339(now + timedelta(seconds=grace))
        if not namespace and not definition:
            metadata["deletionGracePeriodSeconds"] = grace
        if entry.strategy.has_generation and not definition:
            metadata["generation"] = metadata.get("generation", 0) + 1
    marked = {**old, "metadata": metadata}
    if namespace:
        marked["status"] = {**old.get("status", {}), "phase": "Terminating"}
    if definition and "deletionTimestamp" not in old["metadata"]:
        marked["status"] = crd_terminating_status(old, INSTANCE_DELETION_PENDING, _rfc3339(now))
    surprising = not options.has_propagation_policy and (entry.group, entry.plural) == ("batch", "jobs")
    warnings = (PODS_PRESERVED_WARNING,) if surprising else ()
    return Deletion(
        marked,
        removes_now=not waits,
        returns_object=returns_deleted_object(entry) or waits,
        warnings=warnings,
    )


def crd_terminating_status(crd: JSON, told: tuple[str, str], now: str) -> JSON:
    """The status of a CRD that is being deleted."""
    status: JSON = dict(crd.get("status") or {})
    before = status.get("conditions") or []
    since = next((found["lastTransitionTime"] for found in before if found["type"] == "Terminating"), now)
    reason, message = told
    condition = {"type": "Terminating", "status": "True", "lastTransitionTime": since, "reason": reason}
    kept = [found for found in before if found["type"] != "Terminating"]
    return {**status, "conditions": [*kept, {**condition, "message": message}]}


def is_deletion_complete(obj: JSON) -> bool:
    """Whether an object whose deletion began has nothing more to wait for."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if obj["kind"] == "Namespace" and obj["apiVersion"] == "v1":
        return not obj.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _grace_seconds(entry: ServedKind, old: JSON, options: DeletionOptions) -> int:
    if not is_core_resource(entry, "pods"):
        return 0
    phase = old.get("status", {}).get("phase")
    if not old["spec"].get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    wanted = (
        options.grace_seconds
        if options.grace_seconds is not None
        else old["spec"].get("terminationGracePeriodSeconds", 30)
    )
    current = old["metadata"].get("deletionGracePeriodSeconds")
    if current is not None and options.grace_seconds is None:
        return int(current)
    # It can be shortened, never lengthened.
    return max(0, int(wanted) if current is None else min(int(wanted), int(current)))


def _shorten_grace(metadata: JSON, grace: int, now: datetime) -> None:
    current = metadata.get("deletionGracePeriodSeconds")
    if current is not None and grace < current:
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["deletionTimestamp"] = _rfc3339(now + timedelta(seconds=grace))


def _deletion_finalizers(entry: ServedKind, metadata: JSON, options: DeletionOptions) -> list[str]:
    """The object's finalizers, with the one that the propagation policy asks of the garbage collector."""
    kept = [name for name in metadata.get("finalizers") or [] if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    had = [name for name in metadata.get("finalizers") or [] if name in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    if options.propagation_policy == "Foreground":
        return [*kept, FOREGROUND_FINALIZER]
    if options.propagation_policy == "Orphan" or options.orphan_dependents is True:
        return [*kept, ORPHAN_FINALIZER]
    if options.propagation_policy == "Background" or options.orphan_dependents is False:
        return kept
    if had or not orphans_by_default(entry):
        return [*kept, *had]
    return [*kept, ORPHAN_FINALIZER]


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

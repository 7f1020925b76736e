"""What one DELETE does to one object: marks it, shortens its grace, or removes it. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import refusals
from gangline.apiserver.errors import internal
from gangline.apiserver.http.query import whole_number
from gangline.apiserver.http.routes import said_yes
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.traits import is_core, orphans, shown_when_deleted
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.typed.openapi import types_of
from gangline.schema.typed.strict_decoding import type_errors

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
PENDING = (
    "InstanceDeletionPending",
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
)
IN_PROGRESS = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
POLICIES = ("Foreground", "Background", "Orphan")
PRESERVED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them "
    "or set propagationPolicy=Orphan to suppress this warning"
)


class DeleteOptions(msgspec.Struct, frozen=True):
    """How to delete: for whom the request is meant, how soon, and what becomes of dependents."""

    uid: str = ""
    resource_version: str = ""
    grace: int | None = None
    propagation: str = ""
    orphan: bool | None = None
    dry_run: bool = False

    @property
    def says_what_of_dependents(self) -> bool:
        return bool(self.propagation) or self.orphan is not None


class Deletion(msgspec.Struct, frozen=True):
    """The object with its deletion noted (None: nothing to note), and whether it goes now."""

    marked: JSON | None
    gone: bool
    shows_object: bool
    warnings: tuple[str, ...] = ()


class _Named(msgspec.Struct, frozen=True):
    group: str = "meta.k8s.io"
    kind: str = "DeleteOptions"
    plural: str = "deleteoptions"


def delete_options(body: JSON | None, query: Mapping[str, str]) -> DeleteOptions:
    """From the body, or, only if there is none, from the query. Raises `Refused`."""
    raw: JSON = _from_body(body) if body else _from_query(query)
    problems = _problems(raw)
    if problems:
        raise refusals.invalid(_Named(), "", problems)
    wanted = raw.get("preconditions") or {}
    return DeleteOptions(
        uid=wanted.get("uid") or "",
        resource_version=wanted.get("resourceVersion") or "",
        grace=raw.get("gracePeriodSeconds"),
        propagation=raw.get("propagationPolicy") or "",
        orphan=raw.get("orphanDependents"),
        dry_run=bool(raw.get("dryRun")),
    )


def _from_body(body: JSON) -> JSON:
    kind, version = body.get("kind") or "DeleteOptions", body.get("apiVersion") or "meta.k8s.io/v1"
    if kind != "DeleteOptions":
        told = f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'
        raise internal(told)
    if wrong := type_errors(body, types_of("v1", "DeleteOptions")):
        raise internal(wrong[0])
    return body


def _from_query(query: Mapping[str, str]) -> JSON:
    raw: JSON = {}
    grace = whole_number(query, "gracePeriodSeconds")
    if grace is not None:
        raw["gracePeriodSeconds"] = grace
    if "propagationPolicy" in query:
        raw["propagationPolicy"] = query["propagationPolicy"]
    if "orphanDependents" in query:
        raw["orphanDependents"] = said_yes(query, "orphanDependents")
    if "dryRun" in query:
        raw["dryRun"] = [query["dryRun"]]
    return raw


def _problems(raw: JSON) -> list[Problem]:
    problems: list[Problem] = []
    policy, orphan, dry = raw.get("propagationPolicy"), raw.get("orphanDependents"), raw.get("dryRun")
    if policy is not None and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(Problem(ProblemKind.INVALID, "propagationPolicy", policy, detail))
    elif policy is not None and policy not in POLICIES:
        detail = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        problems.append(Problem(ProblemKind.NOT_SUPPORTED, "propagationPolicy", policy, detail))
    if dry and dry != ["All"]:
        problems.append(Problem(ProblemKind.NOT_SUPPORTED, "dryRun", dry, 'supported values: "All"'))
    return problems


def deletion(entry: Entry, old: JSON, options: DeleteOptions, now: datetime) -> Deletion:
    """Decide. A second DELETE may shorten the grace and change nothing else."""
    metadata = dict(old["metadata"])
    finalizers = _finalizers(entry, metadata, options)
    definition = entry.plural == "customresourcedefinitions"
    if definition and "deletionTimestamp" not in metadata:
        finalizers = [*finalizers, CLEANUP]
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace(entry, old, options)
    namespace = is_core(entry, "namespaces")
    waits = bool(finalizers) or grace > 0 or (namespace and bool(old.get("spec", {}).get("finalizers")))
    # A pod shows its end to those who watch, even when it ends at once.
    if not waits and not is_core(entry, "pods"):
        return Deletion(None, gone=True, shows_object=shown_when_deleted(entry))
    if "deletionTimestamp" in metadata:
        _hasten(metadata, grace, now)
    else:
        metadata["deletionTimestamp"] = _stamp(now + timedelta(seconds=grace))
        if not namespace and not definition:
            metadata["deletionGracePeriodSeconds"] = grace
        if entry.rules.generation and not definition:
            metadata["generation"] = metadata.get("generation", 0) + 1
    marked = {**old, "metadata": metadata}
    if namespace:
        marked["status"] = {**old.get("status", {}), "phase": "Terminating"}
    if definition and "deletionTimestamp" not in old["metadata"]:
        marked["status"] = terminating(old, PENDING, _stamp(now))
    surprising = not options.says_what_of_dependents and (entry.group, entry.plural) == ("batch", "jobs")
    warnings = (PRESERVED,) if surprising else ()
    return Deletion(
        marked, gone=not waits, shows_object=shown_when_deleted(entry) or waits, warnings=warnings
    )


def terminating(crd: JSON, told: tuple[str, str], now: str) -> JSON:
    """The status of a CRD that is being deleted."""
    status: JSON = dict(crd.get("status") or {})
    before = status.get("conditions") or []
    since = next((found["lastTransitionTime"] for found in before if found["type"] == "Terminating"), now)
    reason, message = told
    condition = {"type": "Terminating", "status": "True", "lastTransitionTime": since, "reason": reason}
    kept = [found for found in before if found["type"] != "Terminating"]
    return {**status, "conditions": [*kept, {**condition, "message": message}]}


def finished(obj: JSON) -> bool:
    """Whether an object whose deletion began has nothing more to wait for."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if obj["kind"] == "Namespace" and obj["apiVersion"] == "v1":
        return not obj.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _grace(entry: Entry, old: JSON, options: DeleteOptions) -> int:
    if not is_core(entry, "pods"):
        return 0
    phase = old.get("status", {}).get("phase")
    if not old["spec"].get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    wanted = (
        options.grace if options.grace is not None else old["spec"].get("terminationGracePeriodSeconds", 30)
    )
    current = old["metadata"].get("deletionGracePeriodSeconds")
    if current is not None and options.grace is None:
        return int(current)
    # It can be shortened, never lengthened.
    return max(0, int(wanted) if current is None else min(int(wanted), int(current)))


def _hasten(metadata: JSON, grace: int, now: datetime) -> None:
    current = metadata.get("deletionGracePeriodSeconds")
    if current is not None and grace < current:
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["deletionTimestamp"] = _stamp(now + timedelta(seconds=grace))


def _finalizers(entry: Entry, metadata: JSON, options: DeleteOptions) -> list[str]:
    """The object's finalizers, with the one that the propagation policy asks of the garbage collector."""
    kept = [name for name in metadata.get("finalizers") or [] if name not in (FOREGROUND, ORPHAN)]
    had = [name for name in metadata.get("finalizers") or [] if name in (FOREGROUND, ORPHAN)]
    if options.propagation == "Foreground":
        return [*kept, FOREGROUND]
    if options.propagation == "Orphan" or options.orphan is True:
        return [*kept, ORPHAN]
    if options.propagation == "Background" or options.orphan is False:
        return kept
    if had or not orphans(entry):
        return [*kept, *had]
    return [*kept, ORPHAN]


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

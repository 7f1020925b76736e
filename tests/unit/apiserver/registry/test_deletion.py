"""The decisions of one DELETE, without a store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import (
    DeletionOptions,
    deletion,
    is_deletion_complete,
)
from gangline.apiserver.registry.served_kinds import builtin_catalog

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CATALOG = builtin_catalog()


def entry(plural: str, group: str = "") -> ServedKind:
    found = CATALOG.storage_kind(group, plural)
    assert found is not None
    return found


def thing(plural: str = "configmaps", group: str = "", **metadata: Any) -> JSON:
    of = entry(plural, group)
    return {
        "kind": of.resource.kind,
        "apiVersion": of.resource.api_version,
        "metadata": {"name": "x", "uid": "u", **metadata},
    }


def bound_pod(**metadata: Any) -> JSON:
    return {
        **thing("pods", generation=1, **metadata),
        "spec": {"nodeName": "one"},
        "status": {"phase": "Running"},
    }


def test_object_without_finalizers_is_removed_at_once() -> None:
    step = deletion(entry("configmaps"), thing(), DeletionOptions(), NOW)
    assert (step.removes_now, step.marked_object, step.returns_object) == (True, None, False)


def test_finalizer_delays_the_removal() -> None:
    step = deletion(entry("configmaps"), thing(finalizers=["example.com/x"]), DeletionOptions(), NOW)
    assert step.marked_object is not None
    assert not step.removes_now
    assert step.returns_object
    assert step.marked_object["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        (DeletionOptions(propagation_policy="Foreground"), ["foregroundDeletion"]),
        (DeletionOptions(propagation_policy="Orphan"), ["orphan"]),
        (DeletionOptions(orphan_dependents=True), ["orphan"]),
    ],
)
def test_policy_becomes_a_finalizer_for_the_garbage_collector(options: DeletionOptions, finalizers: list[str]) -> None:
    step = deletion(entry("configmaps"), thing(), options, NOW)
    assert step.marked_object is not None
    assert step.marked_object["metadata"]["finalizers"] == finalizers


def test_running_pod_gets_its_grace_period_and_the_first_delete_increments_generation() -> None:
    first = deletion(entry("pods"), bound_pod(), DeletionOptions(), NOW)
    assert first.marked_object is not None
    metadata = first.marked_object["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (30, 2)
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    second = deletion(entry("pods"), first.marked_object, DeletionOptions(grace_seconds=5), NOW + timedelta(seconds=1))
    assert second.marked_object is not None
    metadata = second.marked_object["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (5, 2)
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:06Z"


def test_grace_period_is_never_lengthened() -> None:
    marked = bound_pod(deletionTimestamp="2026-01-01T00:00:05Z", deletionGracePeriodSeconds=5)
    step = deletion(entry("pods"), marked, DeletionOptions(grace_seconds=60), NOW)
    assert step.marked_object == marked


@pytest.mark.parametrize("status", [{"phase": "Succeeded"}, {"phase": "Failed"}])
def test_ended_pod_is_marked_and_removed_at_once(status: JSON) -> None:
    step = deletion(entry("pods"), {**bound_pod(), "status": status}, DeletionOptions(), NOW)
    assert step.removes_now
    assert step.marked_object is not None
    assert step.marked_object["metadata"]["deletionGracePeriodSeconds"] == 0


def test_pods_of_a_job_are_orphaned_by_default_with_a_warning() -> None:
    step = deletion(entry("jobs", "batch"), thing("jobs", "batch", generation=1), DeletionOptions(), NOW)
    assert step.marked_object is not None
    assert step.marked_object["metadata"]["finalizers"] == ["orphan"]
    assert step.warnings[0].startswith("child pods are preserved by default")
    said = DeletionOptions(propagation_policy="Background")
    quiet = deletion(entry("jobs", "batch"), thing("jobs", "batch"), said, NOW)
    assert (quiet.removes_now, quiet.warnings) == (True, ())


def test_namespace_waits_for_its_own_finalizers() -> None:
    space = {**thing("namespaces"), "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    step = deletion(entry("namespaces"), space, DeletionOptions(), NOW)
    assert step.marked_object is not None
    assert step.marked_object["status"]["phase"] == "Terminating"
    assert not is_deletion_complete(step.marked_object)
    assert is_deletion_complete({**step.marked_object, "spec": {}})

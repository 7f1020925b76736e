"""What one DELETE does, decided without a store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.errors import Refused
from gangline.apiserver.registry.builtin import builtin_catalog
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.deletion import DeleteOptions, delete_options, deletion, finished

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CATALOG = builtin_catalog()


def entry(plural: str, group: str = "") -> Entry:
    found = CATALOG.stored(group, plural)
    assert found is not None
    return found


def thing(plural: str = "configmaps", group: str = "", **metadata: Any) -> JSON:
    of = entry(plural, group)
    return {"kind": of.kind, "apiVersion": of.api_version, "metadata": {"name": "x", "uid": "u", **metadata}}


def bound_pod(**metadata: Any) -> JSON:
    return {
        **thing("pods", generation=1, **metadata),
        "spec": {"nodeName": "one"},
        "status": {"phase": "Running"},
    }


def test_plain_object_goes_at_once() -> None:
    step = deletion(entry("configmaps"), thing(), DeleteOptions(), NOW)
    assert (step.gone, step.marked, step.shows_object) == (True, None, False)


def test_finalizer_holds_an_object() -> None:
    step = deletion(entry("configmaps"), thing(finalizers=["example.com/x"]), DeleteOptions(), NOW)
    assert step.marked is not None
    assert not step.gone
    assert step.shows_object
    assert step.marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        (DeleteOptions(propagation="Foreground"), ["foregroundDeletion"]),
        (DeleteOptions(propagation="Orphan"), ["orphan"]),
        (DeleteOptions(orphan=True), ["orphan"]),
    ],
)
def test_policy_becomes_a_finalizer_for_the_garbage_collector(
    options: DeleteOptions, finalizers: list[str]
) -> None:
    step = deletion(entry("configmaps"), thing(), options, NOW)
    assert step.marked is not None
    assert step.marked["metadata"]["finalizers"] == finalizers


def test_running_pod_has_its_grace_and_only_the_first_delete_counts_up() -> None:
    first = deletion(entry("pods"), bound_pod(), DeleteOptions(), NOW)
    assert first.marked is not None
    metadata = first.marked["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (30, 2)
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    second = deletion(entry("pods"), first.marked, DeleteOptions(grace=5), NOW + timedelta(seconds=1))
    assert second.marked is not None
    metadata = second.marked["metadata"]
    assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (5, 2)
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:06Z"


def test_grace_is_never_lengthened() -> None:
    marked = bound_pod(deletionTimestamp="2026-01-01T00:00:05Z", deletionGracePeriodSeconds=5)
    step = deletion(entry("pods"), marked, DeleteOptions(grace=60), NOW)
    assert step.marked == marked


@pytest.mark.parametrize("status", [{"phase": "Succeeded"}, {"phase": "Failed"}])
def test_pod_that_has_ended_goes_at_once_but_shows_it(status: JSON) -> None:
    step = deletion(entry("pods"), {**bound_pod(), "status": status}, DeleteOptions(), NOW)
    assert step.gone
    assert step.marked is not None
    assert step.marked["metadata"]["deletionGracePeriodSeconds"] == 0


def test_pods_of_a_job_are_kept_by_default_and_that_is_told() -> None:
    step = deletion(entry("jobs", "batch"), thing("jobs", "batch", generation=1), DeleteOptions(), NOW)
    assert step.marked is not None
    assert step.marked["metadata"]["finalizers"] == ["orphan"]
    assert step.warnings[0].startswith("child pods are preserved by default")
    said = DeleteOptions(propagation="Background")
    quiet = deletion(entry("jobs", "batch"), thing("jobs", "batch"), said, NOW)
    assert (quiet.gone, quiet.warnings) == (True, ())


def test_namespace_waits_for_its_own_finalizers() -> None:
    space = {**thing("namespaces"), "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    step = deletion(entry("namespaces"), space, DeleteOptions(), NOW)
    assert step.marked is not None
    assert step.marked["status"]["phase"] == "Terminating"
    assert not finished(step.marked)
    assert finished({**step.marked, "spec": {}})


def test_body_replaces_the_query() -> None:
    query = {"gracePeriodSeconds": "9", "propagationPolicy": "Orphan"}
    assert delete_options(None, query) == DeleteOptions(grace=9, propagation="Orphan")
    assert delete_options({"gracePeriodSeconds": 1}, query) == DeleteOptions(grace=1)


@pytest.mark.parametrize(
    ("body", "query", "code", "message"),
    [
        (None, {"gracePeriodSeconds": "x"}, 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        (None, {"propagationPolicy": "Foo"}, 422, "propagationPolicy: Unsupported value"),
        (None, {"propagationPolicy": "Orphan", "orphanDependents": "true"}, 422, "cannot be both set"),
        (None, {"dryRun": "Some"}, 422, 'dryRun: Unsupported value: ["Some"]'),
        ({"kind": "Foo"}, {}, 500, 'no kind "Foo" is registered for version "meta.k8s.io/v1"'),
        ({"gracePeriodSeconds": "x"}, {}, 500, "DeleteOptions.gracePeriodSeconds of type int64"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    body: JSON | None, query: dict[str, str], code: int, message: str
) -> None:
    with pytest.raises(Refused) as caught:
        delete_options(body, query)
    assert caught.value.code == code
    assert message in caught.value.message

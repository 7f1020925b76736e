"""What an installation records of itself."""

import pytest

from gangline.base.errors import InputError
from gangline.cli.install.record import (
    InstallationRecord,
    ObjectRef,
    merged_objects,
    object_ref,
    read_record,
    record_body,
    stale_objects,
    version_problem,
)
from gangline.cli.install.uninstall import leases
from gangline.operator.settings import KUBEFLOW_LEASE

ROLE = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRole", "", "gangline-operator")
BUDGET = ObjectRef("policy/v1", "PodDisruptionBudget", "gangline", "gangline-operator")
DEPLOYMENT = ObjectRef("apps/v1", "Deployment", "gangline", "gangline-operator")
CRD = ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "tfjobs.kubeflow.org")
NAMESPACE = ObjectRef("v1", "Namespace", "", "gangline")


def record(*objects: ObjectRef) -> InstallationRecord:
    return InstallationRecord("0.1.0", {"scheduler": {"enabled": True}}, objects)


def test_a_record_is_read_as_it_was_written() -> None:
    written = record(ROLE, DEPLOYMENT)
    body = record_body(written, "gangline")
    assert read_record(body) == written
    assert object_ref(body).display_name == "configmap/gangline-installation"


def test_a_damaged_record_says_what_to_do() -> None:
    body = record_body(record(), "team")
    body["data"]["objects"] = "{"
    with pytest.raises(InputError, match="kubectl -n team delete configmap gangline-installation"):
        read_record(body)


def test_what_is_no_longer_part_of_it_is_stale_and_the_last_comes_first() -> None:
    assert stale_objects(record(ROLE, BUDGET, DEPLOYMENT), [DEPLOYMENT]) == (BUDGET, ROLE)
    assert stale_objects(None, [DEPLOYMENT]) == ()


def test_definitions_and_namespaces_are_never_stale() -> None:
    assert stale_objects(record(CRD, NAMESPACE), []) == ()


def test_another_version_of_a_group_is_the_same_object() -> None:
    older = ObjectRef("policy/v1beta1", BUDGET.kind, BUDGET.namespace, BUDGET.name)
    assert stale_objects(record(older), [BUDGET]) == ()


def test_objects_of_groups_are_listed_once() -> None:
    assert merged_objects([ROLE, BUDGET], [BUDGET, DEPLOYMENT]) == (ROLE, BUDGET, DEPLOYMENT)


@pytest.mark.parametrize(
    ("installed", "own"),
    [
        ("0.1.0", "0.1.0"),
        ("0.1.0", "0.4.2"),
        ("0.2.5", "0.1.0"),
        ("0.1.9", "0.1.0"),
        ("dev", "0.1.0"),
        ("0.9.0", "1.0.0"),
    ],
)
def test_versions_that_may_follow_each_other(installed: str, own: str) -> None:
    assert version_problem(installed, own) == ""


@pytest.mark.parametrize(
    ("installed", "own", "says"),
    [("0.3.0", "0.1.0", "go back to 0.2 first"), ("1.0.0", "0.9.0", "go back to 1.0 first"), ("1.2.0", "0.9.0", "1.1")],
)
def test_two_minor_versions_back_are_too_many(installed: str, own: str, says: str) -> None:
    assert says in version_problem(installed, own)


def test_the_leases_of_another_versions_installation_are_found() -> None:
    """An uninstallation must not fail because of values that only a later version knows."""
    values = {"leaderElection": {"leaseName": "own"}, "valueOfTomorrow": True}
    names = [ref.name for ref in leases(InstallationRecord(version="9.9.9", values=values, objects=()), "gangline")]
    assert "own" in names
    assert KUBEFLOW_LEASE in {ref.name for ref in leases(InstallationRecord("9.9.9", {}, ()), "gangline")}

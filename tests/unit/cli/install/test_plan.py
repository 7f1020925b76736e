"""What an installation changes, of the objects to install and those on the server."""

from typing import Any

import pytest

from gangline.api.core import ConfigMap
from gangline.api.meta import JSON, Key
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.plan import (
    ChangeAction,
    InstallConflict,
    ObservedObject,
    field_managers,
    install_plan,
    overlap_problem,
    portable,
)
from gangline.cli.install.record import InstallationRecord, object_ref
from gangline.kube.options import WriteOptions
from gangline.testing import local_cluster


def config_map(name: str = "a", **metadata: Any) -> JSON:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "gangline", **metadata}}


STORED = config_map(uid="1", resourceVersion="5", managedFields=[{"manager": "x"}], creationTimestamp="now")


@pytest.mark.parametrize(
    ("observed", "action"),
    [
        (ObservedObject(config_map()), ChangeAction.CREATED),
        (ObservedObject(config_map(), STORED, {**config_map(uid="1"), "data": {"a": "b"}}), ChangeAction.CONFIGURED),
        (ObservedObject(config_map(), STORED, config_map(uid="1", resourceVersion="6")), ChangeAction.UNCHANGED),
        # A dry run was not possible, so it may change.
        (ObservedObject(config_map(), STORED), ChangeAction.CONFIGURED),
        (ObservedObject(config_map(), is_left_alone=True), ChangeAction.LEFT_ALONE),
    ],
)
def test_what_becomes_of_an_object(observed: ObservedObject, action: ChangeAction) -> None:
    (change,) = install_plan([observed], None).changes
    assert change.action is action


def test_a_plan_without_changes_is_empty() -> None:
    same = ObservedObject(config_map(), STORED, STORED)
    assert install_plan([same, ObservedObject(config_map("b"), is_left_alone=True)], None).is_empty
    assert not install_plan([same, ObservedObject(config_map("b"))], None).is_empty
    record = InstallationRecord("0.1.0", {}, (object_ref(config_map("old")),))
    assert not install_plan([same], record).is_empty


def test_what_is_left_alone_does_not_belong_to_the_installation() -> None:
    plan = install_plan([ObservedObject(config_map()), ObservedObject(config_map("b"), is_left_alone=True)], None)
    assert [ref.name for ref in plan.refs] == ["a"]


def test_an_object_of_a_helm_release_is_not_taken_away_from_it() -> None:
    annotations = {"meta.helm.sh/release-name": "ours", "meta.helm.sh/release-namespace": "ml"}
    existing = config_map(annotations=annotations)
    with pytest.raises(
        InstallConflict, match=r"belongs to the Helm release ours in namespace ml.*helm uninstall ours -n ml"
    ):
        install_plan([ObservedObject(config_map(), existing, existing)], None)


def test_definitions_outlive_the_release_that_installed_them() -> None:
    body = {**config_map(annotations={"meta.helm.sh/release-name": "ours"}), "kind": "CustomResourceDefinition"}
    assert install_plan([ObservedObject(body, body, body)], None).is_empty


def test_an_object_to_be_created_again_has_nothing_of_the_server() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "mine"}
    body = {**config_map(uid="1", resourceVersion="5", annotations=annotations), "status": {"a": 1}}
    assert portable(body) == config_map(annotations={"note": "mine"})
    assert "annotations" in body["metadata"]


def test_managers_of_a_conflict() -> None:
    messages = ['conflict with "kubectl-edit" using apps/v1', 'conflict with "kubectl-edit"', "conflict"]
    assert field_managers(messages) == ("kubectl-edit",)


# Another gangline


def deployed(namespace: str, *args: str, replicas: int = 2, release: str = "") -> JSON:
    helm = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": namespace} if release else {}
    return {
        "metadata": {"namespace": namespace, "name": "gangline-operator", "annotations": helm},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"args": list(args)}]}}},
    }


@pytest.mark.parametrize(
    ("deployment", "namespaces", "says"),
    [
        (deployed("gangline"), ["team-a"], "gangline/gangline-operator serves all namespaces"),
        (deployed("gangline"), [], "gangline uninstall --namespace gangline"),
        (deployed("ml", "--namespace=team-b,team-a"), ["team-a"], "ml/gangline-operator serves team-b, team-a"),
        (deployed("ml", "--namespace=team-b"), [], "ml/gangline-operator serves team-b"),
        (deployed("ml", release="ours"), ["team-a"], "helm uninstall ours -n ml"),
        (deployed("ml", "--namespace=team-b"), ["team-a"], ""),
        (deployed("gangline", replicas=0), ["team-a"], ""),
        (deployed("team-a"), ["team-a"], ""),
    ],
)
def test_an_operator_that_serves_the_same_namespaces(deployment: JSON, namespaces: list[str], says: str) -> None:
    problem = overlap_problem([deployment], namespaces, [Key("team-a", "gangline-operator")])
    assert bool(problem) == bool(says)
    assert says in problem


async def test_an_object_of_a_helm_release_is_refused_by_the_name_of_the_release() -> None:
    annotations = {"meta.helm.sh/release-name": "ours", "meta.helm.sh/release-namespace": "ml"}
    body = {**config_map(labels={"app.kubernetes.io/managed-by": "gangline"})}
    body["metadata"]["namespace"] = "default"
    async with local_cluster() as cluster:
        theirs = {"name": "a", "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": annotations}
        helm = cluster.client.with_options(WriteOptions("helm"))
        await helm.create(ConfigMap, {"metadata": theirs}, namespace="default")
        observed = await ClusterObjects(cluster.client).observe([body], needs_cluster=True)
        with pytest.raises(InstallConflict, match="helm uninstall ours -n ml"):
            install_plan(observed, None)

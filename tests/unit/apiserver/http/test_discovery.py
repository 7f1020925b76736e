"""Expected documents are those of a real kube-apiserver 1.34.4 with the same CRD."""

from typing import Any

import pytest

from gangline.apiserver.http import discovery
from gangline.apiserver.registry.resources import (
    all_resources,
    builtin_resources,
    crd_resources,
    version_rank,
)


def make_crd(**names: Any) -> dict[str, Any]:
    versions = [
        {"name": "v1alpha1", "served": True, "storage": False},
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
            },
        },
        {"name": "v2", "served": False, "storage": False},
    ]
    return {
        "metadata": {"name": "gadgets.zz.example.com"},
        "spec": {
            "group": "zz.example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", **names},
            "versions": versions,
        },
    }


SERVED = tuple(all_resources(crd_resources(make_crd(shortNames=["gd"], categories=["all"]))))
VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")


def test_versions_are_sorted_as_kubernetes_prefers_them() -> None:
    names = ["foo10", "v1alpha2", "v10", "v2beta1", "v1", "v2", "v10beta3", "foo1"]
    assert sorted(names, key=version_rank) == [
        "v10",
        "v2",
        "v1",
        "v10beta3",
        "v2beta1",
        "v1alpha2",
        "foo1",
        "foo10",
    ]


def test_group_of_a_definition_names_served_versions_only() -> None:
    found = discovery.api_group(SERVED, "zz.example.com")
    assert found is not None
    assert [item["version"] for item in found["versions"]] == ["v1", "v1alpha1"]
    assert found["preferredVersion"] == {"groupVersion": "zz.example.com/v1", "version": "v1"}


def test_resources_of_a_definition_with_subresources() -> None:
    found = discovery.api_resource_list(SERVED, "zz.example.com", "v1")
    part = {"singularName": "", "namespaced": True, "verbs": ("get", "patch", "update")}
    assert found == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "zz.example.com/v1",
        "resources": [
            {
                "name": "gadgets",
                "singularName": "gadget",
                "namespaced": True,
                "kind": "Gadget",
                "verbs": VERBS,
                "shortNames": ("gd",),
                "categories": ("all",),
                "storageVersionHash": "VrZ28stjrVs=",
            },
            {"name": "gadgets/status", "kind": "Gadget", **part},
            {"name": "gadgets/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", **part},
        ],
    }


@pytest.mark.parametrize("group", ["zz.example.com", "nope.example.com", "apps"])
def test_unserved_groups_and_versions_are_not_found(group: str) -> None:
    assert discovery.api_resource_list(SERVED, group, "v2") is None
    assert discovery.api_group(SERVED, "nope.example.com") is None


def test_events_and_autoscalers_are_stored_in_another_version() -> None:
    found = discovery.api_resource_list(SERVED, "events.k8s.io", "v1")
    assert found is not None
    assert found["resources"][0]["storageVersionHash"] == "r2yiGXH7wu8="


def test_aggregated_core_has_pods_with_their_subresources() -> None:
    (group,) = discovery.group_discovery_list(SERVED, core=True)["items"]
    pods = next(item for item in group["versions"][0]["resources"] if item["resource"] == "pods")
    assert pods["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    eviction = next(part for part in pods["subresources"] if part["subresource"] == "eviction")
    assert eviction["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}


def test_custom_groups_come_last_in_both_forms() -> None:
    names = [group["name"] for group in discovery.api_group_list(SERVED)["groups"]]
    assert names[:2] == ["apiregistration.k8s.io", "apps"]
    assert names[-1] == "zz.example.com"
    assert [item["metadata"]["name"] for item in discovery.group_discovery_list(SERVED, core=False)["items"]] == names


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (discovery.AGGREGATED_MEDIA_TYPE, True),
        (f"{discovery.AGGREGATED_MEDIA_TYPE},application/json", True),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json", False),
        ("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", None),
        ("text/plain", None),
    ],
)
def test_accept_header_chooses_the_form(accept: str, wanted: bool | None) -> None:
    assert discovery.wants_aggregated(accept) is wanted


def test_inert_kinds_have_a_warning() -> None:
    warned = {item.kind for item in builtin_resources() if item.inert_warning}
    assert {"Deployment", "Job", "HorizontalPodAutoscaler"} <= warned
    assert not {"Pod", "Service", "Lease", "ConfigMap"} & warned


def test_names_come_from_the_status_once_accepted() -> None:
    crd = make_crd()
    crd["status"] = {"acceptedNames": {"plural": "gadgets", "kind": "Gadget", "listKind": "GadgetCollection"}}
    assert crd_resources(crd)[0].list_kind == "GadgetCollection"
    assert crd_resources(crd)[0].singular == "gadget"

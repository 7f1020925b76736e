"""Paths of objects and collections."""

from gangline.apiserver.store.paths import ObjectPath, collection_prefix, object_path, split_path


def test_core_group_and_missing_namespace_are_empty_parts() -> None:
    assert object_path("", "pods", "default", "web") == "//pods/default/web"
    assert object_path("", "nodes", "", "one") == "//nodes//one"
    assert object_path("apps", "deployments", "default", "web") == "/apps/deployments/default/web"


def test_collection_holds_its_objects_and_no_others() -> None:
    everywhere, namespace_prefix = collection_prefix("", "pods"), collection_prefix("", "pods", "default")
    web = object_path("", "pods", "default", "web")
    assert web.startswith(everywhere)
    assert web.startswith(namespace_prefix)
    assert not object_path("", "pods", "default-2", "web").startswith(namespace_prefix)
    assert not object_path("", "podtemplates", "default", "web").startswith(everywhere)
    assert object_path("", "nodes", "", "one").startswith(collection_prefix("", "nodes"))


def test_path_splits_into_its_parts() -> None:
    parts = ObjectPath("batch", "jobs", "", "system:one")
    assert split_path(object_path(*parts)) == parts

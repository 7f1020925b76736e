"""The official client of Kubernetes, doing what its users do: `official.py NAMESPACE`, found through KUBECONFIG."""

import sys
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config, watch  # type: ignore[import-not-found]
from kubernetes.client.exceptions import ApiException  # type: ignore[import-not-found]

GROUP, VERSION, PLURAL = "clients.example", "v1", "boxes"


def config_map(name: str, **data: str) -> Any:
    metadata = client.V1ObjectMeta(name=name, labels={"app": "official"})
    return client.V1ConfigMap(metadata=metadata, data=data)


def refused(call: Any, *arguments: Any, **named: Any) -> Any:
    """The error that a call must meet."""
    try:
        call(*arguments, **named)
    except ApiException as error:
        return error
    raise AssertionError(f"{call} was not refused")


def config_maps(core: Any, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"map-{number}", n=str(number)))
    assert refused(core.create_namespaced_config_map, namespace, config_map("map-0")).status == 409

    names, following = [], None
    while following != "":
        page = core.list_namespaced_config_map(namespace, label_selector="app=official", limit=2, _continue=following)
        assert len(page.items) <= 2
        names += [item.metadata.name for item in page.items]
        following = page.metadata._continue or ""
    assert names == [f"map-{number}" for number in range(5)]

    changed = core.patch_namespaced_config_map("map-0", namespace, {"data": {"n": None, "m": "x"}})
    assert changed.data == {"m": "x"}
    stale = core.read_namespaced_config_map("map-1", namespace)
    fresh = core.replace_namespaced_config_map("map-1", namespace, config_map("map-1", n="new"))
    assert int(fresh.metadata.resource_version) > int(stale.metadata.resource_version)
    assert refused(core.replace_namespaced_config_map, "map-1", namespace, stale).status == 409

    core.delete_collection_namespaced_config_map(namespace, label_selector="app=official")
    assert core.list_namespaced_config_map(namespace, label_selector="app=official").items == []


def watching(core: Any, namespace: str) -> None:
    start = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, config_map("seen"))
    core.patch_namespaced_config_map("seen", namespace, {"data": {"a": "b"}})
    core.delete_namespaced_config_map("seen", namespace)
    watcher, seen = watch.Watch(), []
    stream = watcher.stream(core.list_namespaced_config_map, namespace, resource_version=start, timeout_seconds=60)
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watcher.stop()
    assert seen == [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")]


def pods(core: Any, namespace: str) -> None:
    container = client.V1Container(name="main", image="any", command=["sh", "-c", "echo from the pod"])
    spec = client.V1PodSpec(containers=[container], restart_policy="Never")
    core.create_namespaced_pod(namespace, client.V1Pod(metadata=client.V1ObjectMeta(name="once"), spec=spec))
    watcher, phase = watch.Watch(), ""
    for event in watcher.stream(
        core.list_namespaced_pod, namespace, field_selector="metadata.name=once", timeout_seconds=60
    ):
        phase = event["object"].status.phase
        if phase in ("Succeeded", "Failed"):
            watcher.stop()
    assert phase == "Succeeded"
    done = core.read_namespaced_pod("once", namespace)
    assert done.status.container_statuses[0].state.terminated.exit_code == 0
    assert done.spec.node_name == "local"
    assert core.read_namespaced_pod_log("once", namespace) == "from the pod\n"
    core.delete_namespaced_pod("once", namespace, grace_period_seconds=0)


def custom_objects(namespace: str) -> None:
    api = client.CustomObjectsApi()
    place = (GROUP, VERSION, namespace, PLURAL)
    body: dict[str, Any] = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Box", "metadata": {"name": "b"}}
    wrong = {**body, "spec": {"size": 0}}
    assert refused(api.create_namespaced_custom_object, *place, wrong).status == 422
    made = api.create_namespaced_custom_object(*place, {**body, "spec": {"size": 2}})
    assert made["spec"] == {"size": 2, "color": "red"}
    api.patch_namespaced_custom_object(*place, "b", {"spec": {"size": 3}})
    api.patch_namespaced_custom_object_status(*place, "b", {"status": {"full": True}})
    found = api.get_namespaced_custom_object(*place, "b")
    assert (found["spec"]["size"], found["status"]) == (3, {"full": True})
    assert [item["metadata"]["name"] for item in api.list_namespaced_custom_object(*place)["items"]] == ["b"]
    api.delete_namespaced_custom_object(*place, "b")
    assert refused(api.get_namespaced_custom_object, *place, "b").status == 404


def define_boxes() -> None:
    """Define the kind and wait until it is served. Others may have defined it."""
    crd = yaml.safe_load(Path(__file__).with_name("boxes.yaml").read_text())
    api, name = client.ApiextensionsV1Api(), crd["metadata"]["name"]
    try:
        api.create_custom_resource_definition(crd)
    except ApiException as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
    watcher = watch.Watch()
    for event in watcher.stream(
        api.list_custom_resource_definition, field_selector=f"metadata.name={name}", timeout_seconds=60
    ):
        conditions = event["object"].status.conditions or ()
        if any(each.type == "Established" and each.status == "True" for each in conditions):
            watcher.stop()


def main(namespace: str) -> None:
    config.load_kube_config()
    core = client.CoreV1Api()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    assert client.VersionApi().get_code().major == "1"
    config_maps(core, namespace)
    watching(core, namespace)
    pods(core, namespace)
    define_boxes()
    custom_objects(namespace)
    core.delete_namespace(namespace)


if __name__ == "__main__":
    main(sys.argv[1])

"""kr8s, doing what its users do: `feels_like_kubectl.py NAMESPACE`, found through KUBECONFIG."""

import sys

import kr8s  # type: ignore[import-not-found]
from kr8s.objects import ConfigMap, Namespace, Pod, new_class  # type: ignore[import-not-found]
from kubernetes import config  # type: ignore[import-not-found]
from official import define_boxes  # type: ignore[import-not-found]


def config_maps(namespace: str) -> None:
    made = ConfigMap({"metadata": {"name": "app", "namespace": namespace}, "data": {"a": "1"}})
    made.create()
    assert made.exists()
    made.patch({"data": {"a": "2"}})
    made.label({"tier": "front"})
    made.annotate({"note": "kept"})
    (found,) = kr8s.get("configmaps", namespace=namespace, label_selector={"tier": "front"})
    assert (found.name, found.raw["data"]["a"], found.annotations["note"]) == ("app", "2", "kept")
    assert ConfigMap.get("app", namespace=namespace).raw["metadata"]["uid"] == made.raw["metadata"]["uid"]
    made.delete()
    assert not made.exists()


def pods(namespace: str) -> None:
    container = {"name": "main", "image": "any", "command": ["sh", "-c", "echo from the pod; sleep 300"]}
    pod = Pod({"metadata": {"name": "p", "namespace": namespace}, "spec": {"containers": [container]}})
    pod.create()
    pod.wait("condition=Ready", timeout=60)
    assert pod.ready()
    assert "from the pod" in next(iter(pod.logs(follow=True, timeout=60)))
    pod.delete(grace_period=0)
    pod.wait("delete", timeout=60)
    assert list(kr8s.get("pods", namespace=namespace)) == []


def custom_objects(namespace: str) -> None:
    config.load_kube_config()
    define_boxes()
    box_kind = new_class("Box", "clients.example/v1", plural="boxes")
    box = box_kind({"metadata": {"name": "b", "namespace": namespace}, "spec": {"size": 2}})
    box.create()
    assert box.spec.color == "red"
    box.patch({"status": {"full": True}}, subresource="status")
    (found,) = kr8s.get("boxes.clients.example", namespace=namespace)
    assert found.status.full is True
    box.delete()


def main(namespace: str, user: str) -> None:
    api = kr8s.api()
    assert api.version()["major"] == "1"
    assert api.whoami() == user
    Namespace({"metadata": {"name": namespace}}).create()
    config_maps(namespace)
    pods(namespace)
    custom_objects(namespace)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""An operator on kopf, run until it has handled an object: `operator_in_kopf.py NAMESPACE`, found through KUBECONFIG."""

import sys
import time
from collections.abc import Callable
from typing import Any

import kopf  # type: ignore[import-not-found]
from kopf.testing import KopfRunner  # type: ignore[import-not-found]
from kubernetes import client, config  # type: ignore[import-not-found]
from official import GROUP, PLURAL, VERSION, define_boxes  # type: ignore[import-not-found]


@kopf.on.create(GROUP, VERSION, PLURAL)  # type: ignore[untyped-decorator]
def created(spec: Any, patch: Any, body: Any, **_: object) -> dict[str, int]:
    patch.metadata.annotations["clients.example/seen"] = str(spec["size"])
    kopf.info(body, reason="Packed", message="The box is packed.")
    return {"doubled": spec["size"] * 2}


@kopf.on.update(GROUP, VERSION, PLURAL, field="spec.size")  # type: ignore[untyped-decorator]
def resized(old: Any, new: Any, **_: object) -> dict[str, int]:
    return {"by": new - old}


@kopf.on.delete(GROUP, VERSION, PLURAL)  # type: ignore[untyped-decorator]
def deleted(**_: object) -> None:
    """That there is a handler makes kopf set a finalizer."""


def until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(f"not seen in 30 seconds: {what}")


def main(namespace: str) -> None:
    config.load_kube_config()
    core, api = client.CoreV1Api(), client.CustomObjectsApi()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
    define_boxes()
    place = (GROUP, VERSION, namespace, PLURAL)

    def box() -> Any:
        return api.get_namespaced_custom_object(*place, "b")

    with KopfRunner(["run", "--standalone", "-n", namespace, __file__], timeout=60) as runner:
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Box", "metadata": {"name": "b"}}
        api.create_namespaced_custom_object(*place, {**body, "spec": {"size": 2}})
        until(lambda: box().get("status", {}).get("created") == {"doubled": 4}, "the result of creation")
        assert box()["metadata"]["annotations"]["clients.example/seen"] == "2"
        assert box()["metadata"]["finalizers"]
        api.patch_namespaced_custom_object(*place, "b", {"spec": {"size": 5}})
        until(lambda: box()["status"].get("resized/spec.size") == {"by": 3}, "the result of the update")
        until(
            lambda: "Packed" in {each.reason for each in core.list_namespaced_event(namespace).items},
            "the event",
        )
        api.delete_namespaced_custom_object(*place, "b")
        until(lambda: api.list_namespaced_custom_object(*place)["items"] == [], "the deletion")
    assert runner.exit_code == 0, runner.output


if __name__ == "__main__":
    main(sys.argv[1])

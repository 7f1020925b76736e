"""The kubelet of a `World`."""

from gangline.api.meta import JSON
from gangline.testing.world.world import World


class Kubelet:
    """Changes the status of pods as a kubelet does, when a test says so."""

    def __init__(self, world: World) -> None:
        self._world, self._server = world, world.server

    def start(self, pod: JSON) -> None:
        """Start a pending pod, on one of the world's nodes if it has any. A pod that no node takes stays as it is."""
        if pod["status"]["phase"] != "Pending":
            return
        if self._world.nodes:
            node = next((name for name in self._world.nodes if _takes(name, pod)), None)
            if node is None:
                return
            self._server.patch("pods", pod["metadata"]["name"], {"spec": {"nodeName": node}})
        self._write_status(pod, "Running", {"running": {}})

    def succeed(self, pod: JSON) -> None:
        """End the training container of a running pod with exit code 0. With policy Always it is restarted."""
        if pod["status"]["phase"] != "Running":
            return
        if pod["spec"]["restartPolicy"] == "Always" and "deletionTimestamp" not in pod["metadata"]:
            self._restart_in_place(pod)
        else:
            self._write_status(pod, "Succeeded", self._terminated_state(0, "Completed"))

    def fail(self, pod: JSON, code: int, reason: str = "Error", log: str = "") -> None:
        """End the training container with an exit code. If the pod's restart policy says so, it is restarted in place."""
        if pod["status"]["phase"] not in ("Pending", "Running"):
            return
        if pod["spec"]["restartPolicy"] != "Never" and "deletionTimestamp" not in pod["metadata"]:
            self._restart_in_place(pod)
            return
        self._record_failure(pod)
        self._world.logs[pod["metadata"]["uid"]] = (log,)
        self._write_status(pod, "Failed", self._terminated_state(code, reason))

    def evict(self, pod: JSON) -> None:
        """Fail a pod by eviction: its exit code is unknown."""
        if pod["status"]["phase"] in ("Pending", "Running"):
            self._record_failure(pod)
            status = {"phase": "Failed", "reason": "Evicted", "containerStatuses": None}
            self._server.patch("pods", pod["metadata"]["name"], {"status": status})

    def clash(self, pod: JSON) -> None:
        """Fail a pod because its port is taken by another process. Only if all replicas share a machine."""
        if pod["status"]["phase"] in ("Pending", "Running") and self._world.site.shared_host:
            self._world.incidents += 1
            self._server.patch("pods", pod["metadata"]["name"], {"status": {"phase": "Failed", "reason": "PortClash"}})

    def vanish(self, pod: JSON) -> None:
        """Remove a pod that is being deleted."""
        if "deletionTimestamp" in pod["metadata"]:
            self._server.remove("pods", pod["metadata"]["name"])

    def finish(self) -> None:
        """Remove all pods that are being deleted."""
        for pod in self._world.pods():
            self.vanish(pod)

    def _restart_in_place(self, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        self._world.in_place[uid] = count = self._world.in_place.get(uid, 0) + 1
        self._write_status(pod, "Running", {"running": {}}, count)

    def _record_failure(self, pod: JSON) -> None:
        """Record the failure of a pod, unless it is being deleted: then it is no failure."""
        if "deletionTimestamp" not in pod["metadata"]:
            self._world.failures[pod["metadata"]["uid"]] = pod["metadata"]["name"]
            self._world.incidents += 1

    def _terminated_state(self, code: int, reason: str) -> JSON:
        return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": self._server.timestamp()}}

    def _write_status(self, pod: JSON, phase: str, state: JSON, restarts: int = 0) -> None:
        count = restarts or self._world.in_place.get(pod["metadata"]["uid"], 0)
        container = {"name": self._world.framework.facts.container, "restartCount": count, "state": state}
        status = {"phase": phase, "containerStatuses": [container]}
        self._server.patch("pods", pod["metadata"]["name"], {"status": status})


def _takes(node: str, pod: JSON) -> bool:
    """Whether the node affinity of a pod, of which only the names of nodes count here, allows a node."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    return any(
        all((node in field["values"]) == (field["operator"] == "In") for field in term.get("matchFields") or ())
        for term in terms
    )

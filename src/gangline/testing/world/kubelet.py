"""A kubelet for the world of jobs: it moves pods along, as far as the engine can tell."""

from gangline.api.meta import JSON
from gangline.testing.world.world import World


class Kubelet:
    """Moves pods along."""

    def __init__(self, world: World) -> None:
        self._world, self._server = world, world.server

    def start(self, pod: JSON) -> None:
        if pod["status"]["phase"] == "Pending":
            self._write_status(pod, "Running", {"running": {}})

    def succeed(self, pod: JSON) -> None:
        if pod["status"]["phase"] != "Running":
            return
        if pod["spec"]["restartPolicy"] == "Always" and "deletionTimestamp" not in pod["metadata"]:
            self._restart_in_place(pod)
        else:
            self._write_status(pod, "Succeeded", self._terminated_state(0, "Completed"))

    def fail(self, pod: JSON, code: int, reason: str = "Error", log: str = "") -> None:
        """The training container ends; where the pod's policy says so it is started again, in its place."""
        if pod["status"]["phase"] not in ("Pending", "Running"):
            return
        if pod["spec"]["restartPolicy"] != "Never" and "deletionTimestamp" not in pod["metadata"]:
            self._restart_in_place(pod)
            return
        self._record_failure(pod)
        self._world.logs[pod["metadata"]["uid"]] = (log,)
        self._write_status(pod, "Failed", self._terminated_state(code, reason))

    def evict(self, pod: JSON) -> None:
        """Nobody can say with what exit code."""
        if pod["status"]["phase"] in ("Pending", "Running"):
            self._record_failure(pod)
            status = {"phase": "Failed", "reason": "Evicted", "containerStatuses": None}
            self._server.patch("pods", pod["metadata"]["name"], {"status": status})

    def clash(self, pod: JSON) -> None:
        """The port that the pod's peers were told is taken: only where members share a machine."""
        if pod["status"]["phase"] in ("Pending", "Running") and self._world.site.shared_host:
            self._world.incidents += 1
            self._server.patch("pods", pod["metadata"]["name"], {"status": {"phase": "Failed", "reason": "PortClash"}})

    def vanish(self, pod: JSON) -> None:
        """A pod on its way out is gone."""
        if "deletionTimestamp" in pod["metadata"]:
            self._server.remove("pods", pod["metadata"]["name"])

    def finish(self) -> None:
        """All pods on their way out are gone."""
        for pod in self._world.pods():
            self.vanish(pod)

    def _restart_in_place(self, pod: JSON) -> None:
        uid = pod["metadata"]["uid"]
        self._world.in_place[uid] = count = self._world.in_place.get(uid, 0) + 1
        self._write_status(pod, "Running", {"running": {}}, count)

    def _record_failure(self, pod: JSON) -> None:
        """One that is on its way out dies of that, which is nobody's failure."""
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

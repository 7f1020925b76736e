"""New nodes are tainted as not ready."""

from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest

NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class TaintNodesByCondition(AdmissionPlugin):
    """Taints a new node, so that no pod is scheduled to it before it reports ready."""

    name = "TaintNodesByCondition"
    resources = frozenset({("", "nodes")})

    def admit(self, request: AdmissionRequest) -> None:
        spec = request.obj["spec"]
        taints = spec.get("taints", [])
        if not any((t["key"], t.get("effect")) == (NOT_READY_TAINT["key"], NOT_READY_TAINT["effect"]) for t in taints):
            spec["taints"] = [*taints, dict(NOT_READY_TAINT)]

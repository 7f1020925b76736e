"""Subresources that are more than a part of their object: binding, eviction, finalize, scale."""

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.selectors import LabelSelector
from gangline.apiserver import refusals
from gangline.apiserver.http.body import read_object
from gangline.apiserver.http.handler import Asked, Subresource
from gangline.apiserver.http.routes import Verb
from gangline.apiserver.http.scale import Scales
from gangline.apiserver.patch.json_patch import copied
from gangline.apiserver.refusals import Refused
from gangline.apiserver.registry.deletion import delete_options
from gangline.apiserver.registry.metadata import check_place
from gangline.apiserver.registry.registry import Call, Registry, decoded
from gangline.apiserver.store.paths import collection_prefix
from gangline.schema.go_text import quoted

ANY_SCALE = ("", "", "scale")
"""Of whatever resource has one."""
CREATED: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


class _Binding(msgspec.Struct, frozen=True):
    group: str = ""
    kind: str = "Binding"
    plural: str = "pods/binding"


def subresources(registry: Registry) -> dict[tuple[str, str, str], Subresource]:
    """By group, plural and name."""
    pods = Pods(registry)
    found: dict[tuple[str, str, str], Subresource] = {
        ("", "pods", "binding"): pods.bind,
        ("", "pods", "eviction"): pods.evict,
        ("", "namespaces", "finalize"): Finalize(registry),
        ANY_SCALE: Scales(registry),
    }
    return found


def _answer(body: JSON, code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=code, content_type="application/json")


async def _object(asked: Asked) -> JSON:
    return read_object(await asked.raw(), asked.http.headers.get("Content-Type", ""))


class Pods:
    """What schedulers and drainers do to pods."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def bind(self, asked: Asked) -> web.StreamResponse:
        """Give a pod its node, once."""
        if asked.verb is not Verb.CREATE:
            raise refusals.method_not_allowed()
        binding = await _object(asked)
        metadata = binding.get("metadata") or {}
        target = binding.get("target") or {}
        name, node = asked.target.name, target.get("name") or ""
        if metadata.get("name") not in (None, "", name):
            raise refusals.bad_request("name in URL does not match name in Binding object")
        _check_target(target)

        def bound(pod: JSON | None) -> JSON:
            assert pod is not None
            self._check_binding(asked, pod, metadata)
            pod["spec"]["nodeName"] = node
            for part in ("annotations", "labels"):
                if metadata.get(part):
                    pod["metadata"][part] = {**pod["metadata"].get(part, {}), **metadata[part]}
            _scheduled(pod, pod["metadata"], self._registry.stamp())
            return pod

        call = msgspec.structs.replace(asked.call(), subresource="binding")
        await self._registry.change(call, asked.entry, asked.target.key, bound)
        return _answer(CREATED, 201)

    def _check_binding(self, asked: Asked, pod: JSON, metadata: JSON) -> None:
        name, uid = asked.target.name, metadata.get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise refusals.stale_uid(asked.entry, asked.target.key, uid, pod["metadata"])
        why = ""
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise refusals.conflict(_Binding(), name, why)

    async def evict(self, asked: Asked) -> web.StreamResponse:
        """Delete a pod, if every disruption budget allows it."""
        if asked.verb is not Verb.CREATE:
            raise refusals.method_not_allowed()
        eviction = await _object(asked)
        if (eviction.get("metadata") or {}).get("name") not in (None, "", asked.target.name):
            raise refusals.bad_request("name in URL does not match name in Eviction object")
        options = delete_options(eviction.get("deleteOptions") or {}, asked.query)
        pod = decoded(self._registry.get(asked.entry, asked.target.key))
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed", "Pending"):
            await self._spend(pod)
        dry = options.dry_run or bool(asked.query.get("dryRun"))
        await self._registry.delete(Call(dry_run=dry), asked.entry, asked.target.key, options)
        return _answer(CREATED, 201)

    async def _spend(self, pod: JSON) -> None:
        """Take one disruption from the budget that covers a pod. Raises `Refused` (429)."""
        budgets = self._registry.catalog.stored("policy", "poddisruptionbudgets")
        if budgets is None:
            return
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        prefix = collection_prefix("policy", "poddisruptionbudgets", namespace)
        covering = [
            budget
            for record in self._registry.store.range(prefix).records
            if LabelSelector.from_json((budget := decoded(record))["spec"].get("selector")).matches(labels)
        ]
        if len(covering) > 1:
            raise Refused(
                500,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        for budget in covering:
            _check_budget(budget)
            await self._registry.change(
                Call(manager="kube-apiserver", subresource="status"),
                budgets,
                Key(namespace, budget["metadata"]["name"]),
                lambda old: _spent(old, pod["metadata"]["name"], self._registry.stamp()),
            )


def _check_budget(budget: JSON) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        details: JSON = {
            "causes": [{"reason": "DisruptionBudget", "message": cause}],
            "retryAfterSeconds": 10,
        }
        raise Refused(429, VIOLATES, reason="TooManyRequests", details=details)
    if status.get("disruptionsAllowed", 0) <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        cause = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        raise Refused(
            429,
            VIOLATES,
            reason="TooManyRequests",
            details={"causes": [{"reason": "DisruptionBudget", "message": cause}]},
        )


def _spent(budget: JSON | None, pod: str, now: str) -> JSON:
    assert budget is not None
    _check_budget(budget)
    budget["status"]["disruptionsAllowed"] -= 1
    budget["status"].setdefault("disruptedPods", {})[pod] = now
    return budget


def _check_target(target: JSON) -> None:
    wrong = []
    kind = target.get("kind") or ""
    if kind not in ("", "Node"):
        known = 'supported values: "Node", "<empty>"'
        wrong.append(f"target.kind: Unsupported value: {quoted(kind)}: {known}")
    if not target.get("name"):
        wrong.append("target.name: Required value")
    if wrong:
        raise Refused(500, wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def _scheduled(pod: JSON, metadata: JSON, now: str) -> None:
    status = pod.setdefault("status", {})
    others = [found for found in status.get("conditions") or [] if found["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*others, condition]


class Finalize:
    """`namespaces/finalize`: the only way to change a namespace's own finalizers."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, asked: Asked) -> web.StreamResponse:
        if asked.verb is not Verb.UPDATE:
            raise refusals.method_not_allowed()
        wanted = await _object(asked)
        check_place(asked.entry, asked.target.key, wanted)

        def finalized(old: JSON | None) -> JSON:
            new: JSON = copied(wanted)
            return new

        outcome = await self._registry.change(asked.call(), asked.entry, asked.target.key, finalized)
        return web.Response(body=outcome.data, content_type="application/json")

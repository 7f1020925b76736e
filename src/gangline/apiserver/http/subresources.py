"""Subresources that are more than a part of their object: binding, eviction, finalize, scale."""

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.selectors import LabelSelector
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.body import read_object
from gangline.apiserver.http.handler import ApiRequest, SubresourceHandler
from gangline.apiserver.http.routes import RequestVerb
from gangline.apiserver.http.scale import ScaleHandler
from gangline.apiserver.patch.json_patch import deep_copy
from gangline.apiserver.registry.deletion import deletion_options
from gangline.apiserver.registry.metadata import check_object_key
from gangline.apiserver.registry.registry import Registry, WriteContext, decode_record
from gangline.apiserver.store.paths import collection_prefix
from gangline.schema.go_text import quoted_text

ANY_SCALE = ("", "", "scale")
"""Of whatever resource has one."""
CREATED_STATUS: JSON = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
BUDGET_VIOLATION_MESSAGE = "Cannot evict pod as it would violate the pod's disruption budget."


class _BindingKind(msgspec.Struct, frozen=True):
    group: str = ""
    kind: str = "Binding"
    plural: str = "pods/binding"


def subresource_handlers(registry: Registry) -> dict[tuple[str, str, str], SubresourceHandler]:
    """By group, plural and name."""
    pods = PodHandlers(registry)
    found: dict[tuple[str, str, str], SubresourceHandler] = {
        ("", "pods", "binding"): pods.bind,
        ("", "pods", "eviction"): pods.evict,
        ("", "namespaces", "finalize"): FinalizeHandler(registry),
        ANY_SCALE: ScaleHandler(registry),
    }
    return found


def _json_response(body: JSON, code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=code, content_type="application/json")


async def _read_object(asked: ApiRequest) -> JSON:
    return read_object(await asked.read_body(), asked.http.headers.get("Content-Type", ""))


class PodHandlers:
    """What schedulers and drainers do to pods."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def bind(self, asked: ApiRequest) -> web.StreamResponse:
        """Give a pod its node, once."""
        if asked.verb is not RequestVerb.CREATE:
            raise apierrors.method_not_allowed()
        binding = await _read_object(asked)
        metadata = binding.get("metadata") or {}
        target = binding.get("target") or {}
        name, node = asked.info.name, target.get("name") or ""
        if metadata.get("name") not in (None, "", name):
            raise apierrors.bad_request("name in URL does not match name in Binding object")
        _check_binding_target(target)

        def bound(pod: JSON | None) -> JSON:
            assert pod is not None
            self._check_binding(asked, pod, metadata)
            pod["spec"]["nodeName"] = node
            for part in ("annotations", "labels"):
                if metadata.get(part):
                    pod["metadata"][part] = {**pod["metadata"].get(part, {}), **metadata[part]}
            _set_scheduled_condition(pod, pod["metadata"], self._registry.timestamp())
            return pod

        call = msgspec.structs.replace(asked.write_context(), subresource="binding")
        await self._registry.update(call, asked.served_kind, asked.info.key, bound)
        return _json_response(CREATED_STATUS, 201)

    def _check_binding(self, asked: ApiRequest, pod: JSON, metadata: JSON) -> None:
        name, uid = asked.info.name, metadata.get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise apierrors.uid_mismatch(asked.served_kind, asked.info.key, uid, pod["metadata"])
        why = ""
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise apierrors.conflict(_BindingKind(), name, why)

    async def evict(self, asked: ApiRequest) -> web.StreamResponse:
        """Delete a pod, if every disruption budget allows it."""
        if asked.verb is not RequestVerb.CREATE:
            raise apierrors.method_not_allowed()
        eviction = await _read_object(asked)
        if (eviction.get("metadata") or {}).get("name") not in (None, "", asked.info.name):
            raise apierrors.bad_request("name in URL does not match name in Eviction object")
        options = deletion_options(eviction.get("deleteOptions") or {}, asked.query)
        pod = decode_record(self._registry.get(asked.served_kind, asked.info.key))
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed", "Pending"):
            await self._use_disruption(pod)
        dry = options.dry_run or bool(asked.query.get("dryRun"))
        await self._registry.delete(WriteContext(dry_run=dry), asked.served_kind, asked.info.key, options)
        return _json_response(CREATED_STATUS, 201)

    async def _use_disruption(self, pod: JSON) -> None:
        """Take one disruption from the budget that covers a pod. Raises `Refused` (429)."""
        budgets = self._registry.catalog.storage_kind("policy", "poddisruptionbudgets")
        if budgets is None:
            return
        namespace, labels = pod["metadata"]["namespace"], pod["metadata"].get("labels") or {}
        prefix = collection_prefix("policy", "poddisruptionbudgets", namespace)
        covering = [
            budget
            for record in self._registry.store.range(prefix).records
            if LabelSelector.from_json((budget := decode_record(record))["spec"].get("selector")).matches(labels)
        ]
        if len(covering) > 1:
            raise StatusError(
                500,
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            )
        for budget in covering:
            _check_budget(budget)
            await self._registry.update(
                WriteContext(field_manager="kube-apiserver", subresource="status"),
                budgets,
                Key(namespace, budget["metadata"]["name"]),
                lambda old: _budget_after_eviction(old, pod["metadata"]["name"], self._registry.timestamp()),
            )


def _check_budget(budget: JSON) -> None:
    name, status = budget["metadata"]["name"], budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        details: JSON = {
            "causes": [{"reason": "DisruptionBudget", "message": cause}],
            "retryAfterSeconds": 10,
        }
        raise StatusError(429, BUDGET_VIOLATION_MESSAGE, reason="TooManyRequests", details=details)
    if status.get("disruptionsAllowed", 0) <= 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        cause = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        raise StatusError(
            429,
            BUDGET_VIOLATION_MESSAGE,
            reason="TooManyRequests",
            details={"causes": [{"reason": "DisruptionBudget", "message": cause}]},
        )


def _budget_after_eviction(budget: JSON | None, pod: str, now: str) -> JSON:
    assert budget is not None
    _check_budget(budget)
    budget["status"]["disruptionsAllowed"] -= 1
    budget["status"].setdefault("disruptedPods", {})[pod] = now
    return budget


def _check_binding_target(target: JSON) -> None:
    wrong = []
    kind = target.get("kind") or ""
    if kind not in ("", "Node"):
        known = 'supported values: "Node", "<empty>"'
        wrong.append(f"target.kind: Unsupported value: {quoted_text(kind)}: {known}")
    if not target.get("name"):
        wrong.append("target.name: Required value")
    if wrong:
        raise StatusError(500, wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def _set_scheduled_condition(pod: JSON, metadata: JSON, now: str) -> None:
    status = pod.setdefault("status", {})
    others = [found for found in status.get("conditions") or [] if found["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*others, condition]


class FinalizeHandler:
    """`namespaces/finalize`: the only way to change a namespace's own finalizers."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, asked: ApiRequest) -> web.StreamResponse:
        if asked.verb is not RequestVerb.UPDATE:
            raise apierrors.method_not_allowed()
        wanted = await _read_object(asked)
        check_object_key(asked.served_kind, asked.info.key, wanted)

        def finalized(old: JSON | None) -> JSON:
            new: JSON = deep_copy(wanted)
            return new

        outcome = await self._registry.update(asked.write_context(), asked.served_kind, asked.info.key, finalized)
        return web.Response(body=outcome.data, content_type="application/json")

"""Handlers of subresources: binding and eviction of pods, tokens of service accounts, finalize of namespaces, scale."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.selectors import LabelSelector
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.apply import ApplyResult, server_side_apply
from gangline.apiserver.apply.managed_fields import (
    parent_managed_fields,
    scale_managed_fields,
    updated_managed_fields,
)
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.apiserver.auth.token_claims import TokenClaims, decode_claims
from gangline.apiserver.auth.token_requests import DEFAULT_SECONDS, TokenIssuer
from gangline.apiserver.errors import NamedKind, StatusError
from gangline.apiserver.http.body import read_applied, report_applied_duplicates
from gangline.apiserver.http.handler import ApiRequest, SubresourceHandler, api_response
from gangline.apiserver.http.negotiation import Representation, negotiate
from gangline.apiserver.http.patch import APPLY_PATCH, check_patch_type, patch_function
from gangline.apiserver.http.query import check_write_options, deletion_options
from gangline.apiserver.http.request_info import RequestVerb, query_flag
from gangline.apiserver.patch.json_patch import deep_copy
from gangline.apiserver.registry.catalog import FieldPath, ScalePaths, ServedKind
from gangline.apiserver.registry.object_meta import check_namespace, check_object_key, ensure_metadata
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.resources import ApiResource
from gangline.apiserver.registry.served_kinds import builtin_served_kind
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.typed.openapi import builtin_type

ANY_SCALE = ("", "", "scale")
"""The scale subresource of any resource that has one."""
BINDINGS = ("", "bindings", "")
"""The older path of `pods/binding`, where the pod is named in the body only."""
CREATED_STATUS: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
ISSUED_CREDENTIAL_ANNOTATION = "authentication.kubernetes.io/issued-credential-id"
"""The annotation of the audit event by which requests with an issued token are found."""
BUDGET_VIOLATION_MESSAGE = "Cannot evict pod as it would violate the pod's disruption budget."


def subresource_handlers(registry: Registry, issuer: TokenIssuer) -> dict[tuple[str, str, str], SubresourceHandler]:
    """The handlers by group, plural and name of the subresource."""
    pods = PodHandlers(registry)
    handlers: dict[tuple[str, str, str], SubresourceHandler] = {
        ("", "pods", "binding"): pods.bind,
        BINDINGS: pods.bind_named,
        ("", "pods", "eviction"): pods.evict,
        ("", "serviceaccounts", "token"): TokenHandler(registry, issuer),
        ("", "namespaces", "finalize"): FinalizeHandler(registry),
        ANY_SCALE: ScaleHandler(registry),
    }
    return handlers


async def _read_object(request: ApiRequest, kind: ServedKind) -> JSON:
    """The object in the body, of the kind that a subresource takes. Raises `StatusError` (400, 415)."""
    return request.checked_object(await request.read_body(), kind)


@cache
def _subresource_kind(group: str, version: str, kind: str) -> ServedKind:
    name = kind.lower()
    return builtin_served_kind(ApiResource(group, version, kind, f"{name}s", name, namespaced=True, verbs=("create",)))


def _require_verb(request: ApiRequest, verb: RequestVerb) -> None:
    if request.verb is not verb:
        raise apierrors.method_not_allowed()


class _RegistryHandler:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def _admit(self, request: ApiRequest, body: JSON) -> WriteContext:
        """Admit a POST to the subresource, and return the context of its writes. Raises `StatusError`."""
        context = msgspec.structs.replace(request.write_context(), subresource=request.info.subresource)
        await self._registry.admit_subresource(context, request.served_kind, request.info.key, body)
        return context

    def _representation(self, request: ApiRequest) -> Representation:
        accept, agent = request.http.headers.get("Accept", ""), request.http.headers.get("User-Agent", "")
        now, routed = self._registry.now, not request.served_kind.custom
        return negotiate(accept, request.query, now=now, agent=agent, views=False, routed=routed)


class PodHandlers(_RegistryHandler):
    """Handles `pods/binding` and `pods/eviction`."""

    async def bind(self, request: ApiRequest) -> web.StreamResponse:
        """Assign an unassigned pod to a node."""
        _require_verb(request, RequestVerb.CREATE)
        binding = await _read_object(request, _subresource_kind("", "v1", "Binding"))
        context = await self._admit(request, binding)
        if (binding.get("metadata") or {}).get("name") not in (None, "", request.info.name):
            raise apierrors.bad_request("name in URL does not match name in Binding object")
        return await self._bind(request, context, binding)

    async def bind_named(self, request: ApiRequest) -> web.StreamResponse:
        """Assign the pod that the Binding names."""
        if request.info.name or not request.info.namespace:
            raise apierrors.no_such_resource()
        _require_verb(request, RequestVerb.CREATE)
        binding = await _read_object(request, _subresource_kind("", "v1", "Binding"))
        metadata = ensure_metadata(binding)
        check_namespace(request.served_kind, request.info.namespace, metadata)
        if not metadata.get("name"):
            raise apierrors.bad_request("Name parameter required.")
        info = msgspec.structs.replace(
            request.info, plural="pods", name=metadata.get("name") or "", subresource="binding"
        )
        request = msgspec.structs.replace(request, info=info)
        return await self._bind(request, await self._admit(request, binding), binding)

    async def _bind(self, request: ApiRequest, context: WriteContext, binding: JSON) -> web.StreamResponse:
        metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
        representation = self._representation(request)
        _check_binding_target(target)

        def bound(pod: JSON | None) -> JSON:
            assert pod is not None
            self._check_binding(request, pod, metadata)
            pod["spec"]["nodeName"] = target["name"]
            for part in ("annotations", "labels"):
                if metadata.get(part):
                    pod["metadata"][part] = {**pod["metadata"].get(part, {}), **metadata[part]}
            _set_scheduled_condition(pod, self._registry.timestamp())
            return pod

        await self._registry.update(context, request.served_kind, request.info.key, bound)
        return api_response(request, representation, representation.encode_status(CREATED_STATUS), 201)

    def _check_binding(self, request: ApiRequest, pod: JSON, metadata: JSON) -> None:
        name, uid = request.info.name, metadata.get("uid")
        if uid and uid != pod["metadata"]["uid"]:
            raise apierrors.uid_mismatch(request.served_kind.resource, request.info.key, uid, pod["metadata"])
        why = ""
        if pod["metadata"].get("deletionTimestamp"):
            why = f"pod {name} is being deleted, cannot be assigned to a host"
        elif pod["spec"].get("nodeName"):
            why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        elif pod["spec"].get("schedulingGates"):
            why = f"pod {name} has non-empty .spec.schedulingGates"
        if why:
            raise apierrors.conflict(NamedKind("", "Binding", "pods/binding"), name, why)

    async def evict(self, request: ApiRequest) -> web.StreamResponse:
        """Delete a pod if its disruption budget allows it."""
        _require_verb(request, RequestVerb.CREATE)
        representation = self._representation(request)
        eviction = await _read_object(request, _subresource_kind("policy", "v1", "Eviction"))
        await self._admit(request, eviction)
        if (eviction.get("metadata") or {}).get("name") not in (None, "", request.info.name):
            raise apierrors.bad_request("name in URL does not match name in Eviction object")
        options = deletion_options(eviction.get("deleteOptions") or {}, request.query)
        pod = decode_record(self._registry.get(request.served_kind, request.info.key))
        if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed", "Pending"):
            await self._use_disruption(pod)
        dry_run = options.dry_run or bool(request.query.get("dryRun"))
        await self._registry.delete(WriteContext(dry_run=dry_run), request.served_kind, request.info.key, options)
        return api_response(request, representation, representation.encode_status(CREATED_STATUS), 201)

    async def _use_disruption(self, pod: JSON) -> None:
        """Count one disruption against the budget that covers a pod. Raises `StatusError` (429) if none is left."""
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
                500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
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
        details: JSON = {"causes": [{"reason": "DisruptionBudget", "message": cause}], "retryAfterSeconds": 10}
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
    problems = []
    kind = target.get("kind") or ""
    if kind not in ("", "Node"):
        supported = 'supported values: "Node", "<empty>"'
        problems.append(f"target.kind: Unsupported value: {quoted_text(kind)}: {supported}")
    if not target.get("name"):
        problems.append("target.name: Required value")
    if problems:
        raise StatusError(500, problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


def _set_scheduled_condition(pod: JSON, now: str) -> None:
    status = pod.setdefault("status", {})
    others = [item for item in status.get("conditions") or [] if item["type"] != "PodScheduled"]
    condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    status["conditions"] = [*others, condition]


class TokenHandler(_RegistryHandler):
    """Handles `serviceaccounts/token`: a TokenRequest is answered with a token, and not stored."""

    def __init__(self, registry: Registry, issuer: TokenIssuer) -> None:
        super().__init__(registry)
        self._issuer = issuer

    async def __call__(self, request: ApiRequest) -> web.StreamResponse:
        _require_verb(request, RequestVerb.CREATE)
        representation = self._representation(request)
        check_write_options(request.verb, request.query)
        raw, kind, context = await request.read_body(), _token_request_kind(), request.write_context()
        body = request.checked_object(raw, kind)
        key, metadata = request.info.key, dict(ensure_metadata(body))
        check_namespace(kind, key.namespace, metadata)
        await self._admit(request, body)
        spec = {name: value for name, value in (body.get("spec") or {}).items() if value is not None}
        spec.setdefault("expirationSeconds", DEFAULT_SECONDS)
        sent = {"metadata": metadata, "spec": spec}
        if request.trail is not None:
            request.trail.set_request_object(_audited_token_request(body, spec))
        answer = self._issuer.issue(key, sent)
        owners = updated_managed_fields(
            None, sent, kind.managed_kind("token"), manager=context.field_manager, now=self._registry.timestamp()
        )
        # To kube-apiserver the reference is not new: it writes an absent one as null.
        owners[0]["fieldsV1"]["f:spec"].get("f:boundObjectRef", {}).pop(".", None)
        answer["metadata"]["managedFields"] = owners
        claims = decode_claims(answer["status"]["token"])
        if context.audit_annotations is not None and isinstance(claims, TokenClaims):
            context.audit_annotations[ISSUED_CREDENTIAL_ANNOTATION] = f"JTI={claims.jti}"
        return api_response(request, representation, representation.encode_status(answer), 201)


def _audited_token_request(body: JSON, spec: JSON) -> JSON:
    """A TokenRequest as the audit log shows what was sent."""
    empty: JSON = {"audiences": None, "expirationSeconds": None, "boundObjectRef": None}
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": body["metadata"],
        "spec": {**empty, **spec},
        "status": {"token": "", "expirationTimestamp": None},
    }


@cache
def _token_request_kind() -> ServedKind:
    names = ("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests", "tokenrequest")
    return builtin_served_kind(ApiResource(*names, namespaced=True, verbs=("create",)))


class FinalizeHandler(_RegistryHandler):
    """Handles `namespaces/finalize`, the only way to change the finalizers in a namespace's spec."""

    async def __call__(self, request: ApiRequest) -> web.StreamResponse:
        _require_verb(request, RequestVerb.UPDATE)
        representation = self._representation(request)
        check_write_options(request.verb, request.query)
        raw, context, key = await request.read_body(), request.write_context(), request.info.key
        body = request.checked_object(raw, request.served_kind)
        check_object_key(request.served_kind, key, body)
        result = await self._registry.update(context, request.served_kind, key, lambda old: deep_copy(body))
        return api_response(
            request, representation, representation.encode_object(request.served_kind.object_kind, result.data)
        )


_UNSET_REPLICAS = -(2**31)
"""Stands for replicas that a custom resource does not have, while a patch is applied to its Scale."""
_SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScaleHandler(_RegistryHandler):
    """Handles `scale` of every resource that has it."""

    async def __call__(self, request: ApiRequest) -> web.StreamResponse:
        key, paths, kind = request.info.key, request.served_kind.scale_paths, request.served_kind
        if request.verb not in (RequestVerb.GET, RequestVerb.UPDATE, RequestVerb.PATCH):
            raise _unsupported_verb(kind, request.verb) if kind.custom else apierrors.method_not_allowed()
        representation = self._representation(request)
        if request.verb is RequestVerb.GET:
            obj = decode_record(self._registry.get(request.served_kind, key), request.served_kind)
            if request.served_kind.custom and _value_at(obj, paths.spec) is None:
                raise apierrors.internal_error(f'the spec replicas field ".{".".join(paths.spec)}" does not exist')
            return api_response(request, representation, representation.encode_status(scale_of(obj, paths)))
        raw = await request.read_body()
        if request.verb is RequestVerb.PATCH and request.media_type == APPLY_PATCH:
            return await self._apply(request, raw, representation)
        check_write_options(request.verb, request.query)

        def scaled(old: JSON | None) -> JSON:
            assert old is not None
            current = scale_of(old, paths)
            is_unset = request.served_kind.custom and _value_at(old, paths.spec) is None
            if is_unset:
                current["spec"]["replicas"] = _UNSET_REPLICAS
            scale = _desired_scale(request, raw, current)
            if is_unset and (scale.get("spec") or {}).get("replicas") == _UNSET_REPLICAS:
                raise apierrors.bad_request(f'the spec replicas field ".{".".join(paths.spec)}" cannot be empty')
            version = ensure_metadata(scale).get("resourceVersion")
            if version:
                old["metadata"]["resourceVersion"] = version
            _set_value(old, paths.spec, _desired_replicas(request, scale))
            return old

        context = msgspec.structs.replace(request.write_context(), replicas_path=paths.spec)
        result = await self._registry.update(context, request.served_kind, key, scaled)
        scale = scale_of(msgspec.json.decode(result.data), paths)
        return api_response(request, representation, representation.encode_status(scale))

    async def _apply(self, request: ApiRequest, raw: bytes, representation: Representation) -> web.StreamResponse:
        """Server-side apply of a Scale: the manager owns the replicas; other owners are conflicts."""
        check_write_options(request.verb, request.query, apply=True)
        context, paths, body = request.write_context(), request.served_kind.scale_paths, read_applied(raw)
        config = body.object
        report_applied_duplicates(body, context.field_validation, request.warnings.append)
        force = query_flag(request.query, "force")
        path = [f"f:{step}" for step in paths.spec]

        def merge(old: JSON | None, now: str) -> ApplyResult:
            assert old is not None
            before = old["metadata"].get("managedFields")
            live = scale_of(old, paths)
            live["metadata"]["managedFields"] = scale_managed_fields(before, path=path)
            result = server_side_apply(
                live, config, _managed_scale(), manager=context.field_manager, now=now, force=force
            )
            check_object_key(request.served_kind, request.info.key, result.object)
            new = deep_copy(old)
            new["metadata"]["resourceVersion"] = ensure_metadata(result.object).get("resourceVersion")
            _set_value(new, paths.spec, _desired_replicas(request, result.object))
            version = request.served_kind.resource.api_version
            managed = parent_managed_fields(before, result.managed_fields, api_version=version, path=path)
            return ApplyResult(new, managed, result.changed)

        result = await self._registry.apply_with(context, request.served_kind, request.info.key, merge)
        scale = scale_of(msgspec.json.decode(result.data), paths)
        return api_response(request, representation, representation.encode_status(scale))


def _unsupported_verb(kind: ServedKind, verb: RequestVerb) -> StatusError:
    resource = kind.resource
    text = f'{verb} is not supported on resources of kind "{resource.qualified_name}"'
    details = {"group": resource.group, "kind": resource.plural}
    return StatusError(405, text, reason="MethodNotAllowed", details=details)


@cache
def _managed_scale() -> ManagedKind:
    return managed_kind("autoscaling/v1", "Scale", builtin_type("autoscaling/v1", "Scale"), subresource="scale")


def scale_of(obj: JSON, paths: ScalePaths) -> JSON:
    """The Scale of an object."""
    metadata = {name: obj["metadata"][name] for name in _SCALE_METADATA if name in obj["metadata"]}
    spec, status = _value_at(obj, paths.spec), {"replicas": _value_at(obj, paths.status) or 0}
    selector = _value_at(obj, paths.selector)
    if isinstance(selector, Mapping):
        by_labels = selector.keys() <= {"matchLabels", "matchExpressions"}
        selector = str(LabelSelector.from_json(selector if by_labels else {"matchLabels": selector}))
    if selector:
        status["selector"] = selector
    scale: JSON = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    return {**scale, "spec": {"replicas": spec} if spec else {}, "status": status}


def _desired_scale(request: ApiRequest, raw: bytes, current: JSON) -> JSON:
    if request.verb is RequestVerb.UPDATE:
        scale = request.checked_object(raw, _subresource_kind("autoscaling", "v1", "Scale"))
        check_object_key(request.served_kind, request.info.key, scale)
        return scale
    check_patch_type(request.media_type, custom=request.served_kind.custom)
    kind, validation = _subresource_kind("autoscaling", "v1", "Scale"), request.write_context().field_validation
    patched = patch_function(kind, request.media_type, raw, validation=validation, warn=request.warnings.append)
    return patched(current)


def _desired_replicas(request: ApiRequest, scale: JSON) -> int:
    replicas: int = (scale.get("spec") or {}).get("replicas") or 0
    if replicas >= 0:
        return replicas
    kind, field, detail = (
        NamedKind("autoscaling", "Scale", "scales"),
        "spec.replicas",
        "must be greater than or equal to 0",
    )
    if request.served_kind.custom:
        resource = request.served_kind.resource
        kind = NamedKind(resource.group, resource.kind, resource.plural)
        field, detail = f".{'.'.join(request.served_kind.scale_paths.spec)}", "should be a non-negative integer"
    raise apierrors.invalid(kind, request.info.name, [FieldProblem(ProblemKind.INVALID, field, replicas, detail)])


def _value_at(obj: JSON, steps: FieldPath) -> Any:
    value: Any = obj
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value if steps else None


def _set_value(obj: JSON, steps: FieldPath, value: Any) -> None:
    *parents, last = steps
    for step in parents:
        obj = obj.setdefault(step, {})
    obj[last] = value

"""`scale`: the number of replicas of anything, in one shape."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.apply import ApplyResult, server_side_apply
from gangline.apiserver.apply.managed import parent_managed_fields, scale_managed_fields
from gangline.apiserver.apply.tracked import ManagedKind, managed_kind
from gangline.apiserver.http.body import read_object, read_yaml
from gangline.apiserver.http.handler import ApiRequest
from gangline.apiserver.http.patch import APPLY_PATCH, JSON_PATCH, check_patch_type, decode_patch
from gangline.apiserver.http.query import check_write_options
from gangline.apiserver.http.routes import RequestVerb
from gangline.apiserver.patch.json_patch import deep_copy, json_patch, merge_patch
from gangline.apiserver.registry.catalog import FieldPath, ScalePaths
from gangline.apiserver.registry.metadata import check_object_key, ensure_metadata
from gangline.apiserver.registry.registry import Registry, decode_record
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.typed.openapi import builtin_type

_SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class _ScaleKind(msgspec.Struct, frozen=True):
    group: str = "autoscaling"
    kind: str = "Scale"
    plural: str = "scales"


class ScaleHandler:
    """Shows and sets the replicas of every resource that has a `scale`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, asked: ApiRequest) -> web.StreamResponse:
        key, paths = asked.info.key, asked.served_kind.scale_paths
        if asked.verb is RequestVerb.GET:
            record = self._registry.get(asked.served_kind, key)
            return _json_response(scale_of(decode_record(record, asked.served_kind), paths))
        if asked.verb not in (RequestVerb.UPDATE, RequestVerb.PATCH):
            raise apierrors.method_not_allowed()
        raw = await asked.read_body()
        if asked.verb is RequestVerb.PATCH and asked.media_type == APPLY_PATCH:
            return await self._apply(asked, raw)
        check_write_options(asked.verb, asked.query)

        def scaled(old: JSON | None) -> JSON:
            assert old is not None
            wanted = _desired_scale(asked, raw, scale_of(old, paths))
            version = ensure_metadata(wanted).get("resourceVersion")
            if version:
                old["metadata"]["resourceVersion"] = version
            _set_value(old, paths.spec, _desired_replicas(asked.info.name, wanted))
            return old

        call = msgspec.structs.replace(asked.write_context(), replicas_path=paths.spec)
        outcome = await self._registry.update(call, asked.served_kind, key, scaled)
        return _json_response(scale_of(msgspec.json.decode(outcome.data), paths))

    async def _apply(self, asked: ApiRequest, raw: bytes) -> web.StreamResponse:
        """Server-side apply of a Scale: the manager owns the replicas, and others may object."""
        check_write_options(asked.verb, asked.query, apply=True)
        config, call, paths = read_yaml(raw), asked.write_context(), asked.served_kind.scale_paths
        force = asked.query.get("force") in ("true", "1")
        owner = [f"f:{step}" for step in paths.spec]

        def merge(old: JSON | None, now: str) -> ApplyResult:
            assert old is not None
            before = old["metadata"].get("managedFields")
            live = scale_of(old, paths)
            live["metadata"]["managedFields"] = scale_managed_fields(before, path=owner)
            result = server_side_apply(live, config, _managed_scale(), manager=call.field_manager, now=now, force=force)
            check_object_key(asked.served_kind, asked.info.key, result.object)
            new = deep_copy(old)
            new["metadata"]["resourceVersion"] = ensure_metadata(result.object).get("resourceVersion")
            _set_value(new, paths.spec, _desired_replicas(asked.info.name, result.object))
            version = asked.served_kind.api_version
            managed = parent_managed_fields(before, result.managed_fields, api_version=version, path=owner)
            return ApplyResult(new, managed, result.changed)

        outcome = await self._registry.apply_with(call, asked.served_kind, asked.info.key, merge)
        return _json_response(scale_of(msgspec.json.decode(outcome.data), paths))


@cache
def _managed_scale() -> ManagedKind:
    return managed_kind("autoscaling/v1", "Scale", builtin_type("autoscaling/v1", "Scale"), subresource="scale")


def scale_of(obj: JSON, paths: ScalePaths) -> JSON:
    """An object's Scale."""
    metadata = {name: obj["metadata"][name] for name in _SCALE_METADATA if name in obj["metadata"]}
    spec, status = _value_at(obj, paths.spec), {"replicas": _value_at(obj, paths.status) or 0}
    selector = _value_at(obj, paths.selector)
    if isinstance(selector, Mapping):
        selector = str(LabelSelector.from_json(selector))
    if selector:
        status["selector"] = selector
    shown: JSON = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    return {**shown, "spec": {"replicas": spec} if spec else {}, "status": status}


def _desired_scale(asked: ApiRequest, raw: bytes, current: JSON) -> JSON:
    if asked.verb is RequestVerb.UPDATE:
        wanted = read_object(raw, asked.media_type)
        check_object_key(asked.served_kind, asked.info.key, wanted)
        return wanted
    check_patch_type(asked.media_type, custom=asked.served_kind.custom)
    patch = decode_patch(raw)
    patched: JSON = json_patch(current, patch) if asked.media_type == JSON_PATCH else merge_patch(current, patch)
    return patched


def _desired_replicas(name: str, wanted: JSON) -> int:
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise apierrors.bad_request("spec.replicas must be a whole number")
    if replicas < 0:
        detail = "must be greater than or equal to 0"
        problem = FieldProblem(ProblemKind.INVALID, "spec.replicas", replicas, detail)
        raise apierrors.invalid(_ScaleKind(), name, [problem])
    return replicas


def _value_at(obj: JSON, steps: FieldPath) -> Any:
    found: Any = obj
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if steps else None


def _set_value(obj: JSON, steps: FieldPath, value: Any) -> None:
    *way, last = steps
    for step in way:
        obj = obj.setdefault(step, {})
    obj[last] = value


def _json_response(body: JSON) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")

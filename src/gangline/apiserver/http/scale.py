"""`scale`: the number of replicas of anything, in one shape."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector
from gangline.apiserver import refusals
from gangline.apiserver.apply.apply import Applied, applied
from gangline.apiserver.apply.managed import owned_as_scale, shown_by_scale
from gangline.apiserver.apply.tracked import Tracked, tracked
from gangline.apiserver.http.body import read_object, read_yaml
from gangline.apiserver.http.handler import Asked
from gangline.apiserver.http.patch import APPLY_PATCH, JSON_PATCH, check_media, decoded_patch
from gangline.apiserver.http.query import check_options
from gangline.apiserver.http.routes import Verb
from gangline.apiserver.patch.json_patch import copied, json_patch, merge_patch
from gangline.apiserver.registry.catalog import ScalePaths, Steps
from gangline.apiserver.registry.metadata import check_place, metadata_of
from gangline.apiserver.registry.registry import Registry, decoded
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.typed.openapi import types_of

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class _Scale(msgspec.Struct, frozen=True):
    group: str = "autoscaling"
    kind: str = "Scale"
    plural: str = "scales"


class Scales:
    """Shows and sets the replicas of every resource that has a `scale`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __call__(self, asked: Asked) -> web.StreamResponse:
        key, paths = asked.target.key, asked.entry.scale
        if asked.verb is Verb.GET:
            record = self._registry.get(asked.entry, key)
            return _answer(scale_of(decoded(record, asked.entry), paths))
        if asked.verb not in (Verb.UPDATE, Verb.PATCH):
            raise refusals.method_not_allowed()
        raw = await asked.raw()
        if asked.verb is Verb.PATCH and asked.media == APPLY_PATCH:
            return await self._apply(asked, raw)
        check_options(asked.verb, asked.query)

        def scaled(old: JSON | None) -> JSON:
            assert old is not None
            wanted = _wanted(asked, raw, scale_of(old, paths))
            version = metadata_of(wanted).get("resourceVersion")
            if version:
                old["metadata"]["resourceVersion"] = version
            _put(old, paths.spec, _replicas(asked.target.name, wanted))
            return old

        call = msgspec.structs.replace(asked.call(), scaled=paths.spec)
        outcome = await self._registry.change(call, asked.entry, key, scaled)
        return _answer(scale_of(msgspec.json.decode(outcome.data), paths))

    async def _apply(self, asked: Asked, raw: bytes) -> web.StreamResponse:
        """Server-side apply of a Scale: the manager owns the replicas, and others may object."""
        check_options(asked.verb, asked.query, apply=True)
        config, call, paths = read_yaml(raw), asked.call(), asked.entry.scale
        force = asked.query.get("force") in ("true", "1")
        owner = [f"f:{step}" for step in paths.spec]

        def merge(old: JSON | None, now: str) -> Applied:
            assert old is not None
            before = old["metadata"].get("managedFields")
            live = scale_of(old, paths)
            live["metadata"]["managedFields"] = shown_by_scale(before, path=owner)
            result = applied(live, config, _tracked(), manager=call.manager, now=now, force=force)
            check_place(asked.entry, asked.target.key, result.object)
            new = copied(old)
            new["metadata"]["resourceVersion"] = metadata_of(result.object).get("resourceVersion")
            _put(new, paths.spec, _replicas(asked.target.name, result.object))
            version = asked.entry.api_version
            managed = owned_as_scale(before, result.managed, api_version=version, path=owner)
            return Applied(new, managed, result.changed)

        outcome = await self._registry.applying(call, asked.entry, asked.target.key, merge)
        return _answer(scale_of(msgspec.json.decode(outcome.data), paths))


@cache
def _tracked() -> Tracked:
    return tracked("autoscaling/v1", "Scale", types_of("autoscaling/v1", "Scale"), subresource="scale")


def scale_of(obj: JSON, paths: ScalePaths) -> JSON:
    """An object's Scale."""
    metadata = {name: obj["metadata"][name] for name in _SHOWN if name in obj["metadata"]}
    spec, status = _at(obj, paths.spec), {"replicas": _at(obj, paths.status) or 0}
    selector = _at(obj, paths.selector)
    if isinstance(selector, Mapping):
        selector = str(LabelSelector.from_json(selector))
    if selector:
        status["selector"] = selector
    shown: JSON = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata}
    return {**shown, "spec": {"replicas": spec} if spec else {}, "status": status}


def _wanted(asked: Asked, raw: bytes, current: JSON) -> JSON:
    if asked.verb is Verb.UPDATE:
        wanted = read_object(raw, asked.media)
        check_place(asked.entry, asked.target.key, wanted)
        return wanted
    check_media(asked.media, custom=asked.entry.custom)
    patch = decoded_patch(raw)
    patched: JSON = json_patch(current, patch) if asked.media == JSON_PATCH else merge_patch(current, patch)
    return patched


def _replicas(name: str, wanted: JSON) -> int:
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise refusals.bad_request("spec.replicas must be a whole number")
    if replicas < 0:
        detail = "must be greater than or equal to 0"
        problem = Problem(ProblemKind.INVALID, "spec.replicas", replicas, detail)
        raise refusals.invalid(_Scale(), name, [problem])
    return replicas


def _at(obj: JSON, steps: Steps) -> Any:
    found: Any = obj
    for step in steps:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if steps else None


def _put(obj: JSON, steps: Steps, value: Any) -> None:
    *way, last = steps
    for step in way:
        obj = obj.setdefault(step, {})
    obj[last] = value


def _answer(body: JSON) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")

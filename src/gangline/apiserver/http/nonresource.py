"""Answers to paths that are no resources: version, health, discovery, OpenAPI."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec

from gangline import __version__
from gangline.api.meta import JSON
from gangline.apiserver import refusals
from gangline.apiserver.http import discovery
from gangline.apiserver.http.openapi import Documents
from gangline.apiserver.registry.resources import Served, defined, in_order
from gangline.schema.protobuf import openapi_v2

CHECKS = ("ping", "log", "etcd")
JSON_TYPE, TEXT = "application/json", "text/plain; charset=utf-8"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Go calls them, where that is another name."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer."""

    body: bytes
    content_type: str = JSON_TYPE
    code: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}


MISSING = Answer(b"404 page not found\n", TEXT, HTTPStatus.NOT_FOUND)


class RootPaths:
    """Made for the CRDs there are; told when they change."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._served: tuple[Served, ...] = tuple(in_order(()))
        self._openapi = Documents()

    def define(self, crds: Sequence[JSON]) -> None:
        """These are the established CRDs now."""
        self._served = tuple(in_order([served for crd in crds for served in defined(crd)]))
        self._openapi = Documents(crds)

    def answer(self, path: str, query: Mapping[str, str], accept: str) -> Answer:
        """The answer to a GET. Raises `Refused`."""
        parts = [part for part in path.split("/") if part]
        match parts:
            case []:
                return _json(discovery.paths(self._served))
            case ["version"]:
                machine = _MACHINES.get(platform.machine(), platform.machine())
                return _json(discovery.version(__version__, f"{platform.system().lower()}/{machine}"))
            case ["healthz" | "livez" | "readyz" as check, *names] if not path.endswith("/"):
                return _health(check, names, verbose="verbose" in query)
            case ["api"] | ["apis"]:
                return self._top(core=parts[0] == "api", accept=accept)
            case ["api", version]:
                return self._version("", version)
            case ["apis", group]:
                found = discovery.group(self._served, group)
                return MISSING if found is None else _json(found)
            case ["apis", group, version]:
                return self._version(group, version)
            case ["openapi", "v2"]:
                if any(media in accept for media in (openapi_v2.MEDIA_TYPE, openapi_v2.OLD_MEDIA_TYPE)):
                    return Answer(self._openapi.swagger_protobuf, openapi_v2.MEDIA_TYPE)
                return Answer(self._openapi.swagger())
            case ["openapi", "v3"]:
                return Answer(self._openapi.index, TEXT)
            case ["openapi", "v3", *rest]:
                return self._document("/".join(rest))
            case _:
                return MISSING

    def _top(self, *, core: bool, accept: str) -> Answer:
        match discovery.wants_aggregated(accept):
            case True:
                body = msgspec.json.encode(discovery.aggregated(self._served, core=core))
                return Answer(body, discovery.AGGREGATED, headers=_cached(body))
            case _ if core:
                return _json(discovery.core_versions(self._address))
            case _:
                return _json(discovery.groups(self._served))

    def _version(self, group: str, version: str) -> Answer:
        found = discovery.resources(self._served, group, version)
        if found is not None:
            return _json(found)
        if any(item.group == group and not item.custom for item in self._served):
            raise refusals.no_such_resource()
        return MISSING

    def _document(self, name: str) -> Answer:
        found = self._openapi.document(name)
        if found is None:
            return Answer(b"", "", HTTPStatus.NOT_FOUND)
        return Answer(found.content, headers={"ETag": f'"{found.hash}"', "Vary": "Accept"})


def _health(check: str, names: Sequence[str], *, verbose: bool) -> Answer:
    """We answer, so we are well. One check by name, or all of them, one to a line."""
    if names:
        return Answer(b"ok", TEXT) if len(names) == 1 and names[0] in CHECKS else MISSING
    if not verbose:
        return Answer(b"ok", TEXT)
    lines = [f"[+]{name} ok\n" for name in CHECKS]
    return Answer(f"{''.join(lines)}{check} check passed\n".encode(), TEXT)


def _json(value: JSON) -> Answer:
    return Answer(msgspec.json.encode(value))


def _cached(body: bytes) -> Mapping[str, str]:
    """For clients that keep an answer and ask whether it is still good."""
    tag = hashlib.sha512(body).hexdigest().upper()
    return {"ETag": f'"{tag}"', "Vary": "Accept", "Cache-Control": "public"}

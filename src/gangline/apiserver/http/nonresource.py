"""Responses to paths that are no resources: version, health, discovery, OpenAPI."""

import hashlib
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from gangline import __version__
from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.auth.signing_key import ALGORITHM, SigningKey
from gangline.apiserver.auth.token_claims import ISSUER
from gangline.apiserver.http import discovery
from gangline.apiserver.http.openapi import OpenApiDocuments
from gangline.apiserver.registry.resources import ApiResource, all_resources, crd_resources
from gangline.schema.protobuf import openapi_v2

HealthCheck: TypeAlias = Callable[[], str]
"""Returns why a part of the server does not work; empty if it does."""
STORE_CHECK = "etcd"
"""The check of the store, by the name that it has in kube-apiserver."""
HEALTH_CHECKS = ("ping", "log", STORE_CHECK)
JSON_TYPE, TEXT_TYPE = "application/json", "text/plain; charset=utf-8"
KEY_SET_TYPE = "application/jwk-set+json"
_PUBLIC_FOR_AN_HOUR = {"Cache-Control": "public, max-age=3600"}
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names of machine architectures, where they differ."""


class NonResourceResponse(msgspec.Struct, frozen=True):
    """A complete response."""

    body: bytes
    content_type: str = JSON_TYPE
    code: int = HTTPStatus.OK
    headers: Mapping[str, str] = {}
    is_object: bool = False
    """Whether the body is an object of the API, such as a list of resources."""


NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
"""A header of plain text and of refusals."""
NOT_FOUND_PAGE = NonResourceResponse(b"404 page not found\n", TEXT_TYPE, HTTPStatus.NOT_FOUND, NO_SNIFFING)


class NonResourceHandler:
    """Serves the paths that are no resources. Discovery and OpenAPI include the current CRDs."""

    def __init__(
        self,
        address: str,
        key: SigningKey,
        health_checks: Mapping[str, HealthCheck] | None = None,
        aggregated: Iterable[ApiResource] = (),
    ) -> None:
        """`key` signs the tokens of service accounts. Parts without a check work whenever the server responds.

        `aggregated` are resources that are served besides those of the store.
        """
        self._address, self._key = address, key
        self._health_checks = dict(health_checks or {})
        self._aggregated = tuple(aggregated)
        self._custom: tuple[ApiResource, ...] = ()
        self._remote: tuple[ApiResource, ...] = ()
        self._resources: tuple[ApiResource, ...] = (*all_resources(()), *self._aggregated)
        self._openapi = OpenApiDocuments()

    def set_crds(self, crds: Sequence[JSON]) -> None:
        """Replace the established CRDs."""
        self._custom = tuple(resource for crd in crds for resource in crd_resources(crd))
        self._openapi = OpenApiDocuments(crds)
        self._collect_resources()

    def set_remote(self, resources: Sequence[ApiResource]) -> None:
        """Replace the resources of other servers."""
        self._remote = tuple(resources)
        self._collect_resources()

    def _collect_resources(self) -> None:
        self._resources = (*all_resources((*self._custom, *self._remote)), *self._aggregated)

    def response(self, path: str, query: Mapping[str, str], accept: str) -> NonResourceResponse:
        """The response to a GET. Raises `StatusError`."""
        parts = [part for part in path.split("/") if part]
        match parts:
            case []:
                return _json_response(discovery.root_paths(self._resources))
            case ["version"]:
                machine = _GO_ARCHITECTURES.get(platform.machine(), platform.machine())
                return _json_response(discovery.version_info(__version__, f"{platform.system().lower()}/{machine}"))
            case ["healthz" | "livez" | "readyz" as check, *names] if not path.endswith("/"):
                # Not ready is not dead: a new start does not mend a disk, and would end the pods.
                checks = {} if check == "livez" else self._health_checks
                problems = {name: problem for name, health_check in checks.items() if (problem := health_check())}
                return _health_response(check, names, problems, verbose="verbose" in query)
            case ["api"] | ["apis"]:
                return self._discovery_root(core=parts[0] == "api", accept=accept)
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis", group]:
                api_group = discovery.api_group(self._resources, group)
                return NOT_FOUND_PAGE if api_group is None else _json_response(api_group)
            case ["apis", group, version]:
                return self._resource_list(group, version)
            case [".well-known", "openid-configuration"] | ["openid", "v1", "jwks"]:
                return self._openid_document(parts[-1])
            case ["openapi", *rest]:
                return self._openapi_page(rest, accept)
            case _:
                return NOT_FOUND_PAGE

    def _openid_document(self, name: str) -> NonResourceResponse:
        """How others verify tokens of service accounts, as OpenID Connect Discovery describes it."""
        if name == "jwks":
            body = msgspec.json.encode({"keys": [self._key.public_jwk()]})
            return NonResourceResponse(body, KEY_SET_TYPE, headers=_PUBLIC_FOR_AN_HOUR)
        configuration = {
            "issuer": ISSUER,
            "jwks_uri": f"https://{self._address}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
        return NonResourceResponse(msgspec.json.encode(configuration), headers=_PUBLIC_FOR_AN_HOUR)

    def _openapi_page(self, parts: Sequence[str], accept: str) -> NonResourceResponse:
        match parts:
            case ["v2"]:
                if any(media in accept for media in (openapi_v2.MEDIA_TYPE, openapi_v2.LEGACY_MEDIA_TYPE)):
                    return NonResourceResponse(self._openapi.swagger_protobuf, openapi_v2.MEDIA_TYPE)
                return NonResourceResponse(self._openapi.swagger())
            case ["v3"]:
                return NonResourceResponse(self._openapi.index, TEXT_TYPE)
            case ["v3", *rest]:
                return self._openapi_document("/".join(rest))
            case _:
                return NOT_FOUND_PAGE

    def _discovery_root(self, *, core: bool, accept: str) -> NonResourceResponse:
        match discovery.wants_aggregated(accept):
            case True:
                body = msgspec.json.encode(discovery.group_discovery_list(self._resources, core=core))
                return NonResourceResponse(
                    body, discovery.AGGREGATED_MEDIA_TYPE, headers=_cache_headers(body), is_object=True
                )
            case _ if core:
                return _json_response(discovery.api_versions(self._address))
            case _:
                return _json_response(discovery.api_group_list(self._resources))

    def _resource_list(self, group: str, version: str) -> NonResourceResponse:
        resources = discovery.api_resource_list(self._resources, group, version)
        if resources is not None:
            return _json_response(resources)
        if any(item.group == group and not item.custom for item in self._resources):
            raise apierrors.no_such_resource()
        return NOT_FOUND_PAGE

    def _openapi_document(self, name: str) -> NonResourceResponse:
        document = self._openapi.document(name)
        if document is None:
            return NonResourceResponse(b"", "", HTTPStatus.NOT_FOUND)
        return NonResourceResponse(document.content, headers={"ETag": f'"{document.hash}"', "Vary": "Accept"})


def _health_response(
    check: str, names: Sequence[str], problems: Mapping[str, str], *, verbose: bool
) -> NonResourceResponse:
    """A health check: one by name, or all of them.

    kube-apiserver withholds the reason of a failure from anonymous users. Ours names no file, so everyone may read it.
    """
    if names:
        if len(names) > 1 or names[0] not in HEALTH_CHECKS:
            return NOT_FOUND_PAGE
        problem = problems.get(names[0])
        return (
            _failed_check(f"internal server error: {problem}\n") if problem else NonResourceResponse(b"ok", TEXT_TYPE)
        )
    lines = [
        f"[-]{name} failed: {problems[name]}\n" if name in problems else f"[+]{name} ok\n" for name in HEALTH_CHECKS
    ]
    if problems:
        return _failed_check(f"{''.join(lines)}{check} check failed\n")
    text = f"{''.join(lines)}{check} check passed\n" if verbose else "ok"
    return NonResourceResponse(text.encode(), TEXT_TYPE, headers=NO_SNIFFING)


def _failed_check(text: str) -> NonResourceResponse:
    return NonResourceResponse(text.encode(), TEXT_TYPE, HTTPStatus.INTERNAL_SERVER_ERROR, NO_SNIFFING)


def _json_response(value: JSON) -> NonResourceResponse:
    return NonResourceResponse(msgspec.json.encode(value), is_object="kind" in value)


def _cache_headers(body: bytes) -> Mapping[str, str]:
    """Headers with which clients can revalidate a cached response."""
    tag = hashlib.sha512(body).hexdigest().upper()
    return {"ETag": f'"{tag}"', "Vary": "Accept", "Cache-Control": "public"}

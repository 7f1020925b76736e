"""The resource, the verb and the flags of a request.

Paths are parsed by hand: one catch-all route is faster than a table of hundreds, and covers CRDs.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gangline.api.meta import Key
from gangline.api.selectors import LabelSelector, SelectorError, exact_field_value
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.users import UserInfo

PROXY_PREFIX = "proxy"
"""A subresource; also `/api/v1/proxy/...`, a path of old versions of Kubernetes."""


_SPECIAL_PREFIXES = ("watch", PROXY_PREFIX)


class RequestPathError(Exception):
    """A path that names no resource. kube-apiserver responds with code 500 and this message as plain text."""


class RequestVerb(StrEnum):
    """The verbs of the API, in the spelling of authorizers and discovery."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    DELETE_COLLECTION = "deletecollection"


class RequestInfo(msgspec.Struct, frozen=True):
    """A resource path: `/apis/GROUP/VERSION[/watch][/namespaces/NS]/PLURAL[/NAME[/SUBRESOURCE]]`."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """The path has the deprecated `/watch/` prefix."""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_proxy(self) -> bool:
        """Whether the request is passed on to a pod, a service or a node. The path behind `proxy` is theirs."""
        return self.subresource.partition("/")[0] == PROXY_PREFIX


def request_info(path: str, url: str = "") -> RequestInfo | None:
    """The resource of a path; None if the path is no resource (`/version`, `/apis`, `/openapi/v3` ...).

    Raises `RequestPathError` with the URL, which is the path as the client encoded it, and its query.
    """
    if "//" in path:
        return None
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 2 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 3 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if len(rest) == 1 and rest[0] in _SPECIAL_PREFIXES:
        text = f"failed to create RequestInfo: unable to determine kind and namespace from url, {url or path}"
        raise RequestPathError(text)
    watch = bool(rest) and rest[0] == "watch"
    return _resource(group, version, rest[1:] if watch else rest, watch)


def _resource(group: str, version: str, rest: list[str], watch: bool = False) -> RequestInfo:
    namespace = ""
    # `/namespaces/NS/PLURAL` is inside a namespace; `/namespaces/NS` and `/namespaces/NS/status` are the namespace.
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, *sub = (*rest, "", "")[: max(2, len(rest))]
    return RequestInfo(group, version, plural, namespace, name, "/".join(sub), watch)


def request_verb(method: str, info: RequestInfo, query: Mapping[str, str]) -> RequestVerb | None:
    """The verb of a request for a resource; None if the method is not allowed there."""
    match method:
        case "GET" | "HEAD":
            if info.watch or query_flag(query, "watch"):
                # A GET with a name ignores `watch`, as in kube-apiserver.
                return RequestVerb.WATCH if info.watch or not info.name else RequestVerb.GET
            return RequestVerb.GET if info.name else RequestVerb.LIST
        case _ if info.watch:
            return None
        case "POST":
            return RequestVerb.CREATE
        case "PUT":
            return RequestVerb.UPDATE if info.name else None
        case "PATCH":
            return RequestVerb.PATCH if info.name else None
        case "DELETE":
            return RequestVerb.DELETE if info.name else RequestVerb.DELETE_COLLECTION
        case _:
            return None


def access_attributes(user: UserInfo, method: str, info: RequestInfo, query: Mapping[str, str]) -> AccessAttributes:
    """What a request for a resource asks the authorizer. Also of requests that the server would not serve."""
    verb: str = request_verb(method, info, query) or _UNSERVED_VERBS.get(method, "")
    if info.plural == PROXY_PREFIX and not (info.namespace or info.watch):
        verb, info = PROXY_PREFIX, _proxied(info)
    name, namespace = info.name, info.namespace
    if info.watch:
        verb = RequestVerb.WATCH
    elif verb in (RequestVerb.LIST, RequestVerb.WATCH) and "fieldSelector" in query and _can_parse_options(query):
        selected = exact_field_value(query["fieldSelector"], "metadata.name") or ""
        name = "" if selected in (".", "..") or set(selected) & set("/%") else selected
    if info.plural == "namespaces" and not namespace:
        namespace = info.name  # a namespace is inside itself
    subresource = info.subresource.partition("/")[0]
    return AccessAttributes(user, verb, info.group, info.version, info.plural, subresource, namespace, name)


def _proxied(info: RequestInfo) -> RequestInfo:
    """The resource behind the prefix `/proxy/`, which only authorization knows any more."""
    parts = [part for part in (info.name, *info.subresource.split("/")) if part]
    target = _resource(info.group, info.version, parts)
    return msgspec.structs.replace(target, subresource="")


def _can_parse_options(query: Mapping[str, str]) -> bool:
    """Whether the options of a list can be parsed. kube-apiserver ignores the name in a selector beside bad options."""
    try:
        LabelSelector.parse(query.get("labelSelector", ""))
        for option in ("limit", "timeoutSeconds"):
            int(query.get(option) or 0)
    except (SelectorError, ValueError):
        return False
    return True


_UNSERVED_VERBS: Mapping[str, str] = {"PUT": RequestVerb.UPDATE, "PATCH": RequestVerb.PATCH}
"""Verbs of methods that need a name, which the path does not have."""


def query_flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean of a query, as kube-apiserver converts it: true if present and neither `0` nor `false` in any case."""
    return name in query and query[name].lower() not in ("false", "0")

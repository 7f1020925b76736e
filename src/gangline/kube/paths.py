"""Where things live on every Kubernetes-compatible server: the client's only source of URLs.

A path that lacks a segment is no error but another request: `DELETE …/pods/` deletes them all. So what cannot be
a name is refused here, before anything is sent.
"""

import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from gangline.api.meta import Key, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.kube.transport.api import QueryParams

CORE_ROOT, GROUPS_ROOT, VERSION_PATH = "/api", "/apis", "/version"
"""Where discovery starts, for the group without a name and for all others, and who the server is."""


_is_unreserved = re.compile(r"[A-Za-z0-9._~-]+").fullmatch
"""What needs no quoting: nearly everything, and there may be thousands of it."""


@lru_cache(maxsize=256)
def group_version_path(group: str, version: str) -> str:
    """Where the kinds of a group and version are, and their list."""
    root = f"{GROUPS_ROOT}/{quote(group, safe='')}" if group else CORE_ROOT
    return f"{root}/{quote(version, safe='')}"


@lru_cache(maxsize=1024)
def collection_path(resource: Resource[Any], namespace: str = "") -> str:
    """All objects of a kind: in a namespace, or (empty) in all of them. Raises `InputError`."""
    if namespace and not resource.namespaced:
        raise InputError(f'{resource}: are not in namespaces, but "{namespace}" was asked for; leave it out')
    root = group_version_path(resource.group, resource.version)
    if namespace:
        root = f"{root}/namespaces/{_path_segment(resource, 'namespace', namespace)}"
    return f"{root}/{resource.plural if _is_unreserved(resource.plural) else quote(resource.plural, safe='')}"


def writable_collection_path(resource: Resource[Any], namespace: str) -> str:
    """The one collection that objects are created in, or deleted from together. Raises `InputError`."""
    if resource.namespaced and not namespace:
        raise InputError(f"{resource}: the namespace is missing; set metadata.namespace or pass one")
    return collection_path(resource, namespace)


def object_path(resource: Resource[Any], key: Key, subresource: str = "") -> str:
    """One object, or a part of it (`status`, `scale`, `log`). Raises `InputError`."""
    whole = f"{writable_collection_path(resource, key.namespace)}/{_path_segment(resource, 'name', key.name)}"
    return f"{whole}/{subresource if _is_unreserved(subresource) else quote(subresource)}" if subresource else whole


def selector_query(where: Selector) -> QueryParams:
    """A selector as query parameters."""
    pairs = (("labelSelector", where.labels), ("fieldSelector", where.fields))
    return tuple((name, text) for name, text in pairs if text)


def _path_segment(resource: Resource[Any], what: str, text: str) -> str:
    if not text:
        raise InputError(f"{resource}: the {what} is empty; set metadata.{what}")
    # No server takes these as names, and some proxies resolve them.
    if text in (".", "..") or "/" in text or "%" in text:
        raise InputError(f'{resource}: the {what} is "{text}"; it may not hold / or %, nor be . or ..')
    return text if _is_unreserved(text) else quote(text, safe="")

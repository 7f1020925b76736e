"""The URL paths of resources and objects: the client's only source of URLs.

A path without its last segment is a different request: `DELETE …/pods/` deletes all pods. So names that are empty or
cannot be names are refused here, before anything is sent.
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
"""Discovery of the core group, discovery of all other groups, and the version of the server."""


_is_unreserved = re.compile(r"[A-Za-z0-9._~-]+").fullmatch
"""Matches text that needs no quoting, which nearly all is: quoting thousands of names takes long."""


@lru_cache(maxsize=256)
def group_version_path(group: str, version: str) -> str:
    """The path of a group and version: the parent of its resources, and of their discovery."""
    root = f"{GROUPS_ROOT}/{quote(group, safe='')}" if group else CORE_ROOT
    return f"{root}/{quote(version, safe='')}"


@lru_cache(maxsize=1024)
def collection_path(resource: Resource[Any], namespace: str = "") -> str:
    """The path of all objects of a kind in a namespace, or in all namespaces if it is empty. Raises `InputError`."""
    if namespace and not resource.namespaced:
        raise InputError(f'{resource}: are not in namespaces, but "{namespace}" was asked for; leave it out')
    root = group_version_path(resource.group, resource.version)
    if namespace:
        root = f"{root}/namespaces/{_path_segment(resource, 'namespace', namespace)}"
    return f"{root}/{resource.plural if _is_unreserved(resource.plural) else quote(resource.plural, safe='')}"


def writable_collection_path(resource: Resource[Any], namespace: str) -> str:
    """The path at which objects are created or deleted together; needs a namespace. Raises `InputError`."""
    if resource.namespaced and not namespace:
        raise InputError(f"{resource}: the namespace is missing; set metadata.namespace or pass one")
    return collection_path(resource, namespace)


def object_path(resource: Resource[Any], key: Key, subresource: str = "") -> str:
    """The path of an object, or of a subresource (`status`, `scale`, `log`). Raises `InputError`."""
    path = f"{writable_collection_path(resource, key.namespace)}/{_path_segment(resource, 'name', key.name)}"
    return f"{path}/{subresource if _is_unreserved(subresource) else quote(subresource)}" if subresource else path


def selector_query(where: Selector) -> QueryParams:
    """The query parameters of a selector."""
    pairs = (("labelSelector", where.labels), ("fieldSelector", where.fields))
    return tuple((name, text) for name, text in pairs if text)


def _path_segment(resource: Resource[Any], what: str, text: str) -> str:
    if not text:
        raise InputError(f"{resource}: the {what} is empty; set metadata.{what}")
    # No server accepts these as names, and some proxies resolve them.
    if text in (".", "..") or "/" in text or "%" in text:
        raise InputError(f'{resource}: the {what} is "{text}"; it may not hold / or %, nor be . or ..')
    return text if _is_unreserved(text) else quote(text, safe="")

"""The catalog a server starts with: every built-in kind, with its types, rules and columns."""

from collections.abc import Mapping

from gangline.api.selectable_fields import selectable
from gangline.apiserver.http.negotiation import ObjectKind
from gangline.apiserver.kinds.autoscaling import to_v1, to_v2
from gangline.apiserver.kinds.core.event import to_core_v1, to_events_v1
from gangline.apiserver.kinds.crd.strategy import CrdKind
from gangline.apiserver.registry.catalog import Catalog, Convert, Entry
from gangline.apiserver.registry.resources import Served, built_in
from gangline.apiserver.registry.strategies import kind_of
from gangline.apiserver.tables.rows import printer
from gangline.schema.typed.openapi import types_of
from gangline.schema.typed.strict_decoding import Decoder

_DEPRECATED = {
    ("", "v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
}

# Kinds that are kept in the form of another version: how to read and to write them.
_CONVERSIONS: Mapping[tuple[str, str, str], tuple[Convert, Convert]] = {
    ("events.k8s.io", "v1", "Event"): (to_events_v1, to_core_v1),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): (to_v1, to_v2),
}


def builtin_catalog() -> Catalog:
    """Built-in kinds that are stored. Reviews and the like have handlers of their own."""
    catalog = Catalog()
    known = {(served.group, served.version, served.plural) for served in built_in()}
    for served in built_in():
        if served.stored:
            own = served.stored_as == (served.group, served.version)
            # Where the real server stores a version that is served no more, we store the one that is.
            catalog.add(_entry(served), storage=own or (*served.stored_as, served.plural) not in known)
    return catalog


def _entry(served: Served) -> Entry:
    rules = (
        CrdKind()
        if served.kind == "CustomResourceDefinition"
        else kind_of(served.group, served.kind, served.version)
    )
    events = (served.group, served.kind) == ("events.k8s.io", "Event")
    read, write = _CONVERSIONS.get((served.group, served.version, served.kind), (None, None))
    tree = types_of(served.api_version, served.kind)
    return Entry(
        served=served,
        type=tree,
        rules=rules,
        shown=ObjectKind(served.api_version, served.kind, printer(served.kind), list_kind=served.list_kind),
        fields=selectable(served.api_version, served.kind),
        decoder=Decoder(tree),
        home="" if events else None,
        deprecation=_DEPRECATED.get((served.group, served.version, served.kind), ""),
        read=read,
        write=write,
    )

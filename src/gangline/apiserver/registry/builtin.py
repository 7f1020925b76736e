"""The catalog a server starts with: every built-in kind, with its types, rules and columns."""

from collections.abc import Mapping

from gangline.api.selectable_fields import selectable_fields
from gangline.apiserver.http.negotiation import ObjectKind
from gangline.apiserver.kinds.autoscaling import to_v1, to_v2
from gangline.apiserver.kinds.core.event import to_core_v1, to_events_v1
from gangline.apiserver.kinds.crd.strategy import CrdStrategy
from gangline.apiserver.registry.catalog import Catalog, Converter, ServedKind
from gangline.apiserver.registry.resources import ApiResource, builtin_resources
from gangline.apiserver.registry.strategies import strategy_for
from gangline.apiserver.tables.rows import builtin_printer
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import DecodingChecker

_DEPRECATION_WARNINGS = {
    ("", "v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
}

# Kinds that are kept in the form of another version: how to read and to write them.
_CONVERSIONS: Mapping[tuple[str, str, str], tuple[Converter, Converter]] = {
    ("events.k8s.io", "v1", "Event"): (to_events_v1, to_core_v1),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): (to_v1, to_v2),
}


def builtin_catalog() -> Catalog:
    """Built-in kinds that are stored. Reviews and the like have handlers of their own."""
    catalog = Catalog()
    known = {(served.group, served.version, served.plural) for served in builtin_resources()}
    for served in builtin_resources():
        if served.is_stored:
            own = served.storage_version == (served.group, served.version)
            # Where the real server stores a version that is served no more, we store the one that is.
            catalog.add(_served_kind(served), storage=own or (*served.storage_version, served.plural) not in known)
    return catalog


def _served_kind(served: ApiResource) -> ServedKind:
    rules = (
        CrdStrategy()
        if served.kind == "CustomResourceDefinition"
        else strategy_for(served.group, served.kind, served.version)
    )
    events = (served.group, served.kind) == ("events.k8s.io", "Event")
    read, write = _CONVERSIONS.get((served.group, served.version, served.kind), (None, None))
    tree = builtin_type(served.api_version, served.kind)
    return ServedKind(
        resource=served,
        type=tree,
        strategy=rules,
        object_kind=ObjectKind(
            served.api_version, served.kind, builtin_printer(served.kind), list_kind=served.list_kind
        ),
        selectable_fields=selectable_fields(served.api_version, served.kind),
        decoder=DecodingChecker(tree),
        group_override="" if events else None,
        deprecation_warning=_DEPRECATION_WARNINGS.get((served.group, served.version, served.kind), ""),
        from_storage=read,
        to_storage=write,
    )

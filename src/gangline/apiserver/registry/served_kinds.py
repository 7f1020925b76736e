"""Makes the catalog's entries: built-in kinds from the published API, custom kinds from their CRD."""

from collections.abc import Mapping, Sequence

from gangline.api.meta import JSON
from gangline.api.selectable_fields import custom_selectable_fields, selectable_fields
from gangline.apiserver.kinds.autoscaling import to_v1, to_v2
from gangline.apiserver.kinds.core.event import to_core_v1, to_events_v1
from gangline.apiserver.kinds.crd.resource_strategy import CustomResourceStrategy
from gangline.apiserver.kinds.crd.strategy import CrdStrategy
from gangline.apiserver.registry.catalog import Catalog, Converter, ScalePaths, ServedKind
from gangline.apiserver.registry.object_kind import ObjectKind
from gangline.apiserver.registry.resources import ApiResource, builtin_resources, version_rank
from gangline.apiserver.registry.strategies import resource_strategy
from gangline.apiserver.tables.builtin_rows import builtin_printer
from gangline.apiserver.tables.table import custom_printer
from gangline.schema.typed.openapi import builtin_type, crd_type
from gangline.schema.typed.strict_decoding import DecodingChecker

_DEPRECATION_WARNINGS = {
    ("", "v1", "Endpoints"): "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    ("", "v1", "ComponentStatus"): "v1 ComponentStatus is deprecated in v1.19+",
}

# Kinds that are stored in the form of another version: the converters from and to storage.
_CONVERSIONS: Mapping[tuple[str, str, str], tuple[Converter, Converter]] = {
    ("events.k8s.io", "v1", "Event"): (to_events_v1, to_core_v1),
    ("autoscaling", "v1", "HorizontalPodAutoscaler"): (to_v1, to_v2),
}

FREE_FORM_SCHEMA: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def builtin_catalog() -> Catalog:
    """A catalog of all built-in kinds that are stored, each made when it is first used.

    Reviews and the like are not stored: they have own handlers.
    """
    catalog = Catalog()
    served = {(resource.group, resource.version, resource.plural) for resource in builtin_resources()}
    for resource in builtin_resources():
        if resource.is_stored:
            own = resource.storage_version == (resource.group, resource.version)
            # Where kube-apiserver stores a version that is no longer served, we store the served one.
            storage = own or (*resource.storage_version, resource.plural) not in served
            catalog.add_builtin(resource, builtin_served_kind, storage=storage)
    return catalog


def builtin_served_kind(resource: ApiResource) -> ServedKind:
    """The served kind of a resource of the published API."""
    strategy = CrdStrategy() if resource.kind == "CustomResourceDefinition" else resource_strategy(resource)
    is_event = (resource.group, resource.kind) == ("events.k8s.io", "Event")
    from_storage, to_storage = _CONVERSIONS.get((resource.group, resource.version, resource.kind), (None, None))
    tree = builtin_type(resource.api_version, resource.kind)
    return ServedKind(
        resource=resource,
        type=tree,
        strategy=strategy,
        object_kind=ObjectKind(
            resource.api_version, resource.kind, builtin_printer(resource.kind), list_kind=resource.list_kind
        ),
        selectable_fields=selectable_fields(resource.api_version, resource.kind),
        decoder=DecodingChecker(tree),
        group_override="" if is_event else None,
        deprecation_warning=_DEPRECATION_WARNINGS.get((resource.group, resource.version, resource.kind), ""),
        from_storage=from_storage,
        to_storage=to_storage,
    )


def custom_served_kind(crd: JSON, resource: ApiResource) -> ServedKind:
    """The served kind of one version of a custom resource. Its strategy comes from the CRD's schema."""
    version = next(item for item in crd["spec"]["versions"] if item["name"] == resource.version)
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or FREE_FORM_SCHEMA
    scale_paths = _scale_paths(version)
    strategy = CustomResourceStrategy(
        schema,
        status="status" in (version.get("subresources") or {}),
        namespaced=resource.namespaced,
        replicas=(scale_paths.spec, scale_paths.status),
    )
    is_storage_version = resource.storage_version == (resource.group, resource.version)
    schema_changed = crd["metadata"].get("generation", 1) > 1

    def from_storage(obj: JSON) -> JSON:
        # The object was stored in another version, or before the schema changed.
        obj["apiVersion"] = resource.api_version
        strategy.default_and_prune(obj)
        return obj

    def to_storage(obj: JSON) -> JSON:
        return {**obj, "apiVersion": f"{resource.storage_version[0]}/{resource.storage_version[1]}"}

    paths = [item["jsonPath"] for item in version.get("selectableFields") or ()]
    printer = custom_printer(version.get("additionalPrinterColumns") or [])
    return ServedKind(
        resource=resource,
        type=crd_type(schema),
        strategy=strategy,
        object_kind=ObjectKind(resource.api_version, resource.kind, printer, list_kind=resource.list_kind, custom=True),
        selectable_fields=custom_selectable_fields(paths, namespaced=resource.namespaced),
        custom=True,
        crd_uid=crd["metadata"].get("uid", ""),
        deprecation_warning=_deprecation_warning(version, resource, crd["spec"]["versions"]),
        scale_paths=scale_paths,
        from_storage=None if is_storage_version and not schema_changed else from_storage,
        to_storage=None if is_storage_version else to_storage,
    )


def _scale_paths(version: JSON) -> ScalePaths:
    scale = (version.get("subresources") or {}).get("scale") or {}
    return ScalePaths(
        spec=_field_path(scale.get("specReplicasPath") or ""),
        status=_field_path(scale.get("statusReplicasPath") or ""),
        selector=_field_path(scale.get("labelSelectorPath") or ""),
    )


def _field_path(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split(".") if step)


def _deprecation_warning(version: JSON, resource: ApiResource, versions: Sequence[JSON]) -> str:
    if not version.get("deprecated"):
        return ""
    if own := version.get("deprecationWarning"):
        return str(own)
    # A version that is preferred to this one, if there is one.
    others = [item["name"] for item in versions if item.get("served") and not item.get("deprecated")]
    best = min([resource.version, *others], key=version_rank)
    use = f"; use {resource.group}/{best} {resource.kind}" if best != resource.version else ""
    return f"{resource.api_version} {resource.kind} is deprecated{use}"

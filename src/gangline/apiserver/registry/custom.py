"""Kinds that a CRD defines: their rules come from its schema."""

from gangline.api.meta import JSON
from gangline.api.selectable_fields import custom_selectable_fields as custom_fields
from gangline.apiserver.http.negotiation import ObjectKind
from gangline.apiserver.kinds.crd.resource_strategy import CustomResourceStrategy
from gangline.apiserver.registry.catalog import ScalePaths, ServedKind
from gangline.apiserver.registry.resources import ApiResource
from gangline.apiserver.tables.table import custom_printer as custom_printer
from gangline.schema.typed.openapi import crd_type

FREE_FORM_SCHEMA: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _scale_paths(version: JSON) -> ScalePaths:
    scale = (version.get("subresources") or {}).get("scale") or {}
    return ScalePaths(
        spec=_field_path(scale.get("specReplicasPath") or ""),
        status=_field_path(scale.get("statusReplicasPath") or ""),
        selector=_field_path(scale.get("labelSelectorPath") or ""),
    )


def _deprecation_warning(version: JSON, served: ApiResource) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{served.api_version} {served.kind} is deprecated"


def _field_path(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split(".") if step)


def custom_served_kind(crd: JSON, served: ApiResource) -> ServedKind:
    """What the server must know of one version of a custom resource."""
    version = next(item for item in crd["spec"]["versions"] if item["name"] == served.version)
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or FREE_FORM_SCHEMA
    rules = CustomResourceStrategy(
        schema,
        status="status" in (version.get("subresources") or {}),
        namespaced=served.namespaced,
        replicas=(_scale_paths(version).spec, _scale_paths(version).status),
    )
    storage = served.storage_version == (served.group, served.version)
    changed = crd["metadata"].get("generation", 1) > 1

    def read(obj: JSON) -> JSON:
        # Stored in another version, or before the schema changed: shown as this version would have it.
        obj["apiVersion"] = served.api_version
        rules.default_and_prune(obj)
        return obj

    def write(obj: JSON) -> JSON:
        return {**obj, "apiVersion": f"{served.storage_version[0]}/{served.storage_version[1]}"}

    paths = [item["jsonPath"] for item in version.get("selectableFields") or ()]
    columns = version.get("additionalPrinterColumns") or []
    return ServedKind(
        resource=served,
        type=crd_type(schema),
        strategy=rules,
        object_kind=ObjectKind(
            served.api_version, served.kind, custom_printer(columns), list_kind=served.list_kind, custom=True
        ),
        selectable_fields=custom_fields(paths, namespaced=served.namespaced),
        custom=True,
        deprecation_warning=_deprecation_warning(version, served),
        scale_paths=_scale_paths(version),
        from_storage=None if storage and not changed else read,
        to_storage=None if storage else write,
    )

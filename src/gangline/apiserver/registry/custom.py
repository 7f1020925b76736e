"""Kinds that a CRD defines: their rules come from its schema."""

from gangline.api.meta import JSON
from gangline.api.selectable_fields import custom as custom_fields
from gangline.apiserver.http.negotiation import ObjectKind
from gangline.apiserver.kinds.crd.resource_strategy import CustomKind
from gangline.apiserver.registry.catalog import Entry, ScalePaths
from gangline.apiserver.registry.resources import Served
from gangline.apiserver.tables.table import custom as custom_printer
from gangline.schema.typed.openapi import types_of_crd

FREE: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _scale(version: JSON) -> ScalePaths:
    scale = (version.get("subresources") or {}).get("scale") or {}
    return ScalePaths(
        spec=_steps(scale.get("specReplicasPath") or ""),
        status=_steps(scale.get("statusReplicasPath") or ""),
        selector=_steps(scale.get("labelSelectorPath") or ""),
    )


def _deprecation(version: JSON, served: Served) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{served.api_version} {served.kind} is deprecated"


def _steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.split(".") if step)


def custom_entry(crd: JSON, served: Served) -> Entry:
    """What the server must know of one version of a custom resource."""
    version = next(item for item in crd["spec"]["versions"] if item["name"] == served.version)
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or FREE
    rules = CustomKind(
        schema,
        status="status" in (version.get("subresources") or {}),
        namespaced=served.namespaced,
        replicas=(_scale(version).spec, _scale(version).status),
    )
    storage = served.stored_as == (served.group, served.version)
    changed = crd["metadata"].get("generation", 1) > 1

    def read(obj: JSON) -> JSON:
        # Stored in another version, or before the schema changed: shown as this version would have it.
        obj["apiVersion"] = served.api_version
        rules.prepared(obj)
        return obj

    def write(obj: JSON) -> JSON:
        return {**obj, "apiVersion": f"{served.stored_as[0]}/{served.stored_as[1]}"}

    paths = [item["jsonPath"] for item in version.get("selectableFields") or ()]
    columns = version.get("additionalPrinterColumns") or []
    return Entry(
        served=served,
        type=types_of_crd(schema),
        rules=rules,
        shown=ObjectKind(
            served.api_version, served.kind, custom_printer(columns), list_kind=served.list_kind, custom=True
        ),
        fields=custom_fields(paths, namespaced=served.namespaced),
        custom=True,
        deprecation=_deprecation(version, served),
        scale=_scale(version),
        read=None if storage and not changed else read,
        write=None if storage else write,
    )

"""Validation of volume claims: of their own, of stateful sets, of ephemeral volumes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata, quantities, selectors
from gangline.apiserver.kinds.machinery.problems import each, forbidden, invalid, required, unsupported
from gangline.schema.problems import Problem

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def template(claim: JSON, path: str) -> list[Problem]:
    """`volumeClaimTemplate` of an ephemeral volume."""
    meta = claim.get("metadata", {})
    found = metadata.annotations(meta.get("annotations", {}), f"{path}.metadata.annotations")
    found += metadata.labels(meta.get("labels", {}), f"{path}.metadata.labels")
    for name in sorted(meta.keys() - {"annotations", "labels"}):
        found.append(forbidden(f"{path}.metadata.{name}", "cannot be set"))
    return found + claim_spec(claim["spec"], f"{path}.spec")


def claim_spec(spec: JSON, path: str) -> list[Problem]:
    """`spec` of a claim, with its defaults."""
    found = _access(spec.get("accessModes", ()), spec, f"{path}.accessModes", path)
    found += _storage(spec["resources"], f"{path}.resources[storage]")
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        found += each(f"{path}.storageClassName", name, formats.dns_subdomain(name))
    if spec.get("volumeMode", "Filesystem") not in VOLUME_MODES:
        found.append(unsupported(f"{path}.volumeMode", spec["volumeMode"], VOLUME_MODES))
    for name in ("dataSource", "dataSourceRef"):
        if name in spec:
            found += _data_source(spec[name], f"{path}.{name}")
    return found


def _access(modes: list[str] | tuple[()], spec: JSON, here: str, path: str) -> list[Problem]:
    found = [] if modes else [required(here, "at least 1 access mode is required")]
    found += selectors.selector(spec.get("selector"), f"{path}.selector")
    found += access_modes(modes, here)
    return found


def access_modes(modes: list[str] | tuple[()], path: str) -> list[Problem]:
    """Known ones, and the exclusive one alone."""
    found = [unsupported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        found.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return found


def _storage(resources: JSON, path: str) -> list[Problem]:
    text = resources.get("requests", {}).get("storage")
    if text is None:
        return [required(path)]
    if quantities.parsed(text).nanos <= 0:
        return [invalid(path, text, "must be greater than zero")]
    return quantities.resource_value("storage", text, path)


def _data_source(source: JSON, path: str) -> list[Problem]:
    found = [required(f"{path}.{name}") for name in ("name", "kind") if not source.get(name)]
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        told = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        found.append(invalid(path, source.get("kind", ""), told))
    if group:
        found += each(f"{path}.apiGroup", group, formats.dns_subdomain(group))
    return found

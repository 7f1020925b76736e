"""Validation of claims: PersistentVolumeClaims, those of StatefulSets, and those of ephemeral volumes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata, quantities, selectors
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, unsupported

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def validate_claim_template(claim: JSON, path: str) -> list[FieldProblem]:
    """Problems of the `volumeClaimTemplate` of an ephemeral volume."""
    meta = claim.get("metadata", {})
    problems = metadata.validate_annotations(meta.get("annotations", {}), f"{path}.metadata.annotations")
    problems += metadata.validate_labels(meta.get("labels", {}), f"{path}.metadata.labels")
    for name in sorted(meta.keys() - {"annotations", "labels"}):
        problems.append(forbidden(f"{path}.metadata.{name}", "cannot be set"))
    return problems + validate_claim_spec(claim["spec"], f"{path}.spec")


def validate_claim_spec(spec: JSON, path: str) -> list[FieldProblem]:
    """Problems of the `spec` of a claim with its defaults."""
    problems = _validate_access_and_selector(spec.get("accessModes", ()), spec, f"{path}.accessModes", path)
    problems += _validate_storage_request(spec["resources"], f"{path}.resources[storage]")
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        problems += invalid_each(f"{path}.storageClassName", name, formats.dns_subdomain_errors(name))
    if spec.get("volumeMode", "Filesystem") not in VOLUME_MODES:
        problems.append(unsupported(f"{path}.volumeMode", spec["volumeMode"], VOLUME_MODES))
    for name in ("dataSource", "dataSourceRef"):
        if name in spec:
            problems += _validate_data_source(spec[name], f"{path}.{name}")
    return problems


def _validate_access_and_selector(
    modes: list[str] | tuple[()], spec: JSON, modes_path: str, path: str
) -> list[FieldProblem]:
    problems = [] if modes else [required(modes_path, "at least 1 access mode is required")]
    problems += selectors.validate_label_selector(spec.get("selector"), f"{path}.selector")
    problems += validate_access_modes(modes, modes_path)
    return problems


def validate_access_modes(modes: list[str] | tuple[()], path: str) -> list[FieldProblem]:
    """Problems of access modes: unknown ones, and ReadWriteOncePod beside others."""
    problems = [unsupported(path, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        problems.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return problems


def _validate_storage_request(resources: JSON, path: str) -> list[FieldProblem]:
    text = resources.get("requests", {}).get("storage")
    if text is None:
        return [required(path)]
    if quantities.parse_quantity(text).nanos <= 0:
        return [invalid(path, text, "must be greater than zero")]
    return quantities.validate_resource_value("storage", text, path)


def _validate_data_source(source: JSON, path: str) -> list[FieldProblem]:
    problems = [required(f"{path}.{name}") for name in ("name", "kind") if not source.get(name)]
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        problems.append(invalid(path, source.get("kind", ""), detail))
    if group:
        problems += invalid_each(f"{path}.apiGroup", group, formats.dns_subdomain_errors(group))
    return problems

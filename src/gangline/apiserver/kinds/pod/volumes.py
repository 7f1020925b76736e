"""Validation of a pod's volumes."""

from collections.abc import Callable

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.pod import claims, downward_api
from gangline.schema.problems import (
    FieldProblem,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    required,
    too_long,
    unsupported,
)

_SOURCE_ORDER = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
]
# Kubernetes misspells two paths.
_MISSPELT_PATHS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_MODE_MESSAGE = "must be a number between 0 and 0777 (octal), both inclusive"
# Old kinds of volumes: only the presence of fields is checked.
_REQUIRED_FIELDS = {
    "glusterfs": ("endpoints", "path"),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "rbd": ("monitors", "image"),
    "cinder": ("volumeID",),
    "cephfs": ("monitors",),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "scaleIO": ("gateway", "system", "volumeName"),
    "iscsi": ("targetPortal", "iqn"),
}


def validate_volumes(volumes: list[JSON], pod_name: str, path: str) -> tuple[dict[str, JSON], list[FieldProblem]]:
    """The valid volumes by name, and the problems of all."""
    valid_volumes: dict[str, JSON] = {}
    problems: list[FieldProblem] = []
    ephemeral_claims = {f"{pod_name}-{entry.get('name', '')}" for entry in volumes if "ephemeral" in entry and pod_name}
    for index, volume in enumerate(volumes):
        item_path, name = f"{path}[{index}]", volume.get("name", "")
        volume_problems = _validate_volume_source(volume, item_path, name, pod_name)
        if not name:
            volume_problems.append(required(f"{item_path}.name"))
        elif errors := formats.dns_label_errors(name):
            volume_problems += invalid_each(f"{item_path}.name", name, errors)
        if name in valid_volumes:
            volume_problems.append(duplicate(f"{item_path}.name", name))
        if volume_problems:
            problems += volume_problems
        else:
            valid_volumes[name] = volume
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        if claim and claim in ephemeral_claims:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            problems.append(invalid(f"{item_path}.persistentVolumeClaim.claimName", claim, detail))
    return valid_volumes, problems


def _validate_volume_source(volume: JSON, path: str, name: str, pod_name: str) -> list[FieldProblem]:
    if len(volume) == 2 and "emptyDir" in volume and not volume["emptyDir"]:
        return []
    sources = [kind for kind in _SOURCE_ORDER if kind in volume]
    if not sources:
        return [required(path, "must specify a volume type")]
    first = sources[0]
    check = _SOURCE_VALIDATORS.get(first)
    problems = (
        check(volume[first], f"{path}.{first}") if check else _validate_required_fields(first, volume[first], path)
    )
    if first == "ephemeral" and pod_name and name:
        claim = f"{pod_name}-{name}"
        detail = [f'PVC name "{claim}": {message}' for message in formats.dns_subdomain_errors(claim)]
        problems += invalid_each(f"{path}.name", name, detail)
    problems += [
        forbidden(f"{path}.{_MISSPELT_PATHS.get(kind, kind)}", "may not specify more than 1 volume type")
        for kind in sources[1:]
    ]
    return problems


def _validate_required_fields(kind: str, source: JSON, path: str) -> list[FieldProblem]:
    # Messages call a disk of GCE by another name.
    field_path = f"{path}.{'persistentDisk' if kind == 'gcePersistentDisk' else kind}"
    return [required(f"{field_path}.{name}") for name in _REQUIRED_FIELDS.get(kind, ()) if not source.get(name)]


def _validate_empty_dir(source: JSON, path: str) -> list[FieldProblem]:
    if str(source.get("sizeLimit", "")).startswith("-"):
        return [forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _validate_host_path(source: JSON, path: str) -> list[FieldProblem]:
    if not source.get("path"):
        return [required(f"{path}.path")]
    problems = _validate_no_backsteps(source["path"], f"{path}.path")
    if source["type"] not in _HOST_PATH_TYPES:
        problems.append(unsupported(f"{path}.type", source["type"], _HOST_PATH_TYPES))
    return problems


def _validate_git_repo(source: JSON, path: str) -> list[FieldProblem]:
    problems = [] if source.get("repository") else [required(f"{path}.repository")]
    return problems + validate_descending_path(source.get("directory", ""), f"{path}.directory")


def _validate_secret(source: JSON, path: str) -> list[FieldProblem]:
    problems = [] if source.get("secretName") else [required(f"{path}.secretName")]
    return problems + _validate_items(source, path)


def _validate_config_map(source: JSON, path: str) -> list[FieldProblem]:
    problems = [] if source.get("name") else [required(f"{path}.name")]
    return problems + _validate_items(source, path)


def _validate_items(source: JSON, path: str) -> list[FieldProblem]:
    problems = _validate_file_mode(source.get("defaultMode"), f"{path}.defaultMode")
    for index, item in enumerate(source.get("items", ())):
        problems += _validate_key_to_path(item, f"{path}.items[{index}]")
    return problems


def _validate_file_mode(mode: int | None, path: str) -> list[FieldProblem]:
    return [] if mode is None or 0 <= mode <= 0o777 else [invalid(path, mode, _MODE_MESSAGE)]


def _validate_key_to_path(item: JSON, path: str) -> list[FieldProblem]:
    problems = [required(f"{path}.{name}") for name in ("key", "path") if not item.get(name)]
    problems += _validate_volume_path(item.get("path", ""), f"{path}.path")
    return problems + _validate_file_mode(item.get("mode"), f"{path}.mode")


def _validate_nfs(source: JSON, path: str) -> list[FieldProblem]:
    problems = [required(f"{path}.{name}") for name in ("server", "path") if not source.get(name)]
    if not source.get("path", "").startswith("/"):
        problems.append(invalid(f"{path}.path", source.get("path", ""), "must be an absolute path"))
    return problems


def _validate_claim_source(source: JSON, path: str) -> list[FieldProblem]:
    return [] if source.get("claimName") else [required(f"{path}.claimName")]


def _validate_csi(source: JSON, path: str) -> list[FieldProblem]:
    problems = validate_csi_driver_name(source.get("driver", ""), f"{path}.driver")
    if "nodePublishSecretRef" in source:
        name = source["nodePublishSecretRef"].get("name", "")
        if not name:
            problems.append(required(f"{path}.nodePublishSecretRef.name"))
        else:
            problems += invalid_each(f"{path}.name", name, formats.dns_subdomain_errors(name))
    return problems


def validate_csi_driver_name(name: str, path: str) -> list[FieldProblem]:
    """Problems of the name of a CSI driver."""
    problems = [] if name else [required(path)]
    if len(name) > 63:
        problems.append(too_long(path, 63))
    return problems + invalid_each(path, name, formats.dns_subdomain_errors(name.lower()))


def _validate_ephemeral(source: JSON, path: str) -> list[FieldProblem]:
    if "volumeClaimTemplate" not in source:
        return [required(f"{path}.volumeClaimTemplate")]
    return claims.validate_claim_template(source["volumeClaimTemplate"], f"{path}.volumeClaimTemplate")


def _validate_image(source: JSON, path: str) -> list[FieldProblem]:
    problems = [] if source.get("reference") else [required(f"{path}.reference")]
    return problems + validate_pull_policy(source.get("pullPolicy", ""), f"{path}.pullPolicy")


def validate_pull_policy(policy: str, path: str) -> list[FieldProblem]:
    """Problems of the pull policy of a container's or volume's image."""
    supported = ("Always", "IfNotPresent", "Never")
    if policy in supported:
        return []
    return [unsupported(path, policy, supported)] if policy else [required(path)]


def _validate_downward_api(source: JSON, path: str) -> list[FieldProblem]:
    problems = _validate_file_mode(source.get("defaultMode"), f"{path}.defaultMode")
    for item in source.get("items", ()):
        problems += _validate_downward_item(item, path)
    return problems


def _validate_downward_item(item: JSON, path: str) -> list[FieldProblem]:
    problems = [] if item.get("path") else [required(f"{path}.path")]
    problems += _validate_volume_path(item.get("path", ""), f"{path}.path")
    if "fieldRef" in item:
        problems += downward_api.validate_field_ref(
            item["fieldRef"], downward_api.VOLUME_FIELD_PATHS, f"{path}.fieldRef"
        )
        if "resourceFieldRef" in item:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            problems.append(invalid(path, "resource", detail))
    elif "resourceFieldRef" in item:
        reference = item["resourceFieldRef"]
        problems += downward_api.validate_resource_field_ref(reference, f"{path}.resourceFieldRef", of_volume=True)
    else:
        problems.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    return problems + _validate_file_mode(item.get("mode"), f"{path}.mode")


def _validate_projected(source: JSON, path: str) -> list[FieldProblem]:
    problems = _validate_file_mode(source.get("defaultMode"), f"{path}.defaultMode")
    file_paths: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        item_path = f"{path}.sources[{index}]"
        for name in ("secret", "configMap"):
            if name in projection:
                problems += _validate_projected_keys(projection[name], f"{item_path}.{name}", path, file_paths)
        if "downwardAPI" in projection:
            for item in projection["downwardAPI"].get("items", ()):
                problems += _validate_downward_item(item, f"{item_path}.downwardAPI")
                problems += _validate_path_unique(item.get("path", ""), item.get("path", ""), path, file_paths)
        if "serviceAccountToken" in projection:
            problems += _validate_token_projection(
                projection["serviceAccountToken"], f"{item_path}.serviceAccountToken", path
            )
        if len(projection) > 1:
            problems.append(forbidden(item_path, "may not specify more than 1 volume type per source"))
    return problems


def _validate_projected_keys(source: JSON, path: str, volume: str, file_paths: set[str]) -> list[FieldProblem]:
    problems = [] if source.get("name") else [required(f"{path}.name")]
    for index, item in enumerate(source.get("items", ())):
        problems += _validate_key_to_path(item, f"{path}.items[{index}]")
        problems += _validate_path_unique(item.get("path", ""), source.get("name", ""), volume, file_paths)
    return problems


def _validate_path_unique(file_path: str, value: str, path: str, file_paths: set[str]) -> list[FieldProblem]:
    if file_path in file_paths:
        return [invalid(path, value, "conflicting duplicate paths")]
    if file_path:
        file_paths.add(file_path)
    return []


def _validate_token_projection(token: JSON, path: str, volume: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    seconds = token.get("expirationSeconds", 0)
    if seconds < 600:
        detail = "may not specify a duration less than 10 minutes"
        problems.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if seconds > 1 << 32:
        detail = "may not specify a duration larger than 2^32 seconds"
        problems.append(invalid(f"{path}.expirationSeconds", seconds, detail))
    if not token.get("path"):
        return [*problems, required(f"{volume}.path")]
    return problems + _validate_volume_path(token["path"], f"{volume}.path")


def _validate_volume_path(file_path: str, path: str) -> list[FieldProblem]:
    problems = validate_descending_path(file_path, path)
    if file_path.startswith("..") and not file_path.startswith("../"):
        problems.append(invalid(path, file_path, "must not start with '..'"))
    return problems


def validate_descending_path(file_path: str, path: str) -> list[FieldProblem]:
    """Problems of a path that is not relative or leads upwards."""
    problems = [invalid(path, file_path, "must be a relative path")] if file_path.startswith("/") else []
    return problems + _validate_no_backsteps(file_path, path)


def _validate_no_backsteps(file_path: str, path: str) -> list[FieldProblem]:
    return [invalid(path, file_path, "must not contain '..'")] if ".." in file_path.split("/") else []


_SOURCE_VALIDATORS: dict[str, Callable[[JSON, str], list[FieldProblem]]] = {
    "emptyDir": _validate_empty_dir,
    "hostPath": _validate_host_path,
    "gitRepo": _validate_git_repo,
    "secret": _validate_secret,
    "configMap": _validate_config_map,
    "nfs": _validate_nfs,
    "persistentVolumeClaim": _validate_claim_source,
    "downwardAPI": _validate_downward_api,
    "projected": _validate_projected,
    "csi": _validate_csi,
    "ephemeral": _validate_ephemeral,
    "image": _validate_image,
}


def validate_source(kind: str, source: JSON, path: str) -> list[FieldProblem]:
    """Problems of one volume source, for persistent volumes."""
    return _SOURCE_VALIDATORS[kind](source, path)

"""Validation of a container's volume mounts and devices."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.pod.volumes import validate_descending_path
from gangline.schema.problems import FieldProblem, forbidden, invalid, not_found, required, unsupported


def validate_volume_mounts(container: JSON, volumes: dict[str, JSON], path: str) -> list[FieldProblem]:
    """Problems of the `volumeMounts` of a container."""
    problems: list[FieldProblem] = []
    devices = {device.get("name"): device.get("devicePath") for device in container.get("volumeDevices", ())}
    mount_paths: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        name, mount_path = mount.get("name", ""), mount.get("mountPath", "")
        if name not in volumes:
            item_path = f"{path}[{index}].name"
            problems += [not_found(item_path, name)] if name else [required(item_path), not_found(item_path, name)]
        if not mount_path:
            problems.append(required(f"{path}[{index}].mountPath"))
        if mount_path in mount_paths:
            problems.append(invalid(f"{path}[{index}].mountPath", mount_path, "must be unique"))
        mount_paths.add(mount_path)
        if devices:
            problems += _validate_device_conflicts(mount, devices, f"{path}[{index}]")
        if mount.keys() - _SIMPLE_MOUNT_FIELDS:
            problems += _validate_mount_options(mount, container, path, index)
    return problems


_SIMPLE_MOUNT_FIELDS = frozenset({"name", "mountPath", "readOnly"})


def _validate_device_conflicts(mount: JSON, devices: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if mount.get("name") in devices:
        problems.append(invalid(f"{path}.name", mount["name"], "must not already exist in volumeDevices"))
    if mount.get("mountPath") in devices.values():
        detail = "must not already exist as a path in volumeDevices"
        problems.append(invalid(f"{path}.mountPath", mount["mountPath"], detail))
    return problems


def _validate_mount_options(mount: JSON, container: JSON, path: str, index: int) -> list[FieldProblem]:
    # Most of these messages name the list, not the element.
    problems: list[FieldProblem] = []
    sub, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub:
        problems += validate_descending_path(sub, f"{path}.subPath")
    if expression:
        if sub:
            detail = "subPathExpr and subPath are mutually exclusive"
            problems.append(invalid(f"{path}[{index}].subPathExpr", expression, detail))
        problems += validate_descending_path(expression, f"{path}.subPathExpr")
    if "mountPropagation" in mount:
        problems += _validate_propagation(mount["mountPropagation"], container, f"{path}.mountPropagation")
    if "recursiveReadOnly" in mount:
        problems += _validate_recursive_read_only(mount, f"{path}.recursiveReadOnly")
    return problems


def _validate_propagation(mode: str, container: JSON, path: str) -> list[FieldProblem]:
    supported = ("Bidirectional", "HostToContainer", "None")
    problems = [] if mode in supported else [unsupported(path, mode, supported)]
    if mode == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
        detail = "Bidirectional mount propagation is available only to privileged containers"
        problems.append(forbidden(path, detail))
    return problems


def _validate_recursive_read_only(mount: JSON, path: str) -> list[FieldProblem]:
    mode, supported = mount["recursiveReadOnly"], ("Disabled", "Enabled", "IfPossible")
    if mode == "Disabled":
        return []
    if mode not in supported:
        return [unsupported(path, mode, supported)]
    problems: list[FieldProblem] = []
    if not mount.get("readOnly"):
        problems.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation", "None") != "None":
        detail = "may only be specified when mountPropagation is None or not specified"
        problems.append(forbidden(path, detail))
    return problems


def validate_volume_devices(container: JSON, volumes: dict[str, JSON], path: str) -> list[FieldProblem]:
    """Problems of the `volumeDevices` of a container."""
    problems: list[FieldProblem] = []
    mounted = {mount.get("name"): mount.get("mountPath") for mount in container.get("volumeMounts", ())}
    names: set[str] = set()
    device_paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        item_path, name, device_path = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            problems.append(required(f"{item_path}.name"))
        if name in names:
            problems.append(invalid(f"{item_path}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            problems.append(not_found(f"{item_path}.name", name))
        elif not volume.keys() & {"persistentVolumeClaim", "ephemeral"}:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            problems.append(invalid(f"{item_path}.name", name, detail))
        problems += _validate_device_path(device_path, device_paths, item_path)
        if name in mounted:
            problems.append(invalid(f"{item_path}.name", name, "must not already exist in volumeMounts"))
        if device_path in mounted.values():
            detail = "must not already exist as a path in volumeMounts"
            problems.append(invalid(f"{item_path}.devicePath", device_path, detail))
        if name:
            names.add(name)
    return problems


def _validate_device_path(device_path: str, device_paths: set[str], path: str) -> list[FieldProblem]:
    problems = [] if device_path else [required(f"{path}.devicePath")]
    if device_path in device_paths:
        problems.append(invalid(f"{path}.devicePath", device_path, "must be unique"))
    if ".." in device_path.split("/"):
        problems.append(invalid(f"{path}.devicePath", device_path, "can not contain backsteps ('..')"))
    else:
        device_paths.add(device_path)
    return problems

"""Validation of where a container mounts its pod's volumes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.pod.volumes import validate_descending_path
from gangline.schema.problems import FieldProblem, forbidden, invalid, not_found, required, unsupported


def validate_volume_mounts(container: JSON, known: dict[str, JSON], path: str) -> list[FieldProblem]:
    """`volumeMounts` of a container."""
    found: list[FieldProblem] = []
    devices = {one.get("name"): one.get("devicePath") for one in container.get("volumeDevices", ())}
    places: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        name, place = mount.get("name", ""), mount.get("mountPath", "")
        if name not in known:
            here = f"{path}[{index}].name"
            found += [not_found(here, name)] if name else [required(here), not_found(here, name)]
        if not place:
            found.append(required(f"{path}[{index}].mountPath"))
        if place in places:
            found.append(invalid(f"{path}[{index}].mountPath", place, "must be unique"))
        places.add(place)
        if devices:
            found += _validate_device_conflicts(mount, devices, f"{path}[{index}]")
        if mount.keys() - _SIMPLE_MOUNT_FIELDS:
            found += _validate_mount_options(mount, container, path, index)
    return found


_SIMPLE_MOUNT_FIELDS = frozenset({"name", "mountPath", "readOnly"})


def _validate_device_conflicts(mount: JSON, devices: JSON, here: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if mount.get("name") in devices:
        found.append(invalid(f"{here}.name", mount["name"], "must not already exist in volumeDevices"))
    if mount.get("mountPath") in devices.values():
        told = "must not already exist as a path in volumeDevices"
        found.append(invalid(f"{here}.mountPath", mount["mountPath"], told))
    return found


def _validate_mount_options(mount: JSON, container: JSON, path: str, index: int) -> list[FieldProblem]:
    # The list, not the element, is named in most of these.
    found: list[FieldProblem] = []
    sub, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub:
        found += validate_descending_path(sub, f"{path}.subPath")
    if expression:
        if sub:
            told = "subPathExpr and subPath are mutually exclusive"
            found.append(invalid(f"{path}[{index}].subPathExpr", expression, told))
        found += validate_descending_path(expression, f"{path}.subPathExpr")
    if "mountPropagation" in mount:
        found += _validate_propagation(mount["mountPropagation"], container, f"{path}.mountPropagation")
    if "recursiveReadOnly" in mount:
        found += _validate_recursive_read_only(mount, f"{path}.recursiveReadOnly")
    return found


def _validate_propagation(mode: str, container: JSON, path: str) -> list[FieldProblem]:
    known = ("Bidirectional", "HostToContainer", "None")
    found = [] if mode in known else [unsupported(path, mode, known)]
    if mode == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
        told = "Bidirectional mount propagation is available only to privileged containers"
        found.append(forbidden(path, told))
    return found


def _validate_recursive_read_only(mount: JSON, path: str) -> list[FieldProblem]:
    mode, known = mount["recursiveReadOnly"], ("Disabled", "Enabled", "IfPossible")
    if mode == "Disabled":
        return []
    if mode not in known:
        return [unsupported(path, mode, known)]
    found: list[FieldProblem] = []
    if not mount.get("readOnly"):
        found.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation", "None") != "None":
        told = "may only be specified when mountPropagation is None or not specified"
        found.append(forbidden(path, told))
    return found


def validate_volume_devices(container: JSON, known: dict[str, JSON], path: str) -> list[FieldProblem]:
    """`volumeDevices` of a container."""
    found: list[FieldProblem] = []
    mounted = {one.get("name"): one.get("mountPath") for one in container.get("volumeMounts", ())}
    names: set[str] = set()
    places: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        here, name, place = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        if not name:
            found.append(required(f"{here}.name"))
        if name in names:
            found.append(invalid(f"{here}.name", name, "must be unique"))
        volume = known.get(name)
        if volume is None:
            found.append(not_found(f"{here}.name", name))
        elif not volume.keys() & {"persistentVolumeClaim", "ephemeral"}:
            told = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            found.append(invalid(f"{here}.name", name, told))
        found += _validate_device_path(place, places, here)
        if name in mounted:
            found.append(invalid(f"{here}.name", name, "must not already exist in volumeMounts"))
        if place in mounted.values():
            told = "must not already exist as a path in volumeMounts"
            found.append(invalid(f"{here}.devicePath", place, told))
        if name:
            names.add(name)
    return found


def _validate_device_path(place: str, places: set[str], here: str) -> list[FieldProblem]:
    found = [] if place else [required(f"{here}.devicePath")]
    if place in places:
        found.append(invalid(f"{here}.devicePath", place, "must be unique"))
    if ".." in place.split("/"):
        found.append(invalid(f"{here}.devicePath", place, "can not contain backsteps ('..')"))
    else:
        places.add(place)
    return found

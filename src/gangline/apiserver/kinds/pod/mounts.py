"""Validation of where a container mounts its pod's volumes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery.problems import forbidden, invalid, not_found, required, unsupported
from gangline.apiserver.kinds.pod.volumes import descending
from gangline.schema.problems import Problem


def mounts(container: JSON, known: dict[str, JSON], path: str) -> list[Problem]:
    """`volumeMounts` of a container."""
    found: list[Problem] = []
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
            found += _beside_devices(mount, devices, f"{path}[{index}]")
        if mount.keys() - _SIMPLE_MOUNT:
            found += _mount_options(mount, container, path, index)
    return found


_SIMPLE_MOUNT = frozenset({"name", "mountPath", "readOnly"})


def _beside_devices(mount: JSON, devices: JSON, here: str) -> list[Problem]:
    found: list[Problem] = []
    if mount.get("name") in devices:
        found.append(invalid(f"{here}.name", mount["name"], "must not already exist in volumeDevices"))
    if mount.get("mountPath") in devices.values():
        told = "must not already exist as a path in volumeDevices"
        found.append(invalid(f"{here}.mountPath", mount["mountPath"], told))
    return found


def _mount_options(mount: JSON, container: JSON, path: str, index: int) -> list[Problem]:
    # The list, not the element, is named in most of these.
    found: list[Problem] = []
    sub, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub:
        found += descending(sub, f"{path}.subPath")
    if expression:
        if sub:
            told = "subPathExpr and subPath are mutually exclusive"
            found.append(invalid(f"{path}[{index}].subPathExpr", expression, told))
        found += descending(expression, f"{path}.subPathExpr")
    if "mountPropagation" in mount:
        found += _propagation(mount["mountPropagation"], container, f"{path}.mountPropagation")
    if "recursiveReadOnly" in mount:
        found += _recursive_read_only(mount, f"{path}.recursiveReadOnly")
    return found


def _propagation(mode: str, container: JSON, path: str) -> list[Problem]:
    known = ("Bidirectional", "HostToContainer", "None")
    found = [] if mode in known else [unsupported(path, mode, known)]
    if mode == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
        told = "Bidirectional mount propagation is available only to privileged containers"
        found.append(forbidden(path, told))
    return found


def _recursive_read_only(mount: JSON, path: str) -> list[Problem]:
    mode, known = mount["recursiveReadOnly"], ("Disabled", "Enabled", "IfPossible")
    if mode == "Disabled":
        return []
    if mode not in known:
        return [unsupported(path, mode, known)]
    found: list[Problem] = []
    if not mount.get("readOnly"):
        found.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation", "None") != "None":
        told = "may only be specified when mountPropagation is None or not specified"
        found.append(forbidden(path, told))
    return found


def devices(container: JSON, known: dict[str, JSON], path: str) -> list[Problem]:
    """`volumeDevices` of a container."""
    found: list[Problem] = []
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
        found += _device_path(place, places, here)
        if name in mounted:
            found.append(invalid(f"{here}.name", name, "must not already exist in volumeMounts"))
        if place in mounted.values():
            told = "must not already exist as a path in volumeMounts"
            found.append(invalid(f"{here}.devicePath", place, told))
        if name:
            names.add(name)
    return found


def _device_path(place: str, places: set[str], here: str) -> list[Problem]:
    found = [] if place else [required(f"{here}.devicePath")]
    if place in places:
        found.append(invalid(f"{here}.devicePath", place, "must be unique"))
    if ".." in place.split("/"):
        found.append(invalid(f"{here}.devicePath", place, "can not contain backsteps ('..')"))
    else:
        places.add(place)
    return found

"""Pods' subresources `ephemeralcontainers` and `resize`: each changes one part of the spec that other writes may not."""

from collections.abc import Iterator

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery.strategy import restore_field
from gangline.apiserver.kinds.pod.update import diff_text
from gangline.schema.problems import FieldProblem, forbidden, invalid

EPHEMERAL_CONTAINERS, RESIZE = "ephemeralcontainers", "resize"
SPEC_SUBRESOURCES = (EPHEMERAL_CONTAINERS, RESIZE)
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_RESIZABLE = ("cpu", "memory")


def restore_for_ephemeral_containers(obj: JSON, old: JSON) -> None:
    """Restore, in place, everything but the ephemeral containers."""
    added = obj["spec"].get("ephemeralContainers")
    _restore_all(obj, old)
    obj["spec"].pop("ephemeralContainers", None)
    if added is not None:
        obj["spec"]["ephemeralContainers"] = added


def restore_for_resize(obj: JSON, old: JSON) -> None:
    """Restore, in place, everything but the resources of containers and their resize policies."""
    wanted = {container["name"]: container for _, container in _resizable_containers(obj["spec"])}
    _restore_all(obj, old)
    for name in ("containers", "initContainers"):
        if old["spec"].get(name):
            obj["spec"][name] = [_resized(container, wanted.get(container["name"])) for container in old["spec"][name]]


def _resized(container: JSON, wanted: JSON | None) -> JSON:
    resized = {**container}
    if wanted is not None:
        for field in ("resources", "resizePolicy"):
            restore_field(resized, wanted, field)
    return resized


def _restore_all(obj: JSON, old: JSON) -> None:
    for name in ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"):
        restore_field(obj["metadata"], old["metadata"], name)
    restore_field(obj, old, "status")
    obj["spec"] = {**old["spec"]}


def validate_ephemeral_containers_update(obj: JSON, old: JSON) -> list[FieldProblem]:
    """Problems of the change: ephemeral containers can be added, and stay as they are."""
    if MIRROR_ANNOTATION in old["metadata"].get("annotations", {}):
        return [forbidden("", "static pods do not support ephemeral containers")]
    path, now = (
        "spec.ephemeralContainers",
        {item["name"]: item for item in obj["spec"].get("ephemeralContainers") or ()},
    )
    problems = []
    for before in old["spec"].get("ephemeralContainers") or ():
        name = before["name"]
        if name not in now:
            problems.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif now[name] != before:
            difference = diff_text(before, now[name])
            problems.append(forbidden(path, f'existing ephemeral containers "{name}" may not be changed\n{difference}'))
    return problems


def validate_resize(obj: JSON, old: JSON, qos_before: str, qos_after: str) -> list[FieldProblem]:
    """Problems of the change of resources. The QoS classes are those of the spec before and after."""
    if MIRROR_ANNOTATION in old["metadata"].get("annotations", {}):
        return [forbidden("", "static pods cannot be resized")]
    problems = []
    if qos_after != qos_before:
        detail = "Pod QOS Class may not change as a result of resizing"
        problems.append(invalid("spec", qos_after, detail))
    if not _node_can_resize(old):
        problems.append(forbidden("spec", "Pod running on node without support for resize"))
    changes = zip(_resizable_containers(obj["spec"]), _resizable_containers(old["spec"]), strict=True)
    for (path, now), (_, before) in changes:
        problems += _removed_resources(path, now.get("resources") or {}, before.get("resources") or {})
    if _without_resizable(obj["spec"]) != _without_resizable(old["spec"]):
        problems.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return problems


def _node_can_resize(pod: JSON) -> bool:
    """Whether the node reports the resources of the pod's running containers, as one does that can change them."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    running = [status for status in statuses if "running" in (status.get("state") or {})]
    return not running or running[0].get("resources") is not None


def _removed_resources(path: str, now: JSON, before: JSON) -> Iterator[FieldProblem]:
    for field in ("limits", "requests"):
        removed = [
            name for name in _RESIZABLE if name in (before.get(field) or {}) and name not in (now.get(field) or {})
        ]
        if removed:
            yield forbidden(f"{path}.resources.{field}", f"resource {field} cannot be removed")


def _resizable_containers(spec: JSON) -> Iterator[tuple[str, JSON]]:
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            if group == "containers" or container.get("restartPolicy") == "Always":
                yield f"spec.{group}[{index}]", container


def _without_resizable(spec: JSON) -> JSON:
    """The spec without what a resize may change."""
    rest = {**spec}
    for group in ("containers", "initContainers"):
        if spec.get(group):
            rest[group] = [_without_amounts(container) for container in spec[group]]
    return rest


def _without_amounts(container: JSON) -> JSON:
    resources = container.get("resources") or {}
    amounts = {
        field: {name: value for name, value in (resources.get(field) or {}).items() if name not in _RESIZABLE}
        for field in ("limits", "requests")
    }
    others = {name: value for name, value in resources.items() if name not in ("limits", "requests")}
    return {**container, "resources": {**others, **amounts}, "resizePolicy": None}

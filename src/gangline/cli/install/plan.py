"""What an installation changes, as a pure function of the objects to install and those on the server."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from gangline.api.meta import JSON, Key
from gangline.base.errors import GanglineError
from gangline.cli.install.record import InstallationRecord, ObjectRef, object_ref, stale_objects

HELM_RELEASE, HELM_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
CRD_KIND = "CustomResourceDefinition"
_SERVER_METADATA = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
_CLIENT_APPLY = "kubectl.kubernetes.io/last-applied-configuration"


class InstallConflict(GanglineError):
    """An object of the installation belongs to somebody else."""


class ChangeAction(StrEnum):
    """What becomes of an object, in kubectl's words."""

    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    # No right to change it, and no need to.
    LEFT_ALONE = "left as it is"


class ObservedObject(NamedTuple):
    """An object to install and what the server has of it.

    `existing` is None if there is none. `result` is the object as the server would store it (a dry run); None if that
    could not be tried, because its namespace or its role does not exist yet.
    """

    body: JSON
    existing: JSON | None = None
    result: JSON | None = None
    is_left_alone: bool = False


class ObjectChange(NamedTuple):
    """What becomes of one object."""

    ref: ObjectRef
    action: ChangeAction
    body: JSON
    existing: JSON | None = None
    result: JSON | None = None


class InstallPlan(NamedTuple):
    """The changes in the order in which they are applied, and the objects to delete after them."""

    changes: tuple[ObjectChange, ...]
    stale: tuple[ObjectRef, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether everything is as it should be."""
        idle = (ChangeAction.UNCHANGED, ChangeAction.LEFT_ALONE)
        return not self.stale and all(change.action in idle for change in self.changes)

    @property
    def refs(self) -> tuple[ObjectRef, ...]:
        """The objects that belong to the installation."""
        return tuple(change.ref for change in self.changes if change.action is not ChangeAction.LEFT_ALONE)


def install_plan(observed: Sequence[ObservedObject], record: InstallationRecord | None) -> InstallPlan:
    """What is to be changed. Raises `InstallConflict` if an object belongs to a Helm release."""
    for item in observed:
        _check_helm(item)
    changes = tuple(
        ObjectChange(object_ref(item.body), _action(item), item.body, item.existing, item.result) for item in observed
    )
    return InstallPlan(changes, stale_objects(record, [change.ref for change in changes]))


def _action(item: ObservedObject) -> ChangeAction:
    if item.is_left_alone:
        return ChangeAction.LEFT_ALONE
    if item.existing is None:
        return ChangeAction.CREATED
    if item.result is not None and comparable(item.existing) == comparable(item.result):
        return ChangeAction.UNCHANGED
    return ChangeAction.CONFIGURED


def comparable(body: JSON) -> JSON:
    """An object without what the server keeps of it: its status, versions and managers."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _SERVER_METADATA}
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}


def portable(body: JSON) -> JSON:
    """An object as it can be created again on a server: without server's fields and kubectl's own annotation."""
    clean = comparable(body)
    annotations = {
        name: value
        for name, value in (clean["metadata"].pop("annotations", None) or {}).items()
        if name != _CLIENT_APPLY
    }
    metadata = {**clean["metadata"], **({"annotations": annotations} if annotations else {})}
    return {**clean, "metadata": metadata}


def helm_release(body: JSON | None) -> str:
    """The Helm release that an object belongs to, as `namespace/name`; empty if it belongs to none."""
    annotations: Mapping[str, Any] = ((body or {}).get("metadata") or {}).get("annotations") or {}
    name = annotations.get(HELM_RELEASE)
    return f"{annotations.get(HELM_NAMESPACE, '')}/{name}" if name else ""


def _check_helm(item: ObservedObject) -> None:
    release = helm_release(item.existing)
    # Definitions outlive the release that installed them.
    if not release or item.body["kind"] == CRD_KIND:
        return
    namespace, _, name = release.partition("/")
    raise InstallConflict(
        f"{object_ref(item.body).display_name} belongs to the Helm release {name} in namespace {namespace}: go on with"
        f" helm upgrade, or end it first (jobs and CRDs stay): helm uninstall {name} -n {namespace}"
    )


def overlap_problem(deployments: Iterable[JSON], namespaces: Sequence[str], own: Collection[Key]) -> str:
    """Which gangline operator, other than our own, serves some of these namespaces, none being all; empty if none does.

    In its own namespaces an operator cannot see one that serves the whole cluster from elsewhere.
    """
    for body in deployments:
        key = Key(body["metadata"]["namespace"], body["metadata"]["name"])
        served = _served_namespaces(body)
        shared = [name for name in namespaces if name in served] if namespaces and served else True
        if key in own or not shared or not body["spec"].get("replicas", 1):
            continue
        release_namespace, _, release = helm_release(body).partition("/")
        removal = f"gangline uninstall --namespace {key.namespace}"
        if release:
            removal = f"helm uninstall {release} -n {release_namespace}"
        scope = ", ".join(served) if served else "all namespaces"
        return (
            f"another gangline serves these jobs: deployment {key} serves {scope}; change that one, or remove it first"
            f" (jobs and CRDs stay): {removal}"
        )
    return ""


def _served_namespaces(deployment: JSON) -> tuple[str, ...]:
    """The namespaces that an operator serves; none: all."""
    arguments = deployment["spec"]["template"]["spec"]["containers"][0].get("args") or ()
    flags = (argument.removeprefix("--namespace=") for argument in arguments if argument.startswith("--namespace="))
    return tuple(name for flag in flags for name in flag.split(","))


def field_managers(messages: Iterable[str]) -> tuple[str, ...]:
    """The managers that a conflict of server-side apply names: `conflict with "kubectl" using v1`."""
    return tuple(dict.fromkeys(message.split('"')[1] for message in messages if message.count('"') >= 2))

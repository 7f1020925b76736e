"""Namespaces."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.problems import each, invalid
from gangline.apiserver.kinds.machinery.strategy import Kind, take
from gangline.schema.problems import Problem

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"
_KNOWN = frozenset({"orphan", "foregroundDeletion", FINALIZER})


class NamespaceKind(Kind):
    """Its finalizers change only through `finalize`, its phase only with its deletion."""

    struct = "core.v1.Namespace"
    namespaced = False
    has_status = True

    def name_check(self, name: str) -> tuple[str, ...]:
        return formats.dns_label(name)

    def set_defaults(self, obj: JSON) -> None:
        name_namespace(obj)
        obj["status"].setdefault("phase", "Active")

    def create(self, obj: JSON, now: str) -> None:
        name_namespace(obj)  # once more: the name may have been generated
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].get("finalizers", [])
        if FINALIZER not in finalizers:
            obj["spec"]["finalizers"] = [*finalizers, FINALIZER]

    def update(self, obj: JSON, old: JSON) -> None:
        take(obj["spec"], old["spec"], "finalizers")
        obj["status"] = old["status"]

    def update_finalizers(self, obj: JSON, old: JSON) -> None:
        """An update of `finalize` changes nothing but the finalizers."""
        obj["status"] = old["status"]

    def check(self, obj: JSON) -> list[Problem]:
        return _finalizers(obj["spec"].get("finalizers", ()), "spec.finalizers", numbered=False)

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return [*self.validate(obj), *self.validate_metadata_update(obj, old)]

    def validate_finalize_update(self, obj: JSON, old: JSON) -> list[Problem]:
        """Problems of an update of `finalize`."""
        finalizers = obj["spec"].get("finalizers", ())
        return [
            *self._validate_common(obj, old),
            *self.validate_metadata_update(obj, old),
            *_finalizers(finalizers, "spec.finalizers", numbered=True),
        ]

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        phase = obj["status"].get("phase", "")
        if obj["metadata"].get("deletionTimestamp"):
            told = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            return [] if phase == "Terminating" else [invalid("status.Phase", phase, told)]
        told = "may only be 'Active' if `deletionTimestamp` is empty"
        return [] if phase == "Active" else [invalid("status.Phase", phase, told)]


def name_namespace(obj: JSON) -> None:
    """Every namespace is labelled with its name."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})[NAME_LABEL] = name


def _finalizers(finalizers: list[str] | tuple[()], path: str, *, numbered: bool) -> list[Problem]:
    found: list[Problem] = []
    for index, finalizer in enumerate(finalizers):
        here = f"{path}[{index}]" if numbered else path
        found += each(here, finalizer, formats.qualified_name(finalizer))
        if "/" not in finalizer and finalizer not in _KNOWN:
            told = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid(here, finalizer, told))
    return found

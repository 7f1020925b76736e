"""Namespaces."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy, restore_field
from gangline.schema.problems import FieldProblem, invalid, invalid_each

NAME_LABEL = "kubernetes.io/metadata.name"
NAMESPACE_FINALIZER = "kubernetes"
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", NAMESPACE_FINALIZER})


class NamespaceStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        phase = obj["status"].get("phase", "")
        if obj["metadata"].get("deletionTimestamp"):
            detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            return [] if phase == "Terminating" else [invalid("status.Phase", phase, detail)]
        detail = "may only be 'Active' if `deletionTimestamp` is empty"
        return [] if phase == "Active" else [invalid("status.Phase", phase, detail)]


class NamespaceStrategy(Strategy):
    """Finalizers of a namespace change only through `finalize`, its phase only with its deletion."""

    struct = "core.v1.Namespace"
    namespaced = False
    has_status = True
    name_errors = staticmethod(formats.dns_label_errors)
    status_strategy = NamespaceStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        set_name_label(obj)
        obj["status"].setdefault("phase", "Active")

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        set_name_label(obj)  # Again, because the name may have been generated.
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].get("finalizers", [])
        if NAMESPACE_FINALIZER not in finalizers:
            obj["spec"]["finalizers"] = [*finalizers, NAMESPACE_FINALIZER]

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        restore_field(obj["spec"], old["spec"], "finalizers")
        obj["status"] = old["status"]

    def prepare_for_finalize_update(self, obj: JSON, old: JSON) -> None:
        """Restore the status: an update of `finalize` changes the finalizers only."""
        obj["status"] = old["status"]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return _validate_finalizers(obj["spec"].get("finalizers", ()), "spec.finalizers", numbered=False)

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*self.validate(obj), *self.metadata.validate_update(obj, old)]

    def validate_finalize_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of an update of `finalize`."""
        finalizers = obj["spec"].get("finalizers", ())
        return [
            *self.metadata.validate_common_update(obj, old),
            *self.metadata.validate_update(obj, old),
            *_validate_finalizers(finalizers, "spec.finalizers", numbered=True),
        ]


def set_name_label(obj: JSON) -> None:
    """Label a namespace with its own name."""
    name = obj["metadata"].get("name")
    if name:
        obj["metadata"].setdefault("labels", {})[NAME_LABEL] = name


def _validate_finalizers(finalizers: list[str] | tuple[()], path: str, *, numbered: bool) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, finalizer in enumerate(finalizers):
        item_path = f"{path}[{index}]" if numbered else path
        problems += invalid_each(item_path, finalizer, formats.qualified_name_errors(finalizer))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(invalid(item_path, finalizer, detail))
    return problems

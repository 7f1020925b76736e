"""The steps that all writes share: options and result, defaulting, validation by the strategy, field ownership."""

from collections.abc import Callable
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.api.quantity import QuantityError
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.apply import ApplyResult
from gangline.apiserver.apply.managed_fields import scaled_managed_fields, updated_managed_fields
from gangline.apiserver.errors import StatusError
from gangline.apiserver.kinds.core.namespace import NamespaceStrategy
from gangline.apiserver.kinds.crd.resource_metadata import prune_metadata
from gangline.apiserver.kinds.crd.resource_strategy import CustomResourceStrategy
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.kinds.pod.strategy import PodStrategy
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.users import SERVER_USER, UserInfo
from gangline.schema.problems import FieldProblem
from gangline.schema.structural.embedded_objects import MetadataError

MAX_COMMIT_ATTEMPTS = 10
"""How often a write is tried when other writers change the object at the same time."""


class WriteContext(msgspec.Struct, frozen=True):
    """Options and preconditions of a write."""

    field_manager: str = "gangline"
    dry_run: bool = False
    subresource: str = ""
    field_validation: str = ""
    """What happens to unknown fields: Strict, Warn (the default) or Ignore."""
    is_put: bool = False
    """Whether the client sent the whole object: some kinds are not replaced without a resourceVersion."""
    expected_uid: str = ""
    """If set, the write fails unless the object has this uid."""
    replicas_path: tuple[str, ...] | None = None
    """The path of the replicas that a write of `scale` changes."""
    user: UserInfo = SERVER_USER
    """Who writes, for admission."""
    check_create: Callable[[], None] | None = None
    """Called before an update creates a missing object. Raises `StatusError` if the user may not create."""
    audit_annotations: dict[str, str] | None = None
    """Annotations of the request's audit event, which admission adds to; None: no event is recorded."""


class WriteResult(msgspec.Struct, frozen=True):
    """The encoded object after the write (for a deletion: as it was last), and warnings for the client."""

    data: bytes
    created: bool = False
    warnings: tuple[str, ...] = ()
    is_status: bool = False
    """The data is a Status, not the object."""


UpdateFunc = Callable[[JSON | None], JSON]
"""Makes the new object from the old one, which it may change in place. The argument is None if there is no object."""
ApplyFunc = Callable[[JSON | None, str], ApplyResult]
"""The result of an apply to the stored object, if any, at a time. Raises `ApplyConflict` or `StatusError`."""


def default_and_prune(context: WriteContext, served_kind: ServedKind, obj: JSON) -> list[str]:
    """Set defaults and prune unknown fields, in place. Returns warnings. Raises `StatusError`."""
    try:
        if not isinstance(served_kind.strategy, CustomResourceStrategy):
            served_kind.strategy.normalize(obj)
            return []
        prune_metadata(obj["metadata"])
        dropped = [f'unknown field "{path}"' for path in served_kind.strategy.default_and_prune(obj)]
    except (QuantityError, MetadataError) as error:
        raise apierrors.bad_request(str(error)) from error
    # With Strict, a request with unknown fields does not come here.
    return [] if context.field_validation == "Ignore" else dropped


def prepare_and_validate(subresource: str, strategy: Strategy, new: JSON, old: JSON) -> list[FieldProblem]:
    """Restore, in place, the fields that a write of this subresource may not change. Returns what is invalid."""
    match subresource:
        case "status":
            strategy.status.prepare_for_update(new, old)
            return strategy.status.validate_update(new, old)
        case "finalize" if isinstance(strategy, NamespaceStrategy):
            strategy.prepare_for_finalize_update(new, old)
            return strategy.validate_finalize_update(new, old)
        case "ephemeralcontainers" | "resize" if isinstance(strategy, PodStrategy):
            return strategy.prepare_and_validate_spec_subresource(subresource, new, old)
        case "binding":
            return []  # the only write that may set the node of a pod
        case _ if (part := strategy.part(subresource)) is not None:
            part.prepare_for_update(new, old)
            return part.validate_update(new, old)
        case _:
            strategy.prepare_for_update(new, old)
            return strategy.validate_update(new, old)


def check_applied_values(served_kind: ServedKind, name: str, obj: JSON) -> None:
    """Check that quantities, times and bytes can be parsed, which apply does not. Raises `StatusError` (500)."""
    if served_kind.decoder is None:
        return
    error = served_kind.decoder.errors(msgspec.json.encode(obj), obj).error
    if error:
        kind = f"{served_kind.resource.group}/{served_kind.resource.version}, Kind={served_kind.resource.kind}"
        why = f"error decoding from json: {error}" if error.startswith("illegal base64") else error
        raise StatusError(
            500,
            f"failed to convert new object (/{name}; {kind}) to proper version: "
            f"unable to convert unstructured object to {kind}: {why}",
        )


def managed_fields(context: WriteContext, served_kind: ServedKind, old: JSON | None, new: JSON, now: str) -> list[JSON]:
    """The managedFields of an object after a write other than apply."""
    before: list[JSON] = ((old or {}).get("metadata") or {}).get("managedFields") or []
    if context.subresource == "binding":
        return before
    if context.subresource == "scale" and context.replicas_path is not None:
        return scaled_managed_fields(
            before,
            manager=context.field_manager,
            api_version=served_kind.resource.api_version,
            path=[f"f:{step}" for step in context.replicas_path],
            # Of a custom resource, kube-apiserver forgets who has scaled it.
            owned=not served_kind.custom,
        )
    kind = served_kind.managed_kind(context.subresource)
    return updated_managed_fields(old, new, kind, manager=context.field_manager, now=now)


def set_managed_fields(served_kind: ServedKind, obj: JSON, managed: list[JSON]) -> None:
    if managed and served_kind.custom:
        # Go writes custom objects, which are maps to it, in the order of their keys; some clients sort texts by it.
        obj["metadata"]["managedFields"] = with_sorted_keys(managed)
    elif managed:
        obj["metadata"]["managedFields"] = managed
    else:
        obj["metadata"].pop("managedFields", None)


def with_sorted_keys(value: Any) -> Any:
    """The same JSON value with the keys of all objects sorted."""
    if isinstance(value, dict):
        return {key: with_sorted_keys(value[key]) for key in sorted(value)}
    return [with_sorted_keys(item) for item in value] if isinstance(value, list) else value

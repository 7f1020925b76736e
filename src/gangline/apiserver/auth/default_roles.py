"""The roles and bindings that kube-apiserver creates at its start, recorded by hack/default_roles.py.

At every start missing objects are created again, and missing rules and subjects are added, except to objects with the
annotation `rbac.authorization.kubernetes.io/autoupdate: "false"`.
"""

import pkgutil
import zlib
from collections.abc import Iterator

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.auth.policy_rules import policy_rules, uncovered_rules
from gangline.apiserver.auth.role_index import RBAC_GROUP
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.uuids import random_uuid

AUTO_UPDATE_ANNOTATION = "rbac.authorization.kubernetes.io/autoupdate"


async def ensure_default_roles(store: Store, now: str) -> None:
    """Create or complete the default roles and bindings, in one commit. Idempotent."""
    writes = [write for role in default_roles() if (write := _role_write(store, role, now)) is not None]
    if writes:
        await store.commit(*writes)


def default_roles() -> list[JSON]:
    """New copies of the objects, without uid and times."""
    data = pkgutil.get_data("gangline.apiserver", "data/default_roles.json.z")
    assert data is not None
    roles: list[JSON] = msgspec.json.decode(zlib.decompress(data))
    return roles


def _role_write(store: Store, role: JSON, now: str) -> StoreWrite | None:
    metadata = role["metadata"]
    path = object_path(RBAC_GROUP, f"{role['kind'].lower()}s", metadata.get("namespace", ""), metadata["name"])
    record = store.get(path)
    if record is None:
        return StoreWrite(path, _with_identity(role, now), 0)
    existing = decode_record(record)
    if (existing["metadata"].get("annotations") or {}).get(AUTO_UPDATE_ANNOTATION) == "false":
        return None
    if "roleRef" in role and role["roleRef"] != existing["roleRef"]:
        return StoreWrite(path, _with_identity(role, now), record.revision)
    completed = completed_role(existing, role)
    return StoreWrite(path, completed, record.revision) if completed != existing else None


def _with_identity(role: JSON, now: str) -> JSON:
    metadata = role["metadata"]
    metadata["uid"], metadata["creationTimestamp"] = random_uuid(), now
    for entry in metadata["managedFields"]:
        entry["time"] = now
    return role


def completed_role(existing: JSON, expected: JSON) -> JSON:
    """The existing role or binding with the expected rules, subjects, labels and annotations that it does not have."""
    completed: JSON = {**existing, "metadata": dict(existing["metadata"])}
    for field in ("labels", "annotations"):
        completed["metadata"][field] = {**expected["metadata"][field], **(existing["metadata"].get(field) or {})}
    if "roleRef" in expected:
        subjects = list(existing.get("subjects") or ())
        missing_subjects = [subject for subject in expected.get("subjects") or () if subject not in subjects]
        if missing_subjects:
            completed["subjects"] = [*subjects, *missing_subjects]
        return completed
    _complete_aggregation(completed, existing, expected)
    if "aggregationRule" not in expected:  # the rules of aggregated roles are the controller's
        missing_rules = list(_missing_rules(existing, expected))
        if missing_rules:
            completed["rules"] = [*(existing.get("rules") or ()), *missing_rules]
    return completed


def _complete_aggregation(completed: JSON, existing: JSON, expected: JSON) -> None:
    if "aggregationRule" not in expected:
        completed.pop("aggregationRule", None)
        return
    selectors = list((existing.get("aggregationRule") or {}).get("clusterRoleSelectors") or ())
    missing = [item for item in expected["aggregationRule"]["clusterRoleSelectors"] if item not in selectors]
    if missing:
        completed["aggregationRule"] = {"clusterRoleSelectors": [*selectors, *missing]}


def _missing_rules(existing: JSON, expected: JSON) -> Iterator[JSON]:
    for rule in uncovered_rules(policy_rules(existing), policy_rules(expected)):
        yield msgspec.json.decode(msgspec.json.encode(rule))

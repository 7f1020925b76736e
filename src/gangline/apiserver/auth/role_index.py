"""Roles and bindings of a store, indexed by subject, so that a request costs microseconds."""

from collections.abc import Iterator

import msgspec

from gangline.apiserver.auth.policy_rules import PolicyRule
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreRecord
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from gangline.apiserver.users import UserInfo, service_account_user_name
from gangline.schema.go_text import quoted_text

RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC_PREFIX = f"/{RBAC_GROUP}/"
MAX_CACHED_USERS = 4096


class RoleReference(msgspec.Struct, frozen=True, rename="camel"):
    """The role that a binding grants."""

    kind: str = ""
    name: str = ""
    api_group: str = ""

    @property
    def plural(self) -> str:
        return f"{self.kind.lower()}s"


class RoleSubject(msgspec.Struct, frozen=True):
    """To whom a binding grants its role."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleGrant(msgspec.Struct, frozen=True):
    """A binding that applies to a user, and the rules of its role."""

    source: str
    """The binding in the words of a decision's reason."""
    rules: tuple[PolicyRule, ...] = ()
    missing: RoleReference | None = None
    """The role, if it does not exist."""


class _StoredRole(msgspec.Struct, frozen=True):
    rules: tuple[PolicyRule, ...] | None = None


class _StoredBinding(msgspec.Struct, frozen=True):
    role: RoleReference = msgspec.field(name="roleRef")
    subjects: tuple[RoleSubject, ...] | None = None


class _BoundSubject(msgspec.Struct, frozen=True):
    position: int
    """In the list of the binding's subjects."""
    source: str
    role: RoleReference


_decode_role = msgspec.json.Decoder(_StoredRole).decode
_decode_binding = msgspec.json.Decoder(_StoredBinding).decode


class RoleIndex:
    """Which roles are granted to whom. It follows the store: every answer is of the newest revision."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: StoreWatch | None = None
        self._roles: dict[tuple[str, str], tuple[PolicyRule, ...]] = {}
        """By namespace and name; the namespace of cluster roles is empty."""
        self._bound: dict[str, dict[str, dict[str, _BoundSubject]]] = {}
        """By namespace, subject and path of the binding."""
        self._subjects_by_path: dict[str, list[str]] = {}
        self._grants: dict[tuple[str, tuple[str, ...], str], tuple[RoleGrant, ...]] = {}

    def grants(self, user: UserInfo, namespace: str) -> tuple[RoleGrant, ...]:
        """What the bindings of the cluster, then those of the namespace if it is not empty, grant to a user."""
        self._follow()
        key = (user.name, user.groups, namespace)
        grants = self._grants.get(key)
        if grants is None:
            if len(self._grants) >= MAX_CACHED_USERS:
                self._grants.clear()
            grants = self._grants[key] = tuple(self._find_grants(user, namespace))
        return grants

    def role_rules(self, role: RoleReference, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of a role that a binding in a namespace names; None if the role does not exist."""
        self._follow()
        return self._role_rules(role, namespace)

    def _role_rules(self, role: RoleReference, namespace: str) -> tuple[PolicyRule, ...] | None:
        if role.kind == "ClusterRole":
            return self._roles.get(("", role.name))
        return self._roles.get((namespace, role.name)) if namespace else None

    def _find_grants(self, user: UserInfo, namespace: str) -> Iterator[RoleGrant]:
        subjects = (_user_key(user.name), *map(_group_key, user.groups))
        for scope in ("", namespace) if namespace else ("",):
            by_subject = self._bound.get(scope, {})
            first: dict[str, _BoundSubject] = {}
            for subject in subjects:
                for path, bound in by_subject.get(subject, {}).items():
                    if path not in first or bound.position < first[path].position:
                        first[path] = bound
            for path in sorted(first):
                yield self._grant(first[path], scope)

    def _grant(self, bound: _BoundSubject, scope: str) -> RoleGrant:
        rules = self._role_rules(bound.role, scope)
        return RoleGrant(bound.source, missing=bound.role) if rules is None else RoleGrant(bound.source, rules)

    # Following the store

    def _follow(self) -> None:
        changes = self._watch.pending() if self._watch is not None else None
        if changes is None:
            self._load()
        elif changes:
            self._grants.clear()
            for event in changes:
                self._remove(event.record.path)
                if not event.deleted:
                    self._add(event.record)

    def _load(self) -> None:
        for index in (self._roles, self._bound, self._subjects_by_path, self._grants):
            index.clear()
        snapshot = self._store.range(RBAC_PREFIX)
        self._watch = self._store.watch(RBAC_PREFIX, after=snapshot.revision)
        for record in snapshot.records:
            self._add(record)

    def _remove(self, path: str) -> None:
        parts = split_path(path)
        if parts.plural.endswith("roles"):
            self._roles.pop((parts.namespace, parts.name), None)
        for subject in self._subjects_by_path.pop(path, ()):
            by_path = self._bound[parts.namespace][subject]
            by_path.pop(path, None)
            if not by_path:
                del self._bound[parts.namespace][subject]

    def _add(self, record: StoreRecord) -> None:
        parts = split_path(record.path)
        if parts.plural.endswith("roles"):
            self._roles[parts.namespace, parts.name] = _decode_role(record.data).rules or ()
            return
        binding = _decode_binding(record.data)
        by_subject = self._bound.setdefault(parts.namespace, {})
        keys = self._subjects_by_path[record.path] = []
        for position, subject in enumerate(binding.subjects or ()):
            key = _subject_key(subject, parts.namespace)
            if key and record.path not in (by_path := by_subject.setdefault(key, {})):
                source = _source_text(binding.role, parts.namespace, parts.name, subject)
                by_path[record.path] = _BoundSubject(position, source, binding.role)
                keys.append(key)


def _user_key(name: str) -> str:
    return f"user {name}"


def _group_key(name: str) -> str:
    return f"group {name}"


def _subject_key(subject: RoleSubject, namespace: str) -> str:
    """The key of a subject; empty if it can be nobody."""
    match subject.kind:
        case "User":
            return _user_key(subject.name)
        case "Group":
            return _group_key(subject.name)
        case "ServiceAccount" if subject.namespace or namespace:
            return _user_key(service_account_user_name(subject.namespace or namespace, subject.name))
        case _:
            return ""


def _source_text(role: RoleReference, namespace: str, name: str, subject: RoleSubject) -> str:
    subject_name = subject.name
    if subject.kind == "ServiceAccount":
        subject_name = f"{subject.name}/{subject.namespace or namespace}"
    kind, binding = ("RoleBinding", f"{name}/{namespace}") if namespace else ("ClusterRoleBinding", name)
    return (
        f"{kind} {quoted_text(binding)} of {role.kind} {quoted_text(role.name)} "
        f"to {subject.kind} {quoted_text(subject_name)}"
    )

"""RBAC follows the roles and bindings of a store."""

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import AccessDecision, check_access
from gangline.apiserver.auth.rbac import RbacAuthorizer
from gangline.apiserver.auth.role_index import MAX_CACHED_USERS, RBAC_PREFIX, RoleIndex
from gangline.apiserver.errors import StatusError
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo, service_account_user_name

JANE = UserInfo("jane", ("devs", AUTHENTICATED_GROUP))
READ_PODS: JSON = {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}


class Roles:
    """Roles and bindings of a store, and what RBAC decides."""

    def __init__(self, store: Store) -> None:
        self.store, self.authorizer = store, RbacAuthorizer(RoleIndex(store))

    async def set(self, path: str, body: JSON | None) -> None:
        record = self.store.get(f"{RBAC_PREFIX}{path}")
        write = StoreWrite(f"{RBAC_PREFIX}{path}", body, 0 if record is None else record.revision)
        await self.store.commit(write)

    async def bind(self, path: str, role: str, *subjects: JSON, kind: str = "Role") -> None:
        await self.set(path, {"roleRef": {"kind": kind, "name": role}, "subjects": list(subjects)})

    def decision(self, user: UserInfo = JANE, namespace: str = "ns") -> AccessDecision:
        return self.authorizer.decide(AccessAttributes(user, "get", resource="pods", namespace=namespace))


@pytest.fixture
def roles(role_store: Store) -> Roles:
    return Roles(role_store)


async def test_a_decision_names_the_binding_and_the_first_subject_that_applies(roles: Roles) -> None:
    assert roles.decision() == AccessDecision(allowed=False)
    await roles.set("roles/ns/reader", READ_PODS)
    group, user = {"kind": "Group", "name": "devs"}, {"kind": "User", "name": "jane"}
    await roles.bind("rolebindings/ns/b", "reader", {"kind": "User", "name": "joe"}, group, user)
    assert roles.decision().reason == 'RBAC: allowed by RoleBinding "b/ns" of Role "reader" to Group "devs"'
    assert not roles.decision(namespace="other").allowed
    assert not roles.decision(namespace="").allowed


async def test_changes_of_roles_and_bindings_count_at_once(roles: Roles) -> None:
    subject = {"kind": "User", "name": "jane"}
    await roles.bind("rolebindings/ns/b", "reader", subject)
    assert roles.decision().reason == 'RBAC: role.rbac.authorization.k8s.io "reader" not found'
    await roles.set("roles/ns/reader", READ_PODS)
    assert roles.decision().allowed
    await roles.set("roles/ns/reader", {"rules": None})
    assert roles.decision() == AccessDecision(allowed=False)
    await roles.set("roles/ns/reader", READ_PODS)
    await roles.bind("rolebindings/ns/b", "reader", {"kind": "User", "name": "joe"})
    assert not roles.decision().allowed
    assert roles.decision(UserInfo("joe")).allowed
    await roles.set("rolebindings/ns/b", None)
    assert not roles.decision(UserInfo("joe")).allowed


async def test_a_cluster_role_may_be_bound_in_a_namespace_and_for_all(roles: Roles) -> None:
    await roles.set("clusterroles//reader", READ_PODS)
    account = {"kind": "ServiceAccount", "name": "bot"}
    await roles.bind("rolebindings/ns/b", "reader", account, kind="ClusterRole")
    bot = UserInfo(service_account_user_name("ns", "bot"))
    assert roles.decision(bot).reason.endswith('of ClusterRole "reader" to ServiceAccount "bot/ns"')
    assert not roles.decision(bot, "other").allowed
    await roles.bind("clusterrolebindings//b", "reader", account, kind="ClusterRole")
    assert not roles.decision(bot, "other").allowed  # nobody is a service account without a namespace
    await roles.bind("clusterrolebindings//b", "reader", {**account, "namespace": "ns"}, kind="ClusterRole")
    assert roles.decision(bot, "other").reason == (
        'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to ServiceAccount "bot/ns"'
    )


async def test_roles_are_read_again_after_watches_were_ended(roles: Roles) -> None:
    await roles.bind("rolebindings/ns/b", "reader", {"kind": "User", "name": "jane"})
    assert not roles.decision().allowed
    roles.store.end_watches()
    await roles.set("roles/ns/reader", READ_PODS)
    assert roles.decision().allowed


async def test_many_users_do_not_fill_the_memory(roles: Roles) -> None:
    await roles.set("roles/ns/reader", READ_PODS)
    await roles.bind("rolebindings/ns/b", "reader", {"kind": "User", "name": "jane"})
    for number in range(MAX_CACHED_USERS + 1):
        assert not roles.decision(UserInfo(f"user-{number}")).allowed
    assert len(roles.authorizer._index._grants) <= MAX_CACHED_USERS
    assert roles.decision().allowed


async def test_several_missing_roles_are_listed_in_the_403(roles: Roles) -> None:
    jane = {"kind": "User", "name": "jane"}
    await roles.bind("rolebindings/ns/a", "x", jane)
    await roles.bind("rolebindings/ns/b", "y", jane, kind="ClusterRole")
    with pytest.raises(StatusError) as refusal:
        check_access(roles.authorizer, AccessAttributes(JANE, "get", resource="pods", namespace="ns", name="p"))
    assert refusal.value.message == (
        'pods "p" is forbidden: User "jane" cannot get resource "pods" in API group "" in the namespace "ns": '
        'RBAC: [role.rbac.authorization.k8s.io "x" not found, clusterrole.rbac.authorization.k8s.io "y" not found]'
    )
    assert roles.authorizer.rules(JANE, "ns").evaluation_error.startswith("[role.rbac")


def test_system_masters_may_do_everything(roles: Roles) -> None:
    assert roles.decision(UserInfo("x", ("system:masters",))) == AccessDecision(allowed=True)

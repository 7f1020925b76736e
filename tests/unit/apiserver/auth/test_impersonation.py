"""Impersonation of users."""

import pytest

from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.auth.impersonation import ImpersonationError, impersonated_user
from gangline.apiserver.errors import StatusError
from gangline.apiserver.users import MASTERS_GROUP, UserInfo

ADMIN = UserInfo("admin", (MASTERS_GROUP, "system:authenticated"))
NOBODY = UserInfo("nobody", ("system:authenticated",))


def test_without_headers_the_user_stays_the_same(authorizer: Authorizer) -> None:
    assert impersonated_user(NOBODY, [("Accept", "*/*")], authorizer) is NOBODY


def test_a_master_may_impersonate_any_user(authorizer: Authorizer) -> None:
    headers = [
        ("Impersonate-User", "jane"),
        ("impersonate-group", "devs"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Why%2Fso", "a"),
        ("Impersonate-Extra-why%2fso", "b"),
    ]
    found = impersonated_user(ADMIN, headers, authorizer)
    assert found == UserInfo("jane", ("devs", "system:authenticated"), uid="7", extra={"why/so": ("a", "b")})
    assert not found.is_master


def test_an_impersonated_service_account_has_its_default_groups(authorizer: Authorizer) -> None:
    found = impersonated_user(ADMIN, [("Impersonate-User", "system:serviceaccount:ns:bot")], authorizer)
    assert found.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")


def test_the_anonymous_user_stays_unauthenticated(authorizer: Authorizer) -> None:
    found = impersonated_user(ADMIN, [("Impersonate-User", "system:anonymous")], authorizer)
    assert found.groups == ("system:unauthenticated",)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "jane",
            'users "jane" is forbidden: User "nobody" cannot impersonate resource "users" in API group "" at',
        ),
        (
            "system:serviceaccount:ns:bot",
            'serviceaccounts "bot" is forbidden: User "nobody" cannot impersonate resource "serviceaccounts"',
        ),
    ],
)
def test_users_outside_system_masters_may_not_impersonate(name: str, told: str, authorizer: Authorizer) -> None:
    with pytest.raises(StatusError) as found:
        impersonated_user(NOBODY, [("Impersonate-User", name), ("Impersonate-Group", MASTERS_GROUP)], authorizer)
    assert found.value.code == 403
    assert found.value.message.startswith(told)


def test_groups_without_a_user_are_refused(authorizer: Authorizer) -> None:
    with pytest.raises(
        ImpersonationError, match=r"requested \[\{Group  system:masters    \}\] without impersonating a user"
    ):
        impersonated_user(NOBODY, [("Impersonate-Group", MASTERS_GROUP)], authorizer)

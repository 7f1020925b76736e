"""Which request a 403 denies, and the commands that allow it."""

import pytest

from gangline.api.denied_access import DeniedAccess, denied_access, grant_commands


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "a"',
            DeniedAccess("jane", "list", "pods", "", "a"),
        ),
        (
            'nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" at the cluster scope',
            DeniedAccess("jane", "list", "nodes", ""),
        ),
        (
            (
                r'{"message":"User \"system:serviceaccount:a:b\" cannot get resource \"tfjobs\" in API group '
                r'\"kubeflow.org\" in the namespace \"a\"","reason":"Forbidden"}'
            ),
            DeniedAccess("system:serviceaccount:a:b", "get", "tfjobs", "kubeflow.org", "a"),
        ),
        ('pods "a" is forbidden: exceeded quota: q, requested: pods=1', None),
        ('forbidden: User "jane" cannot get path "/metrics"', None),
    ],
)
def test_denied_request_in_a_text(text: str, expected: DeniedAccess | None) -> None:
    assert denied_access(text) == expected


@pytest.mark.parametrize(
    ("denied", "commands"),
    [
        (
            DeniedAccess("jane", "list", "pods", "", "a"),
            ["kubectl create rolebinding jane-view --clusterrole view --user jane -n a"],
        ),
        (
            DeniedAccess("jane", "patch", "tfjobs", "kubeflow.org", "a"),
            ["kubectl create rolebinding jane-edit --clusterrole edit --user jane -n a"],
        ),
        (
            DeniedAccess("system:serviceaccount:a:b", "list", "tfjobs", "kubeflow.org"),
            ["kubectl create clusterrolebinding a-b-view --clusterrole view --serviceaccount a:b"],
        ),
        (
            DeniedAccess("system:serviceaccount:a:b", "delete", "pods", "", "a"),
            ["kubectl create rolebinding b-edit --clusterrole edit --serviceaccount a:b -n a"],
        ),
        (
            DeniedAccess("a b/c", "create", "pods/eviction", "", "a"),
            [
                "kubectl create role 'a b-c-create-pods-eviction' --verb create --resource pods/eviction -n a",
                (
                    "kubectl create rolebinding 'a b-c-create-pods-eviction' --role 'a b-c-create-pods-eviction' "
                    "--user 'a b/c' -n a"
                ),
            ],
        ),
        (
            DeniedAccess("jane", "list", "storageclasses", "storage.k8s.io"),
            [
                "kubectl create clusterrole jane-list-storageclasses --verb list --resource storageclasses.storage.k8s.io",
                "kubectl create clusterrolebinding jane-list-storageclasses --clusterrole jane-list-storageclasses --user jane",
            ],
        ),
        (DeniedAccess("system:anonymous", "list", "pods", "", "a"), []),
    ],
)
def test_commands_that_allow_it(denied: DeniedAccess, commands: list[str]) -> None:
    assert list(grant_commands(denied)) == commands

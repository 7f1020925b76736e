"""Errors of kubeconfigs, with their exact messages. HOME stands for the home folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.kube.config.connection import in_cluster_connection, load_connection
from gangline.kube.errors import ConfigError
from support.builders.kubeconfigs import connection_from, kubeconfig_document, write_kubeconfig

del yaml  # imported here, because a test without permissions cannot read the package


def line(home: Path, **flags: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_connection(environ=flags.pop("environ", {}), home=home, **flags)
    return str(caught.value).replace(str(home), "HOME")


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login", "interactiveMode": "Never"}

CLUSTERS = [
    ({"server": ""}, "server: is missing; write https://HOST:PORT"),
    (
        {"server": "api:6443"},
        'server: is "api:6443", which is not an http or https URL; write https://HOST:PORT',
    ),
    (
        {"server": "https://api:port"},
        'server: is "https://api:port", which is not an http or https URL; write https://HOST:PORT',
    ),
    ({"server": "https://me:pw@api"}, "server: has a user or an @ in it; write https://HOST:PORT"),
    (
        {"server": "https://api/?x=1"},
        'server: is "https://api/?x=1"; leave out everything from the ? or # on',
    ),
    (
        {"certificate-authority-data": "%%%"},
        "certificate-authority-data: is not base64; encode the PEM file with base64",
    ),
    (
        {"certificate-authority": "ca.pem"},
        "certificate-authority: HOME/.kube/ca.pem: no such file; correct the path or create it",
    ),
    (
        {"certificate-authority": "."},
        "certificate-authority: HOME/.kube: cannot be read: Is a directory",
    ),
    (
        {"certificate-authority-data": "QQ==", "insecure-skip-tls-verify": True},
        "insecure-skip-tls-verify: is true although there is a certificate-authority; remove one of them",
    ),
    (
        {"proxy-url": "socks5://proxy:1080"},
        "proxy-url: SOCKS proxies are not supported; use an http:// or https:// proxy",
    ),
    ({"proxy-url": "proxy:3128"}, "proxy-url: is not an http or https URL; write http://HOST:PORT"),
    ({"proxy-url": "http://[::1"}, "proxy-url: is not a URL; write http://HOST:PORT"),
    ({"insecure-skip-tls-verify": "yes"}, "insecure-skip-tls-verify: must be true or false, is a string"),
]


@pytest.mark.parametrize(("cluster", "expected"), CLUSTERS)
def test_cluster_that_cannot_be_used(tmp_path: Path, cluster: dict[str, Any], expected: str) -> None:
    write_kubeconfig(tmp_path, kubeconfig_document(cluster))
    assert line(tmp_path) == f"~/.kube/config: clusters[0].cluster.{expected}"


USERS = [
    ({"client-key-data": "%%%"}, "client-key-data: is not base64; encode the PEM file with base64"),
    ({"client-certificate-data": "QQ=="}, "client-key: is missing; client-certificate needs it"),
    ({"client-key-data": "QQ=="}, "client-certificate: is missing; client-key needs it"),
    (
        {"client-certificate": "/nowhere/me.pem", "client-key-data": "QQ=="},
        "client-certificate: /nowhere/me.pem: no such file; correct the path or create it",
    ),
    ({"token": 12345}, "token: must be a string, is a number; put it in quotes"),
    (
        {"token": "two words"},
        "token: holds characters that no token has (spaces, line breaks or non-ASCII)",
    ),
    ({"tokenFile": "gone"}, "tokenFile: HOME/.kube/gone: no such file; correct the path or create it"),
    ({"tokenFile": "empty"}, "tokenFile: HOME/.kube/empty: is empty; write the token into it"),
    (
        {"token": "t", "username": "me"},
        "token: stands beside username and password; remove one of them",
    ),
    (
        {"auth-provider": {"name": "gcp", "config": {"access-token": "x"}}},
        'auth-provider: is "gcp", which Kubernetes has removed; use the exec plugin of that provider',
    ),
    ({"as-groups": ["dev"]}, "as: is missing; as-uid, as-groups and as-user-extra need it"),
    ({"as": "a\nb"}, "as: Impersonate-User would hold a line break or control character"),
    ({"as-groups": "dev"}, "as-groups: must be a list, is a string"),
    (
        {"as": "me", "as-user-extra": {"k": [1]}},
        "as-user-extra[...][0]: must be a string, is a number; put it in quotes",
    ),
    (
        {"exec": {**EXEC, "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
        (
            'exec.apiVersion: is "client.authentication.k8s.io/v1alpha1", which is not supported; '
            "use client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1"
        ),
    ),
    (
        {"exec": {"command": "login"}},
        "exec.apiVersion: is missing; use client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1",
    ),
    ({"exec": {**EXEC, "command": ""}}, "exec.command: is missing; name the program to run"),
    (
        {"exec": {**EXEC, "interactiveMode": None}},
        "exec.interactiveMode: is missing; use Never, IfAvailable, Always",
    ),
    (
        {"exec": {**EXEC, "interactiveMode": "Often"}},
        'exec.interactiveMode: is "Often"; use Never, IfAvailable, Always',
    ),
]


@pytest.mark.parametrize(("user", "expected"), USERS)
def test_user_that_cannot_be_used(tmp_path: Path, user: dict[str, Any], expected: str) -> None:
    write_kubeconfig(tmp_path, kubeconfig_document({}, user))
    write_kubeconfig(tmp_path, "\n", ".kube/empty")
    assert line(tmp_path) == f"~/.kube/config: users[0].user.{expected}"


FILES = [
    ("", "is empty; add a cluster with kubectl config or pass --kubeconfig"),
    ("clusters: null\nusers: []\n", "is empty; add a cluster with kubectl config or pass --kubeconfig"),
    (
        "users:\n- name: [me\n",
        "is not YAML at line 3, column 1; correct it or write it anew with kubectl config",
    ),
    ("\0", "is not YAML; correct it or write it anew with kubectl config"),
    ("date: 2026-99-99", "is not YAML; correct it or write it anew with kubectl config"),
    ("just words", "must be a mapping, is a string"),
    ("clusters: &a [*a]", "refers to itself; write it without YAML aliases"),
    ("kind: TFJob", 'kind: is "TFJob"; a kubeconfig has "Config"'),
    ("users: {}", "users: must be a list, is a mapping"),
    ("users: [{user: {token: t}}]", "users[0].name: is missing; give the user a name"),
    (
        "users: [{name: me}, {name: you}, {name: me}]",
        'users[2].name: "me" is also the name of users[0]; rename one',
    ),
]


@pytest.mark.parametrize(("content", "expected"), FILES)
def test_file_that_is_no_kubeconfig(tmp_path: Path, content: str, expected: str) -> None:
    write_kubeconfig(tmp_path, content)
    assert line(tmp_path) == f"~/.kube/config: {expected}"


def contexts(*pairs: tuple[str, str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "context": {"cluster": cluster, "user": user}} for name, cluster, user in pairs]


def clusters(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "cluster": {"server": "https://x"}} for name in names]


NAMES = [
    (
        {"contexts": contexts(("a", "dev", ""), ("dev", "prod", "")), "clusters": clusters("dev", "test")},
        'contexts[1].context.cluster: names "prod", which is not in clusters; known: dev, test',
    ),
    (
        {"contexts": contexts(("dev", "", "")), "clusters": clusters("dev")},
        "contexts[0].context.cluster: is missing; name a cluster; known: dev",
    ),
    (
        {"contexts": contexts(("dev", "kind", "you"))},
        'contexts[0].context.user: names "you", which is not in users; known: me',
    ),
    (
        {"contexts": contexts(("dev", "kind", "you")), "users": None},
        'contexts[0].context.user: names "you", which is not in users; known: none',
    ),
    (
        {
            "current-context": "prdo",
            "contexts": contexts(("dev", "", ""), ("test", "", ""), ("prod", "", "")),
        },
        'current-context: names "prdo", which is not in contexts; known: prod, dev, test',
    ),
    ({"current-context": ""}, "current-context: is not set; pass --context; known: dev"),
]


@pytest.mark.parametrize(("top", "expected"), NAMES)
def test_name_that_leads_nowhere(tmp_path: Path, top: dict[str, Any], expected: str) -> None:
    write_kubeconfig(tmp_path, kubeconfig_document(**top))
    assert line(tmp_path) == f"~/.kube/config: {expected}"


@pytest.mark.parametrize(
    ("flag", "listed_in", "best"),
    [("context", "contexts", "dev"), ("cluster", "clusters", "kind"), ("user", "users", "me")],
)
def test_flag_that_leads_nowhere(tmp_path: Path, flag: str, listed_in: str, best: str) -> None:
    write_kubeconfig(tmp_path, kubeconfig_document())
    expected = f'~/.kube/config: --{flag}: names "nope", which is not in {listed_in}; known: {best}'
    assert line(tmp_path, **{flag: "nope"}) == expected


def test_long_lists_are_cut_after_the_nearest(tmp_path: Path) -> None:
    write_kubeconfig(
        tmp_path, kubeconfig_document(contexts=contexts(*((f"cluster-{n}", "kind", "") for n in range(30))))
    )
    found = line(tmp_path, context="cluster-29x")
    assert "known: cluster-29, " in found
    assert found.endswith(" and 20 more")


def test_missing_files(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    assert line(tmp_path) == (
        "~/.kube/config: no such file, KUBECONFIG is not set and this is not a pod; pass --kubeconfig"
    )
    assert line(tmp_path, kubeconfig=nowhere) == (
        "kubeconfig: HOME/nowhere: no such file; correct the path or create it"
    )
    listed = os.pathsep.join([nowhere, "/also/nowhere"])
    assert line(tmp_path, environ={"KUBECONFIG": listed}) == (
        "KUBECONFIG: ~/nowhere, /also/nowhere: no such file; correct the variable or unset it"
    )
    assert line(tmp_path, context="dev") == '--context: names "dev", but there is no kubeconfig; pass --kubeconfig'


@contextmanager
def nobody() -> Iterator[None]:
    """Run without the permission of root to read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_unreadable_file_is_named_not_taken_for_missing(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, kubeconfig_document())
    path.chmod(0)
    with nobody():
        found = line(tmp_path)
    assert found == "kubeconfig: HOME/.kube/config: permission denied; make it readable for this user"


def test_pod_without_a_token_says_why(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError) as caught:
        in_cluster_connection(environ=environ, root=tmp_path)
    assert str(caught.value) == (
        "service account (does the pod set automountServiceAccountToken: false?): "
        f"{tmp_path}/token: no such file; correct the path or create it"
    )


def test_bad_proxy_of_the_environment_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^HTTPS_PROXY: SOCKS proxies are not supported"):
        connection_from(tmp_path, environ={"HTTPS_PROXY": "socks5://me:pw@proxy:1"})


@pytest.mark.parametrize(
    "text",
    [
        "clusters:\n- name: c\n  cluster:\n    server: https://a:1\ncontexts:\n- name: x\n  context: {}\n",
        '{"clusters": [{"name": "c", "cluster": {"server": "https://a:1"}}], "contexts": [{"name": "x"}]}',
        "{clusters: [{name: c, cluster: {server: 'https://a:1'}}], contexts: [{name: x}]}",
        "# commented\nclusters: [{name: c, cluster: {server: 'https://a:1'}}]\ncontexts: [{name: x}]\n",
    ],
    ids=["plain", "JSON", "flow style", "comment"],
)
def test_a_kubeconfig_is_yaml_of_any_style(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    found = load_connection(kubeconfig=str(file), context="x", cluster="c", environ={}, home=tmp_path)
    assert (found.server, found.context) == ("https://a:1", "x")

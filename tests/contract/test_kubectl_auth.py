"""`kubectl auth` and its relatives print the same on a real server and on ours."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.cluster.clients import find_kubectl
from support.servers.real import RealServer

NAMESPACE = "auth-words"
ROLES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: auth-words}
rules:
  - {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list]}
  - {apiGroups: [""], resources: [configmaps], resourceNames: [one], verbs: [update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: auth-words}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
"""
MORE_ROLES = ROLES.replace("verbs: [get, list]", "verbs: [get, watch]").replace("name: jane", "name: joe")
WORDS = (
    ("auth", "can-i", "get", "pods", "--as", "jane"),
    ("auth", "can-i", "delete", "pods", "--as", "jane"),
    ("auth", "can-i", "get", "pods", "--subresource=log", "--as", "jane"),
    ("auth", "can-i", "update", "configmaps/one", "--as", "jane"),
    ("auth", "can-i", "update", "configmaps/two", "--as", "jane", "-v=0"),
    ("auth", "can-i", "get", "/metrics", "--as", "jane"),
    ("auth", "can-i", "get", "/version", "--as", "jane"),
    ("auth", "can-i", "get", "things", "--as", "jane"),
    ("auth", "can-i", "list", "nodes", "--as", "jane"),
    ("auth", "can-i", "*", "*"),
    ("auth", "can-i", "get", "pods", "--all-namespaces", "--as", "jane", "--quiet"),
    ("auth", "can-i", "--list", "--as", "jane"),
    ("auth", "can-i", "--list", "--as", "jane", "--as-group", "system:masters"),
    ("auth", "whoami", "--as", "jane", "--as-group", "devs", "--as-uid", "7", "-o", "json"),
    ("auth", "whoami", "--as", "jane"),
    ("get", "secrets", "--as", "jane"),
    ("get", "pods", "--as", "jane"),
    ("run", "x", "--image", "x", "--as", "jane"),
    ("delete", "pod", "x", "--as", "jane"),
    ("create", "rolebinding", "x", "--clusterrole", "edit", "--user", "x", "--as", "jane"),
    ("get", "clusterroles", "view", "edit", "cluster-admin", "-o", "name"),
    ("describe", "clusterrole", "system:basic-user"),
    ("describe", "rolebinding", "reader"),
)


class Commands:
    """kubectl with a kubeconfig."""

    def __init__(self, kubeconfig: Path, home: Path) -> None:
        self._binary, self._home = find_kubectl(), home
        home.mkdir()
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(home)}

    async def __call__(self, *words: str, stdin: str = "") -> str:
        """Exit code, output and errors of a command, without what differs from run to run."""
        return await asyncio.to_thread(self._run, words, stdin)

    def _run(self, words: tuple[str, ...], stdin: str) -> str:
        command = [str(self._binary), "--namespace", NAMESPACE, *words]
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self._environment, cwd=self._home, timeout=60
        )
        text = f"{ended.returncode}\n{ended.stdout}{ended.stderr}"
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", text)
        # The rules of a user come in any order.
        return "\n".join(sorted(text.splitlines())) if "--list" in words else text


async def played(kubectl: Commands) -> dict[str, str]:
    """What is printed, by words."""
    await kubectl("create", "namespace", NAMESPACE)
    printed = {"reconcile": await kubectl("auth", "reconcile", "-f", "-", stdin=ROLES)}
    for word in ("again", "more", "and more"):
        text = ROLES if word == "again" else MORE_ROLES
        printed[word] = await kubectl("auth", "reconcile", "-f", "-", stdin=text)
    removal = ("auth", "reconcile", "--remove-extra-subjects", "--remove-extra-permissions", "-f", "-")
    printed["reconciled role"] = await kubectl("get", "role", "reader", "-o", "jsonpath={.rules}")
    printed["removal"] = await kubectl(*removal, stdin=ROLES)
    printed["reduced role"] = await kubectl("get", "role", "reader", "-o", "jsonpath={.rules}")
    return printed | {" ".join(words): await kubectl(*words) for words in WORDS}


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of our server."""
    settings = PlaneSettings(certificates=tmp_path / "certificates", warn_on_inert_kinds=False)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.certificates is not None
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(plane.url, plane.token, plane.certificates.ca)))
        yield kubeconfig


def _kubeconfig(url: str, token: str, ca: Path) -> object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


async def test_the_same_words_print_the_same(real_server: RealServer, embedded: Path, tmp_path: Path) -> None:
    real_server.revive()
    real = await played(Commands(real_server.kubeconfig, tmp_path / "real"))
    ours = await played(Commands(embedded, tmp_path / "ours"))
    assert ours["auth can-i get pods --as jane"] == "0\nyes\n"
    assert ours["auth can-i delete pods --as jane"] == "1\nno\n"
    different = [f"{words}\nREAL {real[words]}\nOURS {ours[words]}" for words in real if real[words] != ours[words]]
    assert not different, "\n".join(different)

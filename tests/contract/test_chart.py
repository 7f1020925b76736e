"""The chart and the kustomize files on a real API server and on ours, with the real Helm and the real kubectl."""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import ItemsView, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.install.objects import install_crds, install_objects
from gangline.install.value_fields import merged_values
from gangline.install.values import Release
from support.cluster.clients import CompletedCommand, find_kubectl
from support.cluster.helm import CHART, Helm, by_identity, documents
from support.requirements import skip_or_fail
from support.servers.embedded import embedded_server
from support.servers.real import USERS, ApiServer, RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("chart"), pytest.mark.timeout(300)]

ROOT = CHART.parents[1]
OVERLAYS = ROOT / "manifests" / "overlays"
NAMESPACE = "gangline"
TEAM_LEAD = "team-lead"
PAGE = (ROOT / "docs" / "helm.md").read_text()
RELEASE = ("gangline", CHART, "--namespace", NAMESPACE)
OURS = "app.kubernetes.io/part-of=gangline"
TFJOB: JSON = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "stays", "namespace": "default"},
    "spec": {
        "runPolicy": {"suspend": True},
        "tfReplicaSpecs": {
            "Worker": {"replicas": 1, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}}
        },
    },
}
VALUE_SETS: dict[str, JSON] = {
    "default": {},
    "everything": {
        "scheduler": {"enabled": True},
        "rbac": {"mpiJobs": True},
        "hangWatch": {"stacks": True},
        "gangSchedulerName": "kubernetes,volcano",
        "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "grafanaDashboard": {"enabled": True},
        "image": {"registry": "r.example", "digest": "sha256:" + "a" * 64, "pullSecrets": ["one"]},
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"disk": "ssd"},
        "extraEnv": [{"name": "A", "value": "1"}],
        "extraLabels": {"team": "ml"},
    },
    "namespaces": {
        "watchNamespaces": ["default", "kube-public"],
        "leaderElection": {"leaseName": "mine"},
        "mpiLauncherServiceAccount": "launcher",
        "hangWatch": {"enabled": False},
    },
    "single": {"replicaCount": 1, "leaderElection": {"enabled": False}, "metrics": {"enabled": False}},
}


class Cluster:
    """A server, and Helm and kubectl that are its administrator's."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        self.helm = Helm(folder, server.kubeconfig)
        self._env = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(folder)}

    def kubectl(self, *arguments: str | Path, stdin: object = None) -> str:
        """What a command prints. It must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *arguments: str | Path, stdin: object = None) -> CompletedCommand:
        text = None if stdin is None else json.dumps(stdin)
        command = [str(find_kubectl()), *map(str, arguments)]
        return subprocess.run(command, input=text, capture_output=True, text=True, env=self._env, cwd=ROOT, timeout=120)

    def list(self, resources: str) -> list[JSON]:
        """Objects of ours, in all namespaces."""
        answer = json.loads(self.kubectl("get", resources, "--all-namespaces", "-l", OURS, "-o", "json"))
        items: list[JSON] = answer["items"]
        return items

    def deployments(self) -> dict[str, int]:
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in self.list("deployments")}


KINDS = "namespaces,deployments,services,serviceaccounts,configmaps,poddisruptionbudgets,roles,rolebindings,clusterroles,clusterrolebindings"


@pytest.fixture(scope="module", params=["real", "embedded"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "embedded":
        with embedded_server(folder, [TEAM_LEAD]) as server:
            yield Cluster(server, folder)
        return
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=folder, users={**USERS, TEAM_LEAD: ()}) as real:
        yield Cluster(real, folder)


@pytest.fixture
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """With a release of revision 1."""
    cluster.helm("install", *RELEASE, "--create-namespace")
    yield cluster
    cluster.helm("uninstall", "gangline", "--namespace", NAMESPACE, "--ignore-not-found")


def test_install_upgrade_rollback_uninstall(installed: Cluster) -> None:
    cluster, helm = installed, installed.helm
    assert cluster.deployments() == {"gangline-operator": 2}
    created = partial(cluster.run, "apply", "-f", "-", stdin=TFJOB)
    wait_until_blocking(lambda: created().returncode == 0, "the server does not know TFJobs")
    uid = job_uid(cluster)

    helm("upgrade", *RELEASE, values={"replicaCount": 3, "scheduler": {"enabled": True}})
    assert cluster.deployments() == {"gangline-operator": 3, "gangline-scheduler": 2}
    helm("rollback", "gangline", "1", "--namespace", NAMESPACE)
    assert cluster.deployments() == {"gangline-operator": 2}
    history = json.loads(helm("history", "gangline", "--namespace", NAMESPACE, "-o", "json"))
    assert [entry["status"] for entry in history] == ["superseded", "superseded", "deployed"]

    helm("uninstall", "gangline", "--namespace", NAMESPACE)
    assert cluster.list(KINDS) == []
    kept = {one["metadata"]["name"] for one in cluster.list("customresourcedefinitions")}
    assert kept == {one["metadata"]["name"] for one in install_crds(merged_values({}))}
    assert job_uid(cluster) == uid

    # What was kept is taken up again.
    helm("install", *RELEASE)
    assert cluster.deployments() == {"gangline-operator": 2}
    assert job_uid(cluster) == uid


def test_crds_are_upgraded(installed: Cluster) -> None:
    """Unlike those in a chart's folder crds/."""
    name = "tfjobs.kubeflow.org"
    column = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]
    before = columns(installed, name)
    installed.kubectl("patch", "crd", name, "--type=json", "-p", json.dumps(column))
    assert columns(installed, name) == before[1:]
    installed.helm("upgrade", *RELEASE, values={"replicaCount": 3})
    assert columns(installed, name) == before


def test_crds_that_are_not_kept_go_with_the_release(cluster: Cluster) -> None:
    cluster.helm("install", *RELEASE, "--create-namespace", values={"crds": {"keep": False}})
    cluster.helm("uninstall", "gangline", "--namespace", NAMESPACE)
    wait_until_blocking(lambda: cluster.list("customresourcedefinitions") == [], "CRDs are left")


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_the_server_accepts_every_object(installed: Cluster, values: JSON) -> None:
    made = installed.helm.template(values)
    done = installed.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-o", "name", "-f", "-", stdin=listed(made)
    )
    assert len(done.splitlines()) == len(made)


def test_a_bad_value_is_refused_with_its_path_and_nothing_is_installed(cluster: Cluster) -> None:
    for values, expected in (
        ({"replicas": 2}, "additional properties 'replicas' not allowed"),
        ({"image": {"tag": 1}}, "at '/image/tag': got number, want string"),
        ({"image": {"pullPolicy": "Often"}}, "at '/image/pullPolicy': value must be one of"),
        ({"leaderElection": {"enabled": False}}, "replicaCount above 1 needs leaderElection.enabled"),
    ):
        done = cluster.helm.run("install", *RELEASE, "--create-namespace", values=values)
        assert done.returncode != 0
        assert expected in done.stderr
    done = cluster.helm.run("install", "7b", *RELEASE[1:], "--create-namespace", values={})
    assert "set fullnameOverride, as in fullnameOverride=gangline" in done.stderr
    assert cluster.helm("list", "--all-namespaces", "--short") == ""


def test_who_has_no_right_elsewhere_installs_for_some_namespaces(installed: Cluster) -> None:
    """Who may do everything in two namespaces and nothing outside of them. The CRDs are there already."""
    teams = ["team-a", "team-b"]
    for team in teams:
        installed.kubectl("create", "namespace", team)
        binding = ("create", "rolebinding", "lead", "--clusterrole=cluster-admin", f"--user={TEAM_LEAD}", "-n", team)
        installed.kubectl(*binding)
    release = ("teams", "--namespace", "team-a", "--kube-context", TEAM_LEAD)
    refused = installed.helm.run("install", *release, CHART)
    assert "forbidden" in refused.stderr
    values = {"watchNamespaces": teams, "crds": {"install": False}}
    installed.helm("install", *release, CHART, "--replace", values=values)
    roles = {one["metadata"]["namespace"] for one in installed.list("roles") if TEAMS_RELEASE.items() <= labels(one)}
    assert roles == {"team-a", "team-b"}
    installed.helm("uninstall", *release)
    assert [one for one in installed.list(KINDS) if TEAMS_RELEASE.items() <= labels(one)] == []


@pytest.mark.parametrize("overlay", sorted(path.name for path in OVERLAYS.iterdir()))
def test_an_overlay_is_what_the_installer_would_apply(cluster: Cluster, overlay: str) -> None:
    values = OVERLAY_VALUES[overlay]
    built = by_identity(documents(cluster.kubectl("kustomize", OVERLAYS / overlay)))
    crds = {key: built.pop(key) for key in list(built) if key.startswith("CustomResourceDefinition ")}
    release = Release(namespace="team-a" if overlay == "namespaced" else NAMESPACE, service="kustomize")
    assert built == by_identity(install_objects(merged_values(values), release))
    expected = {} if "watchNamespaces" in values else by_identity(install_crds(merged_values({}), release))
    assert {key: one["spec"] for key, one in crds.items()} == {key: one["spec"] for key, one in expected.items()}


def test_an_overlay_of_ones_own_as_in_the_documentation(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    (text,) = re.findall(r"^```yaml\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    folder = tmp_path / "manifests" / "overlays" / "mine"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(text)
    built = by_identity(documents(cluster.kubectl("kustomize", folder)))
    crds = {key for key in built if key.startswith("CustomResourceDefinition ")}
    values = {
        "namespace": {"create": True},
        "scheduler": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "image": {"registry": "registry.example", "repository": "ml/gangline"},
    }
    expected = install_objects(merged_values(values), Release(service="kustomize"))
    assert {key: one for key, one in built.items() if key not in crds} == by_identity(expected)


def test_the_commands_in_the_documentation(cluster: Cluster) -> None:
    """The last test: it deletes the namespace, and who would finish that is not here."""
    commands = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        program, *words = shlex.split(command)
        if program == "helm":
            cluster.helm(*words)
        else:
            cluster.kubectl(*words)
    assert cluster.deployments() == {"gangline-operator": 2, "gangline-scheduler": 2}
    (namespace,) = cluster.list("namespaces")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    cluster.kubectl("delete", "-k", OVERLAYS / "scheduler", "--wait=false", "--ignore-not-found")
    assert [one for one in cluster.list(KINDS) if one["kind"] != "Namespace"] == []


MONITORING: JSON = {
    "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "grafanaDashboard": {"enabled": True},
}
BASE: JSON = {"namespace": {"create": True}}
OVERLAY_VALUES: dict[str, JSON] = {
    "standalone": BASE,
    "scheduler": {**BASE, "scheduler": {"enabled": True}},
    "monitoring": {**BASE, **MONITORING},
    "mpi": {**BASE, "rbac": {"mpiJobs": True}},
    "dashboard": {**BASE, "dashboard": {"enabled": True}},
    "all": {
        **BASE,
        **MONITORING,
        "scheduler": {"enabled": True},
        "dashboard": {"enabled": True},
        "rbac": {"mpiJobs": True},
        "networkPolicy": {"enabled": True},
    },
    "namespaced": {"watchNamespaces": ["team-a", "team-b"]},
}


TEAMS_RELEASE = {"app.kubernetes.io/instance": "teams"}


def labels(one: JSON) -> ItemsView[str, str]:
    found: dict[str, str] = one["metadata"]["labels"]
    return found.items()


def job_uid(cluster: Cluster) -> str:
    return cluster.kubectl("get", "tfjob", "stays", "-n", "default", "-o", "jsonpath={.metadata.uid}")


def columns(cluster: Cluster, name: str) -> list[Any]:
    definition = json.loads(cluster.kubectl("get", "crd", name, "-o", "json"))
    found: list[Any] = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    return found


def listed(objects: list[JSON]) -> JSON:
    return {"apiVersion": "v1", "kind": "List", "items": objects}

"""gangline comes into a cluster and leaves it again: by its own command, by Helm, by kustomize."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.apiserver.audit.rights import read_events, used_rights
from support.cluster.helm import CHART, Helm
from support.nodes.inside import NodeCluster
from support.nodes.installation import NAMESPACE, install, objects_of_gangline
from support.nodes.jobs import pods_of, release, shell_job, uids, waiting_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


def crds(cluster: NodeCluster) -> set[str]:
    return {name for name in objects_of_gangline(cluster) if name.startswith("CustomResourceDefinition/")}


def run_a_job(cluster: NodeCluster, namespace: str, name: str) -> None:
    cluster.apply(shell_job(name, "true", workers=2), namespace=namespace)
    cluster.wait(f"tfjob/{name}", "Succeeded", namespace)


def test_uninstall_leaves_definitions_and_jobs_and_nothing_else(empty: NodeCluster, namespace: str) -> None:
    install(empty)
    run_a_job(empty, namespace, "before")
    empty.apply(waiting_job("running"), namespace=namespace)
    empty.wait("tfjob/running", "Running", namespace)
    before = uids(pods_of(empty, namespace, "running"))

    done = empty.gangline("uninstall", seconds=330)
    assert done.code == 0, done
    left = objects_of_gangline(empty)
    assert left == crds(empty), left - crds(empty)
    assert len(left) >= 6
    assert uids(pods_of(empty, namespace, "running")) == before
    assert {job["metadata"]["name"] for job in empty.objects("tfjobs", namespace)} == {"before", "running"}

    # The jobs are taken up where they were.
    install(empty)
    release(empty, namespace)
    empty.wait("tfjob/running", "Succeeded", namespace)
    assert uids(pods_of(empty, namespace, "running")) == before

    done = empty.gangline("uninstall", "--delete-crds", "--yes", seconds=330)
    assert done.code == 0, done
    assert objects_of_gangline(empty) == set()


@pytest.mark.slow
def test_helm_installs_upgrades_rolls_back_and_leaves(empty: NodeCluster, namespace: str, tmp_path: Path) -> None:
    run = Helm(tmp_path, empty.layout.kubeconfig)
    waiting = ("--namespace", NAMESPACE, "--wait", "--timeout", "100s")

    def helm(*words: str) -> str:
        return run(*words, *waiting)

    helm("install", "gangline", str(CHART), "--create-namespace", "--set", "scheduler.enabled=true")
    run_a_job(empty, namespace, "installed")
    assert "Succeeded" in run("test", "gangline", "--namespace", NAMESPACE, "--timeout", "100s")
    helm("upgrade", "gangline", str(CHART), "--reuse-values", "--set", "logLevel=debug")
    run_a_job(empty, namespace, "upgraded")
    helm("rollback", "gangline", "1")
    run_a_job(empty, namespace, "rolled-back")
    helm("uninstall", "gangline")
    empty.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=60s", "--namespace", NAMESPACE)
    left = objects_of_gangline(empty) - crds(empty)
    assert {name.partition("/")[0] for name in left} == {"Lease"}, left  # which the operators made, not Helm
    assert len(empty.objects("tfjobs", namespace)) == 3
    empty.kubectl("delete", *sorted(crds(empty)))


@pytest.mark.slow
def test_kustomize_installs_and_leaves(empty: NodeCluster, namespace: str) -> None:
    overlay = str(ROOT / "manifests" / "overlays" / "scheduler")
    empty.kubectl("apply", "--server-side", "--kustomize", overlay)
    for deployment in empty.objects("deployments", NAMESPACE):
        name = f"deployment/{deployment['metadata']['name']}"
        empty.kubectl("rollout", "status", name, "--namespace", NAMESPACE, "--timeout=120s")
    run_a_job(empty, namespace, "installed")
    empty.kubectl("delete", "--kustomize", overlay)
    assert objects_of_gangline(empty) == set()


@pytest.mark.slow
def test_a_user_without_a_right_in_the_whole_cluster_installs_for_two_namespaces(
    empty: NodeCluster, namespace: str
) -> None:
    other = f"{namespace}-b"
    empty.kubectl("create", "namespace", other)
    try:
        definitions = empty.gangline("crds")
        empty.kubectl("apply", "--server-side", "--filename=-", body=yaml_documents(definitions.output))
        for one in (namespace, other):
            rights = ("rolebinding", "owner", "--clusterrole=cluster-admin", "--user=tenant")
            empty.kubectl("create", *rights, "--namespace", one)
        tenant = {"KUBECONFIG": str(empty.layout.kubeconfig_of("tenant"))}
        began = datetime.now(UTC)
        done = empty.gangline("install", "--scope", f"namespace={namespace},{other}", env=tenant, seconds=330)
        assert done.code == 0, done
        assert "clusterrole" not in done.output
        run_a_job(empty, namespace, "first")
        run_a_job(empty, other, "second")
        done = empty.gangline("uninstall", "--namespace", namespace, env=tenant, seconds=330)
        assert done.code == 0, done
        used = [
            right
            for right in used_rights(events_since(empty, began))
            if right.user == "tenant"
            and right.resource
            and not right.group.startswith(("authorization.", "authentication."))
        ]
        assert {right.namespace for right in used} == {namespace, other}, used
    finally:
        empty.kubectl("delete", "namespace", other, "--wait=false")


def yaml_documents(text: str) -> Any:
    return {"apiVersion": "v1", "kind": "List", "items": [one for one in yaml.safe_load_all(text) if one]}


def events_since(cluster: NodeCluster, moment: datetime) -> Iterator[Any]:
    """The requests since a moment, from the audit log."""
    for event in read_events(cluster.layout.audit_log):
        if datetime.fromisoformat(event["requestReceivedTimestamp"]) >= moment:
            yield event

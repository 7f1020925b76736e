"""`gangline why` names the cause of faults that are made for real: by a kubelet, a container runtime, a full disk."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.jobs import pods_of, shell_job
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SLEEP = "exec sleep 1000"
SCRATCH: dict[str, Any] = {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}

# What is wrong, the job, and the rule and a part of the sentence with which `why` names it.
FAULTS: dict[str, tuple[Any, str, str]] = {
    "memory": (
        shell_job("memory", "exec tail /dev/zero", resources={"limits": {"memory": "32Mi"}}),
        "oom-killed",
        "was killed for using too much memory",
    ),
    "registry": (
        shell_job("registry", SLEEP, image="registry.invalid/team/model:1"),
        "image-network",
        "the registry cannot be reached",
    ),
    "image": (
        shell_job("image", SLEEP, image="gangline-test/forgotten:1", imagePullPolicy="Never"),
        "image-policy",
        "its pull policy is Never",
    ),
    "claim": (
        shell_job("claim", SLEEP, pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
        "claim-missing",
        "PersistentVolumeClaim data, which does not exist",
    ),
    "command": (
        shell_job("command", "", command=["trian.py", "--epochs", "3"]),
        "command-not-found",
        "cannot be started",
    ),
    "config-env": (
        shell_job("config-env", SLEEP, envFrom=[{"configMapRef": {"name": "settings"}}]),
        "config-missing",
        "ConfigMap settings, which does not exist",
    ),
    "config-volume": (
        shell_job(
            "config-volume",
            SLEEP,
            pod={"volumes": [{"name": "scratch", "configMap": {"name": "settings"}}]},
            **SCRATCH,
        ),
        "config-missing",
        "ConfigMap settings, which does not exist",
    ),
    "secret-key": (
        shell_job(
            "secret-key",
            SLEEP,
            env=[{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "login", "key": "token"}}}],
        ),
        "config-key-missing",
        "needs key token",
    ),
    "volume": (
        shell_job(
            "volume",
            "dd if=/dev/zero of=/scratch/big bs=1M count=16; exec sleep 1000",
            pod={"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "4Mi"}}]},
            **SCRATCH,
        ),
        "volume-full",
        "filled volume scratch",
    ),
    "exit": (shell_job("exit", "echo no such option; exit 2"), "exit-code", "exit"),
}


@pytest.fixture(scope="module")
def team(cluster: NodeCluster) -> Iterator[str]:
    """A namespace for all the faults at once: most of their time is waiting."""
    namespace = f"faults-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("create", "secret", "generic", "login", "--from-literal=user=ada", "--namespace", namespace)
    yield namespace
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def wait_for_cause(cluster: NodeCluster, namespace: str, job: str, rule: str, *, seconds: float = 100) -> Any:
    """What `why` says as soon as it names this rule."""
    last: list[Any] = []

    def cause() -> Any:
        done = cluster.gangline("why", job, "--namespace", namespace, "--output", "json")
        last[:] = [done]
        if done.code != 0:
            return None
        verdict = json.loads(done.output)
        return verdict if verdict["causes"][0]["rule"] == rule else None

    try:
        return wait_until_blocking(cause, seconds=seconds)
    except AssertionError:
        pods = cluster.kubectl("get", "pods", "--namespace", namespace, "--output=yaml", check=False)
        raise AssertionError(f"why does not name {rule}: {last}\n{pods[-6000:]}") from None


@pytest.mark.parametrize("fault", FAULTS)
def test_the_cause_is_named(installed: NodeCluster, team: str, fault: str) -> None:
    installed.apply(*(job for job, _, _ in FAULTS.values()), namespace=team)  # changes nothing after the first time
    job, rule, words = FAULTS[fault]
    verdict = wait_for_cause(installed, team, job["metadata"]["name"], rule)
    assert words in verdict["cause"], verdict


@pytest.mark.slow
def test_eviction_by_disk_pressure_is_named(installed: NodeCluster, namespace: str) -> None:
    fill = "dd if=/dev/zero of=/scratch/big bs=1M count=230; exec sleep 1000"
    pod = {"nodeSelector": {"kubernetes.io/hostname": "n2"}, "volumes": [{"name": "scratch", "emptyDir": {}}]}
    installed.apply(shell_job("greedy", fill, pod=pod, **SCRATCH), namespace=namespace)
    verdict = wait_for_cause(installed, namespace, "greedy", "evicted")
    assert "evicted from n2" in verdict["cause"], verdict
    installed.wait("node/n2", "DiskPressure=false", seconds=90)


@pytest.mark.slow
def test_a_lost_node_is_named(installed: NodeCluster, namespace: str) -> None:
    pod = {"nodeSelector": {"kubernetes.io/hostname": "n2"}}
    installed.apply(shell_job("lonely", SLEEP, pod=pod), namespace=namespace)
    installed.wait("tfjob/lonely", "Running", namespace)
    assert len(pods_of(installed, namespace, "lonely")) == 1
    with installed.unplugged("n2"):
        verdict = wait_for_cause(installed, namespace, "lonely", "node-lost")
        assert "n2" in verdict["cause"], verdict

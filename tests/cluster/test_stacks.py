"""`gangline stacks` in pods of real kubelets: by a command in the container, and by an ephemeral container beside it."""

import json

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.jobs import shell_job
from support.nodes.node import BUSYBOX
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SCRIPT = "case $HOSTNAME in *-1) exec sleep 1000 ;; *) while :; do :; done ;; esac"
RESTRICTED = {
    "runAsUser": 65532,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.parametrize("flags", [(), ("--debug-image", BUSYBOX)], ids=["exec", "ephemeral"])
def test_where_the_replicas_stand_is_read_without_any_capability(
    installed: NodeCluster, namespace: str, flags: tuple[str, ...]
) -> None:
    job = shell_job("odd", SCRIPT, workers=2, securityContext=RESTRICTED, env=[{"name": "KEY", "value": "a-secret"}])
    installed.apply(job, namespace=namespace)
    installed.wait("tfjob/odd", "Running", namespace)
    outputs: list[str] = []

    def stands() -> bool:
        done = installed.gangline("stacks", "odd", "--namespace", namespace, "--output", "json", *flags)
        outputs.append(done.output + done.errors)
        if done.code:
            return False
        sentence: str = json.loads(done.output)["sentence"]
        return "worker-0 uses the CPU (sh -c " in sentence and "worker-1 sleeps (sleep 1000)" in sentence

    try:
        wait_until_blocking(stands, seconds=60)
    except AssertionError:
        raise AssertionError(outputs[-1][-4000:]) from None
    assert "a-secret" not in outputs[-1]

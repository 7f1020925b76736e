"""Random teams in containers: one rank fails, its peers fail in words of their own, and the first one is named.

Kubelets report an end up to two seconds later, and only the second in which it was; log lines have finer times. Pods that
still look as if they ran are deleted meanwhile. `GANGLINE_TEAMS` sets the number of teams.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.failing_teams import program
from support.failing_teams.plans import random_plan
from support.nodes.inside import NodeCluster
from support.nodes.jobs import IMAGE, spread
from support.waiting import wait_until_blocking

TEAMS = int(os.environ.get("GANGLINE_TEAMS", "8"))
AT_ONCE = 4
MAX_RANKS = 6
MIN_RIGHT = 0.98

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300 + 60 * TEAMS)]


def team(name: str, folder: Path, plan: dict[str, Any]) -> Any:
    """A team whose ranks meet in a folder of this machine, which both nodes have."""
    container = {
        "name": "pytorch",
        "image": IMAGE,
        "command": ["python3", "/team/program.py", "/team", "$(RANK)"],
        "resources": {"limits": {"memory": "200Mi"}, "requests": {"memory": "1Mi"}},
        "volumeMounts": [{"name": "team", "mountPath": "/team"}],
        "securityContext": {"runAsUser": 0},
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "team", "hostPath": {"path": str(folder), "type": "Directory"}}],
        # The first process of a container of its own would ignore its own signals.
        "shareProcessNamespace": True,
    }
    counts = {"Master": 1, "Worker": plan["size"] - 1}
    replicas = {
        kind: {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}} for kind, count in counts.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": "Running"}, "pytorchReplicaSpecs": replicas},
    }


def first_failures(
    cluster: NodeCluster, namespace: str, folder: Path, plans: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Run some teams at the same time. Yields what the status of each says of its first failure."""
    for name, plan in plans.items():
        (folder / name).mkdir()
        (folder / name / "plan.json").write_text(json.dumps(plan))
        shutil.copy(program.__file__, folder / name / "program.py")
    cluster.apply(*(spread(team(name, folder / name, plan)) for name, plan in plans.items()), namespace=namespace)
    for name in plans:
        cluster.wait(f"pytorchjob/{name}", "Failed", namespace, seconds=300)
    # Until a job is cleaned up, what kubelets report may still correct its first failure.
    wait_until_blocking(lambda: all(status["phase"] == "Failed" for _, status in statuses(cluster, namespace)))
    for name, status in statuses(cluster, namespace):
        yield name, status.get("firstFailure", {})
    cluster.kubectl("delete", "pytorchjobs", *plans, "--namespace", namespace)


def statuses(cluster: NodeCluster, namespace: str) -> list[tuple[str, Any]]:
    return [(one["metadata"]["name"], one["status"]) for one in cluster.objects("pytorchjobs", namespace)]


def test_the_first_failing_rank_of_random_teams_is_named(
    installed: NodeCluster, namespace: str, tmp_path: Path
) -> None:
    plans = {f"team-{seed}": random_plan(seed, MAX_RANKS, silent_peers=False) for seed in range(TEAMS)}
    wrong = {}
    names = list(plans)
    for start in range(0, TEAMS, AT_ONCE):
        some = {name: plans[name] for name in names[start : start + AT_ONCE]}
        for name, failure in first_failures(installed, namespace, tmp_path, some):
            if failure.get("rank") != plans[name]["cause"]:
                wrong[name] = (failure, plans[name])
                print(f"{name}: {failure}\n{plans[name]}", flush=True)
        ended = min(start + AT_ONCE, TEAMS)
        print(f"the first failing rank is right in {ended - len(wrong)} of {ended} teams", flush=True)
    assert 1 - len(wrong) / TEAMS >= MIN_RIGHT, wrong

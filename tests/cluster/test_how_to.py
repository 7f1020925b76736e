"""The blocks of how-to pages that need a cluster, word for word, for a reader who has one."""

from pathlib import Path

import pytest

from support.how_to import cluster_steps
from support.nodes.how_to import IN_CLUSTER, own_names, shell_in_cluster
from support.nodes.inside import NodeCluster
from support.nodes.installation import is_installed
from support.tutorials import SavedFile, type_step

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
TEAM = "team-a"
"""The namespace of the page about one namespace."""


def play(name: str, cluster: NodeCluster, namespace: str, folder: Path) -> list[str]:
    """Do what a page says to a reader with a cluster. Returns the commands typed."""
    with shell_in_cluster(cluster, namespace, folder) as shell:
        for step in cluster_steps(own_names((PAGES / f"{name}.md").read_text()), IN_CLUSTER[name]):
            if isinstance(step, SavedFile):
                (folder / "work" / step.name).write_text(step.content)
            else:
                type_step(shell, step)
        return shell.typed


def test_a_drill_does_nothing_before_it_is_confirmed(installed: NodeCluster, namespace: str, tmp_path: Path) -> None:
    typed = play("rehearse-faults", installed, namespace, tmp_path)
    drills = [command for command in typed if "--context nodes" in command]
    assert drills == [f"gangline drill sturdy --kill worker-1 --context nodes{yes}" for yes in ("", " --yes")]
    assert installed.objects("pytorchjobs", namespace) == []


def test_the_scheduler_is_installed_with_the_operator(empty: NodeCluster, namespace: str, tmp_path: Path) -> None:
    play("share-gpus-fairly", empty, namespace, tmp_path)
    assert is_installed(empty)


def test_an_installation_for_one_namespace(empty: NodeCluster, namespace: str, tmp_path: Path) -> None:
    try:
        play("run-in-one-namespace", empty, namespace, tmp_path)
        names = {body["metadata"]["name"] for body in empty.objects("deployments", TEAM)}
        assert "gangline-operator" in names
        done = empty.gangline("uninstall", "--namespace", TEAM, seconds=330)
        assert done.code == 0, done
    finally:
        empty.kubectl("delete", "namespace", TEAM, "--ignore-not-found", "--wait=false")

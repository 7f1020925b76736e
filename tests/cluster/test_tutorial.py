"""The tutorial about a cluster, word for word, for a reader who has one: its context and image stand in the commands."""

from pathlib import Path

import pytest

from support.nodes.how_to import own_names, shell_in_cluster
from support.nodes.inside import NodeCluster
from support.tutorials import SavedFile, TypedCommand, tutorial_steps, type_step

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
SKIPPED = ("gangline up ", "export KUBECONFIG=", "gangline down")
"""The beginnings of commands for those who have no cluster."""


def test_the_script_of_the_laptop_runs_in_the_readers_cluster(
    installed: NodeCluster, namespace: str, tmp_path: Path
) -> None:
    laptop = (TUTORIALS / "laptop-in-five-minutes.md").read_text()
    script = next(step for step in tutorial_steps(laptop) if isinstance(step, SavedFile))
    with shell_in_cluster(installed, namespace, tmp_path) as shell:
        (tmp_path / "work" / script.name).write_text(script.content)
        for step in tutorial_steps(own_names((TUTORIALS / "the-same-script-in-a-cluster.md").read_text())):
            assert isinstance(step, TypedCommand)
            if not step.command.startswith(SKIPPED):
                type_step(shell, step)
        assert any("--context nodes --image gangline-test/python-torch:1" in command for command in shell.typed)
    assert installed.objects("pytorchjobs", namespace) == []

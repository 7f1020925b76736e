"""The tutorial about a cluster, word for word, for a reader who has one: its context and image stand in the commands."""

import os
import sys
from pathlib import Path

import pytest

from support.nodes.inside import NodeCluster
from support.readme import Person, PersonShell
from support.tutorials import SavedFile, TypedCommand, make_environment, tutorial_steps, type_step

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
SKIPPED = ("gangline up ", "export KUBECONFIG=", "gangline down")
"""The beginnings of commands for those who have no cluster."""
OWN = {"context gangline": "context nodes", "--image pytorch/pytorch": "--image gangline-test/python-torch:1"}


def own(text: str) -> str:
    """The text with the names of the reader's own cluster."""
    for there, here in OWN.items():
        text = text.replace(there, here)
    return text


def test_the_script_of_the_laptop_runs_in_the_readers_cluster(
    installed: NodeCluster, namespace: str, tmp_path: Path
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(installed.kubectl("config", "view", "--raw", "--flatten"))
    installed.kubectl("config", "--kubeconfig", str(config), "set-context", "nodes", "--namespace", namespace)
    packages = [ROOT / "src", *(Path(path) for path in sys.path if Path(path).name == "site-packages")]
    programs = make_environment(tmp_path / "try", Path(sys.executable), packages)
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    laptop = (TUTORIALS / "laptop-in-five-minutes.md").read_text()
    script = next(step for step in tutorial_steps(laptop) if isinstance(step, SavedFile))
    (folder / script.name).write_text(script.content)
    person = Person(home, os.getuid(), 0o022, f"{programs}:{os.environ['PATH']}", {"KUBECONFIG": str(config)})
    with PersonShell(person, folder, 200) as shell:
        for step in tutorial_steps(own((TUTORIALS / "the-same-script-in-a-cluster.md").read_text())):
            assert isinstance(step, TypedCommand)
            if not step.command.startswith(SKIPPED):
                type_step(shell, step)
        assert any("--context nodes --image gangline-test/python-torch:1" in command for command in shell.typed)
    assert installed.objects("pytorchjobs", namespace) == []

"""Where a program runs, and how a package is installed there."""

import os
import sys
from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.base.invocation import shown_path
from gangline.cli.follow.mistakes import ProgramMistake
from gangline.cli.manifests.from_command import CommandJob, job_from_command
from gangline.cli.manifests.processes import ProcessCount
from gangline.cli.run.interpreters import install_command, interpreter, mistake_explainer, program_site
from gangline.node.settings import NodeSettings

MISSING_MODULE = ProgramMistake("worker-0", "module-missing", {"module": "torch"})


def executable(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_interpreter_of_a_program(tmp_path: Path) -> None:
    python = executable(tmp_path / "bin" / "python3")
    executable(tmp_path / "bin" / "torchrun", f"#!{python}\nimport torch\n")
    executable(tmp_path / "bin" / "tool", "#!/usr/bin/env python3\n")
    executable(tmp_path / "bin" / "script", "#!/bin/sh\n")
    for program in ("python3", "torchrun", "tool", str(python)):
        assert interpreter(program, str(tmp_path / "bin")) == python
    assert interpreter("script", str(tmp_path / "bin")) is None
    assert interpreter("missing", str(tmp_path / "bin")) is None


def test_packages_are_installed_by_what_the_environment_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    python = executable(tmp_path / "my env" / "bin" / "python")
    (tmp_path / "my env" / "pyvenv.cfg").touch()
    executable(tmp_path / "bin" / "uv")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert install_command(python) == "uv pip install --python 'my env/bin/python'"
    (tmp_path / "my env" / "lib" / "python3.12" / "site-packages" / "pip").mkdir(parents=True)
    assert install_command(python) == "'my env/bin/python' -m pip install"


def test_a_python_that_refuses_packages_gets_an_environment(tmp_path: Path) -> None:
    python = executable(tmp_path / "bin" / "python3")
    assert install_command(python) == f"{python} -m pip install"
    (tmp_path / "lib" / "python3.12").mkdir(parents=True)
    (tmp_path / "lib" / "python3.12" / "EXTERNALLY-MANAGED").touch()
    assert install_command(python) == f"{python} -m venv .venv && .venv/bin/python -m pip install"


@pytest.mark.parametrize("place", ["mine.py", "src/mine/__init__.py", "../mine.py"])
def test_a_module_of_the_users_own_is_found(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    executable(folder / place)
    site = program_site(["python"], os.defpath, folder, "mine.part")
    assert Path(site.module_folder) in (folder, folder / "src", tmp_path)
    assert program_site(["python"], os.defpath, folder, "other").module_folder == ""


def test_a_mistake_names_the_python_that_the_node_starts(tmp_path: Path) -> None:
    request = CommandJob("PyTorchJob", ("python", "train.py"), ProcessCount(2, 2))
    explain = mistake_explainer(NodeSettings(), PYTORCHJOB, job_from_command(request)[1], tmp_path)
    python = shown_path(Path(sys.executable).parent / "python")
    assert explain(MISSING_MODULE).startswith(f"torch is not installed in this Python ({python}); install it: ")


def test_in_a_container_the_image_is_named(tmp_path: Path) -> None:
    request = CommandJob("PyTorchJob", ("python", "train.py"), ProcessCount(2, 2), image="img:1")
    body = job_from_command(request)[1]

    def explained(runtime: str) -> str:
        return mistake_explainer(NodeSettings(runtime=runtime), PYTORCHJOB, body, tmp_path)(MISSING_MODULE)

    # With auto, a script that is only in the image runs in a container.
    for runtime in ("podman", "auto"):
        assert explained(runtime) == "torch is not installed in image img:1; add torch there"
    (tmp_path / "train.py").touch()
    assert "in this Python" in explained("auto")

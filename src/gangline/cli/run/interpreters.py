"""Where the programs of a local run are: their Python, how to install a package there, and whose a module is."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.invocation import shown_path
from gangline.cli.follow.follower import MistakeExplainer
from gangline.cli.follow.mistakes import ProgramMistake, ProgramSite, mistake_text
from gangline.cli.manifests.from_command import is_python
from gangline.cli.run.images import container_need
from gangline.node.runtime.images import ImageMappings, parse_image_map
from gangline.node.settings import AUTO_RUNTIME, ENGINES, NodeSettings
from gangline.sdk.build.pod_templates import training_container


def mistake_explainer(node: NodeSettings, kind: JobKind, body: JSON, folder: Path) -> MistakeExplainer:
    """Explains mistakes in the programs of a job that this node runs in a folder."""

    def explain(mistake: ProgramMistake) -> str:
        container = _training_container(kind, body, mistake.replica)
        name = str(container.get("image", ""))
        images = ImageMappings.load(node.images, parse_image_map(node.image_map))
        if node.runtime in ENGINES or (node.runtime == AUTO_RUNTIME and container_need(container, images, folder)):
            return mistake_text(mistake, ProgramSite(image=name))
        image = images.resolve(name)
        search_path = image.search_path(os.environ.get("PATH"))
        words = (*(container.get("command") or image.command), *(container.get("args") or ()))
        command = [str(word).replace("$$", "$") for word in words]
        return mistake_text(mistake, program_site(command, search_path, folder, mistake.values.get("module", "")))

    return explain


def _training_container(kind: JobKind, body: JSON, replica: str) -> JSON:
    replicas: JSON = body["spec"].get(kind.replicas) or {}
    spec: JSON = next((spec for name, spec in replicas.items() if replica.startswith(name.lower())), {})
    return training_container((spec.get("template") or {}).get("spec") or {}, kind) or {}


def program_site(command: Sequence[str], search_path: str, folder: Path, module: str = "") -> ProgramSite:
    """Where a command runs: its interpreter, how to install a package there, and whose the missing module is."""
    python = interpreter(command[0], search_path) if command else None
    own = _module_folder(module.partition(".")[0], folder) if module else None
    return ProgramSite(
        python=shown_path(python) if python is not None else "",
        install=install_command(python) if python is not None else "",
        module_folder=shown_path(own) if own is not None else "",
        folder=str(folder),
    )


def interpreter(program: str, search_path: str) -> Path | None:
    """The Python that runs a program: itself, or the one in the first line of a script such as torchrun; else None."""
    path = shutil.which(program, path=search_path)
    if path is None or is_python(path):
        return Path(path) if path is not None else None
    try:
        with Path(path).open("rb") as file:
            first = file.readline(500).decode(errors="replace").strip()
    except OSError:
        return None
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if not words or not is_python(words[-1]):
        return None
    return interpreter(words[-1], search_path)


def install_command(python: Path) -> str:
    """The beginning of a command line that installs a package for this Python.

    An environment made by uv has no pip. A Python of the operating system may refuse packages; then an environment is
    made for them in the working directory.
    """
    prefix = python.parent.parent
    if (prefix / "pyvenv.cfg").is_file():
        has_pip = any(prefix.glob("lib/python*/site-packages/pip"))
        uv = shutil.which("uv") is not None and not has_pip
        return f"uv pip install --python {shown_path(python)}" if uv else f"{shown_path(python)} -m pip install"
    if any(python.resolve().parent.parent.glob("lib/python3*/EXTERNALLY-MANAGED")):
        return f"{shown_path(python)} -m venv .venv && .venv/bin/python -m pip install"
    return f"{shown_path(python)} -m pip install"


def _module_folder(module: str, folder: Path) -> Path | None:
    """The folder that has a module of the user's own: the working directory, `src` in it, or a parent of it."""
    for place in (folder, folder / "src", *folder.parents[:2]):
        if (place / f"{module}.py").is_file() or (place / module / "__init__.py").is_file():
            return place
    return None

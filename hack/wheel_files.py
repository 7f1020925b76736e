"""Part of the build: puts the examples that `gangline demo` and `gangline new` read into the wheel."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

EXAMPLES = ("tfjob-numpy.yaml", "linear.py", "custom-operator")


class Build(Protocol):
    """The build that is going on, as pdm-backend describes it to its hooks."""

    target: str
    root: Path


def pdm_build_update_files(context: Build, files: dict[str, Path]) -> None:
    """Called by pdm-backend with the files of a distribution, by their path in it."""
    if context.target == "wheel":
        files.update(example_files(context.root / "examples"))


def example_files(folder: Path) -> Mapping[str, Path]:
    """The files of the examples by their path in the wheel, without what tools left there."""
    found = (file for name in EXAMPLES for file in _files_below(folder / name))
    return {f"gangline/examples/{file.relative_to(folder).as_posix()}": file for file in found}


def _files_below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)

"""Which global names a function uses, and where the modules behind them come from. Pure."""

import dis
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

GLOBAL_OPERATIONS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
PORTABLE_PACKAGES = ("gangline.progress",)
"""Modules of ours that training programs use. They are sent along, because an image may not have gangline."""


def used_globals(function: FunctionType) -> Mapping[str, Any]:
    """The global variables that a function and the functions inside it read, by name. Built-in names are left out."""
    names = dict.fromkeys(_global_names(function.__code__))
    scope = function.__globals__
    return {name: scope[name] for name in names if name in scope and not name.startswith("__")}


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in GLOBAL_OPERATIONS and isinstance(instruction.argval, str):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def import_statement(name: str, value: Any) -> str | None:
    """The statement that imports the value under this name; None if it is not of an installed module."""
    if isinstance(value, ModuleType):
        if is_own_module(value):
            return None
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    module, attribute = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    source = sys.modules.get(module) if isinstance(module, str) else None
    if source is None or is_own_module(source) or getattr(source, str(attribute), None) is not value:
        return None
    return f"from {module} import {attribute}" + ("" if attribute == name else f" as {name}")


def shown_file(file: str) -> str:
    """The file of a function as tracebacks of replicas show it: without folders of this machine, or `Cell In[3]`."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda name: None)(file)
    return " ".join(named) if named else Path(file).name


def own_folders() -> list[str]:
    """The folders on Python's path that have modules of the user."""
    installed = {str(folder) for folder in _installed_folders(tuple(sys.path))}
    python = sysconfig.get_paths()["stdlib"]
    entries = [str(Path(entry).absolute()) for entry in sys.path if entry and Path(entry).is_dir()]
    return [entry for entry in dict.fromkeys(entries) if entry not in installed and not entry.startswith(python)]


def own_modules() -> Iterator[ModuleType]:
    """The loaded modules of the user: files that are neither Python's own nor installed."""
    return (module for module in list(sys.modules.values()) if isinstance(module, ModuleType) and is_own_module(module))


def is_own_module(module: ModuleType) -> bool:
    """Whether other machines do not have this module: the main program, and files that are not installed."""
    name = module.__name__
    if name == "__main__" or name.startswith(PORTABLE_PACKAGES):
        return True
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or name.partition(".")[0] == "gangline":
        # Built-in, frozen, a package without a file; or ours, which may be installed from a clone.
        return False
    return not any(Path(file).is_relative_to(folder) for folder in _installed_folders(tuple(sys.path)))


@cache
def _installed_folders(path: tuple[str, ...]) -> tuple[Path, ...]:
    """Python's own folders, and those on the path that pip has installed something into."""
    paths = sysconfig.get_paths()
    own = {Path(paths[key]) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*own, *(Path(entry) for entry in path if entry and _has_packages(entry)))


def _has_packages(folder: str) -> bool:
    try:
        return any(entry.suffix == ".dist-info" for entry in Path(folder).iterdir())
    except OSError:
        return False

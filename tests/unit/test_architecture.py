"""docs/architecture.md names files and functions that exist, and hack/house.py measures what it says."""

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gangline"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")

sys.path.insert(0, str(ROOT))

from hack import house  # noqa: E402


@cache
def definitions(path: Path) -> frozenset[str]:
    """The dotted names of all classes, functions and methods of a module."""
    names = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(prefix + child.name)
                visit(child, f"{prefix}{child.name}.")

    visit(ast.parse(path.read_text()), "")
    return frozenset(names)


@pytest.mark.parametrize(("file", "name"), sorted(set(PLACE.findall(PAGE))))
def test_every_function_on_the_page_exists(file: str, name: str) -> None:
    assert name in definitions(SOURCE / file)


def test_the_walks_are_numbered_lists_of_functions() -> None:
    walks = PAGE.split("<!-- walk -->")[1:]
    assert len(walks) == 3
    for walk in walks:
        steps = re.findall(r"^(\d+)\. (.*)$", walk.split("\n## ")[0], re.MULTILINE)
        assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
        assert sum(bool(PLACE.search(text)) for _, text in steps) >= len(steps) - 1


def test_every_package_is_on_the_map() -> None:
    rows = "".join(re.findall(r"^\| (`[^|]+`) \|", PAGE.split("## One shape")[0], re.MULTILINE))
    on_the_map = set(re.findall(r"`(\w+)`", rows))
    assert on_the_map == {found.parent.name for found in SOURCE.glob("*/__init__.py")}


def parsed(**sources: str) -> list[house.Module]:
    return [
        house.Module(name.replace("__", "."), Path(f"{name.rpartition('__')[2]}.py"), ast.parse(source))
        for name, source in sources.items()
    ]


def test_a_lazy_import_counts_as_part_of_a_cycle() -> None:
    graph = house.imports(parsed(p__a="from p import b", p__b="def f():\n    from p.a import x"))
    assert house.import_cycles(graph).excess == ("p.a <-> p.b",)


def test_a_class_of_the_same_name_in_two_modules_is_counted_once() -> None:
    modules = parsed(p__a="class X: ...", p__b="class X: ...\nclass Y: ...")
    assert house.duplicate_classes(modules).value == 1


def test_properties_count_as_public_methods_and_private_methods_do_not() -> None:
    source = "class X:\n    @property\n    def a(self): ...\n    def b(self): ...\n    def _c(self): ...\n"
    assert house.public_methods(parsed(p__a=source)).value == 2


@pytest.mark.parametrize(
    "source", ["def told(): ...", "FOUND = 1", "class Each: ...", "class X:\n    def left(self): ..."]
)
def test_a_participle_or_pronoun_is_no_name_for_what_others_import(source: str) -> None:
    assert house.vague_exports(parsed(p__a=source)).value == 1


def test_nobody_may_import_a_command() -> None:
    modules = parsed(gangline__cli__run__command="", gangline__cli__x="from gangline.cli.run.command import run")
    assert house.command_importers(house.imports(modules)).value == 1


def test_a_package_that_is_too_large_is_named() -> None:
    modules = parsed(**{f"p__m{number}": "" for number in range(house.MAX_FILES + 1)})
    assert house.files_per_package(modules).excess == (f"p: {house.MAX_FILES + 1} files",)

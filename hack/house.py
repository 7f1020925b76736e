"""Measures how readable the source tree is, and fails where a limit of docs/architecture.md is passed.

python hack/house.py             print every measure; exit 1 if a limit is passed
python hack/house.py --all       print the long lists too: modules with one importer, sizes of Protocols
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

MAX_FILES = 16
MAX_DUPLICATE_CLASSES = 20
MAX_PUBLIC_METHODS = 15
MAX_PURE_ENTRIES = 28

# Participles, pronouns and adverbs that say nothing about the value they name.
VAGUE_NAME = re.compile(
    "told|found|said|seen|asked|wanted|given|left|kept|shown|each|one|known|met|made|taken|gone|came|come|goes|done|again|later"
    "|here|there|going|whole|few|often|heard|meant|begun|owed|paced|abreast",
    re.IGNORECASE,
)
# 410 Gone is the name of an HTTP status, and members of the public test tools change by deprecation only.
PROMISED_NAMES = frozenset({"gangline.kube.errors.Gone", "gangline.testing.faults.Faults.left"})
# The surface of the Kubeflow SDK, which has more methods than any type of ours may have.
KUBEFLOW_CLIENTS = frozenset({"AsyncTrainingClient", "TrainingClient"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A module of the source tree: its dotted name, its file and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module


class Measure(NamedTuple):
    """One line of the report. `excess` lists what passes the limit; nothing is held where `limit` is None."""

    title: str
    value: int
    limit: int | None
    excess: tuple[str, ...] = ()


def modules(source: Path = SOURCE) -> list[Module]:
    """Every module below a source folder, by name."""
    paths = sorted(source.rglob("*.py"))
    return [Module(_module_name(path, source), path, ast.parse(path.read_text())) for path in paths]


def _module_name(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def imports(house: Iterable[Module]) -> dict[str, set[str]]:
    """Which modules of the house each module imports, at any depth: imports inside functions count."""
    names = {module.name for module in house}
    return {module.name: set(_imported_modules(module.tree, names)) - {module.name} for module in house}


def _imported_modules(tree: ast.AST, names: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield from {submodule, node.module} & names if submodule in names else {node.module} & names
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & names


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph.get(name, ())):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            group = sorted(stack[at:])
            del stack[at:]
            if len(group) > 1:
                groups.append(group)

    sys.setrecursionlimit(10_000)
    for name in sorted(graph):
        if name not in index:
            visit(name)
    return groups


def files_per_package(house: Iterable[Module]) -> Measure:
    """The size of the largest package; `__init__.py` does not count."""
    counts: dict[str, int] = defaultdict(int)
    for module in house:
        if module.path.name != "__init__.py":
            counts[module.name.rpartition(".")[0]] += 1
    excess = tuple(f"{name}: {count} files" for name, count in sorted(counts.items()) if count > MAX_FILES)
    return Measure("files in the largest package", max(counts.values(), default=0), MAX_FILES, excess)


def duplicate_classes(house: Iterable[Module]) -> Measure:
    """Names of top-level classes that several modules define."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in house:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(module.name)
    repeated = {name: places for name, places in sorted(homes.items()) if len(places) > 1}
    lines = tuple(f"{name}: {', '.join(places)}" for name, places in repeated.items())
    excess = lines if len(repeated) > MAX_DUPLICATE_CLASSES else ()
    return Measure("class names defined more than once", len(repeated), MAX_DUPLICATE_CLASSES, excess)


def public_methods(house: Iterable[Module]) -> Measure:
    """The largest number of public methods and properties that one class defines."""
    counts = {
        f"{module.name}.{node.name}": len(set(_public_methods(node)))
        for module in house
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name not in KUBEFLOW_CLIENTS
    }
    excess = tuple(f"{name}: {count}" for name, count in counts.items() if count > MAX_PUBLIC_METHODS)
    return Measure("public methods of the largest type", max(counts.values(), default=0), MAX_PUBLIC_METHODS, excess)


def _public_methods(node: ast.ClassDef) -> Iterator[str]:
    return (found.name for found in node.body if isinstance(found, Function) and not found.name.startswith("_"))


def vague_exports(house: Iterable[Module]) -> Measure:
    """Public functions, classes, constants and methods whose whole name is a participle, a pronoun or an adverb."""
    excess = []
    for module in house:
        for node in module.tree.body:
            excess += [f"{module.name}.{name}" for name in _bound_names(node) if VAGUE_NAME.fullmatch(name)]
            if isinstance(node, ast.ClassDef):
                methods = (name for name in _public_methods(node) if VAGUE_NAME.fullmatch(name))
                excess += [f"{module.name}.{node.name}.{name}" for name in methods]
    excess = [name for name in excess if name not in PROMISED_NAMES]
    return Measure("exported names that are participles or pronouns", len(excess), 0, tuple(excess))


def _bound_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def pure_entries(pyproject: Path = ROOT / "pyproject.toml") -> Measure:
    """How many packages and modules the purity contract lists."""
    contracts = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"]
    entries = [
        entry for contract in contracts if contract["type"] == "forbidden" for entry in contract["source_modules"]
    ]
    excess = tuple(entries) if len(entries) > MAX_PURE_ENTRIES else ()
    return Measure("entries of the purity contract", len(entries), MAX_PURE_ENTRIES, excess)


def import_cycles(graph: Mapping[str, set[str]]) -> Measure:
    """Groups of modules that import each other, imports inside functions included."""
    excess = tuple(" <-> ".join(group) for group in cycles(graph))
    return Measure("import cycles, lazy imports included", len(excess), 0, excess)


def command_importers(graph: Mapping[str, set[str]]) -> Measure:
    """Imports of a `command.py`: it holds flags, and is loaded by the command table alone."""
    excess = tuple(
        f"{name} imports {target}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
        if target.startswith("gangline.cli.") and target.endswith(".command")
    )
    return Measure("imports of a command.py", len(excess), 0, excess)


def single_importers(graph: Mapping[str, set[str]]) -> Measure:
    """Modules that one other module imports: candidates for a merge, where they are a fragment of its thought."""
    importers: dict[str, list[str]] = defaultdict(list)
    for name, targets in graph.items():
        for target in targets:
            importers[target].append(name)
    lines = tuple(f"{name} <- {found[0]}" for name, found in sorted(importers.items()) if len(found) == 1)
    return Measure("modules with one importer", len(lines), None, lines)


def protocol_sizes(house: Iterable[Module]) -> Measure:
    """The number of members of every Protocol; the value is how many have more than two."""
    sizes = {
        f"{module.name}.{node.name}": sum(isinstance(found, Function | ast.AnnAssign) for found in node.body)
        for module in house
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
    }
    lines = tuple(f"{size:3} {name}" for name, size in sorted(sizes.items(), key=lambda found: -found[1]))
    large = sum(size > 2 for size in sizes.values())
    return Measure(f"Protocols with more than two members, of {len(sizes)}", large, None, lines)


def measures(house: list[Module]) -> list[Measure]:
    """The whole report, in the order in which it is printed."""
    graph = imports(house)
    lines = sum(module.path.read_text().count("\n") for module in house)
    return [
        Measure("lines of source", lines, None),
        files_per_package(house),
        duplicate_classes(house),
        public_methods(house),
        vague_exports(house),
        pure_entries(),
        import_cycles(graph),
        command_importers(graph),
        single_importers(graph),
        protocol_sizes(house),
    ]


def main() -> int:
    """Print the report. The exit code is 1 if a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="print the long lists too")
    everything = parser.parse_args().all
    failed = False
    for measure in measures(modules()):
        passed = measure.limit is None or measure.value <= measure.limit
        failed |= not passed
        limit = "" if measure.limit is None else f"  (at most {measure.limit})"
        print(f"{'    ' if passed else 'FAIL'} {measure.value:6}  {measure.title}{limit}")
        if not passed or everything:
            print(*(f"                {line}" for line in measure.excess), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

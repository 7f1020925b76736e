"""Make stand-ins for the CUDA libraries that torch names, so that it loads without them.

    PYTHON_THAT_HAS_TORCH hack/torch_stubs.py

PyPI's torch for Linux is built for CUDA and brings 2.5 GB of libraries that a run on CPUs never calls. The loader only
wants each of them to exist, with the symbols and versions torch links to; so each missing one becomes a few kilobytes
that define those. What torch calls while it loads (the CUDA runtime) must be real. Needs gcc and readelf.
"""

import re
import subprocess
import sysconfig
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SITE = Path(sysconfig.get_path("purelib"))
LIBRARIES = SITE / "torch" / "lib"  # every library of torch looks here first
DRIVER = "libcuda.so.1"  # comes with a GPU, never with a package; nothing that needs it is loaded without one


class Symbol(NamedTuple):
    """What one library takes from another. The version is empty where the giver has none."""

    name: str
    version: str
    data: bool


class Linked(NamedTuple):
    """One library as the loader sees it."""

    needs: frozenset[str]
    givers: dict[str, str]  # by version
    wants: frozenset[Symbol]
    gives: frozenset[str]


def read(file: Path) -> Linked:
    found = subprocess.run(["readelf", "-dVW", "--dyn-syms", file], capture_output=True, text=True, check=True)
    givers, giver = {}, ""
    for kind, name in re.findall(r"(File|Name): (\S+)", found.stdout):
        if kind == "File":
            giver = name
        else:
            givers[name] = giver
    wants, gives = set(), set()
    rows = re.findall(
        r"(FUNC|OBJECT|NOTYPE|TLS|IFUNC) +(GLOBAL|WEAK|UNIQUE) +DEFAULT +(\w+) +([^\s@]+)(?:@+(\S+))?",
        found.stdout,
    )
    for kind, binding, section, name, version in rows:
        if section != "UND":
            gives.add(name)
        elif binding != "WEAK":
            wants.add(Symbol(name, version, kind == "OBJECT"))
    needs = frozenset(re.findall(r"NEEDED.*\[(.*)\]", found.stdout))
    return Linked(needs, givers, frozenset(wants), frozenset(gives))


def missing(linked: Iterable[Linked], present: Iterable[Path]) -> set[str]:
    """Libraries that are named and neither in the environment nor on the machine."""
    named = set().union(*(each.needs for each in linked)) - {file.name for file in present}
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return named - {DRIVER} - set(re.findall(r"^\s+(\S+) \(", known, re.MULTILINE))


def wanted(linked: Iterable[Linked], absent: set[str], given: set[str]) -> dict[str, set[Symbol]]:
    """What each absent library must give.

    A symbol without a version belongs to no library by name. The loader takes it from any, so all of those go to
    the first one absent.
    """
    shares: dict[str, set[Symbol]] = defaultdict(set, {name: set() for name in absent})
    for each in linked:
        mine = sorted(each.needs & absent)
        for symbol in each.wants if mine else ():
            giver = each.givers.get(symbol.version, "")
            if giver in absent:
                shares[giver].add(symbol)
            elif not symbol.version and symbol.name not in given:
                shares[mine[0]].add(symbol)
    return shares


def build(name: str, symbols: set[Symbol]) -> None:
    """A library of that name whose functions fail."""
    versions: dict[str, list[str]] = defaultdict(list)
    source = []
    for symbol in sorted(symbols):
        source.append(f"char {symbol.name}[256];" if symbol.data else f"int {symbol.name}(void) {{ return 1; }}")
        if symbol.version:
            versions[symbol.version].append(symbol.name)
    script = [f"{version} {{ global: {'; '.join(names)}; }};" for version, names in versions.items()]
    with tempfile.TemporaryDirectory() as folder:
        code, table = Path(folder, "stub.c"), Path(folder, "stub.map")
        code.write_text("\n".join(source))
        table.write_text("\n".join(script))
        linking = [f"-Wl,--version-script={table}"] if script else []
        options = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{name}", *linking]
        subprocess.run(["gcc", *options, "-o", LIBRARIES / name, code], check=True)


def main() -> None:
    present = [*LIBRARIES.glob("*.so*"), *SITE.glob("nvidia/**/*.so*")]
    libraries = {file: read(file) for file in present}
    linked = [read for file, read in libraries.items() if file.parent == LIBRARIES]
    absent = missing(linked, present)
    given = set().union(*(each.gives for each in libraries.values()))
    for name, symbols in sorted(wanted(linked, absent, given).items()):
        build(name, symbols)
        print(f"{name}: {len(symbols)} symbols")


if __name__ == "__main__":
    main()

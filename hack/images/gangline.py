"""Build the gangline image from packages that hack/image.sh has downloaded. `hack/image.sh --help` says what for."""

import argparse
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hack.images import oci
from hack.images.base import MACHINES, SITE, USER, Compiler, Stripper, base_tree, merge, read_debs
from hack.images.packages import Package, read_wheel
from hack.images.sbom import bill_of_materials, go_modules
from hack.images.tree import Tree, file, size, write

SCRIPT = """#!/usr/bin/python3
import sys

from gangline.__main__ import main

sys.exit(main())
"""

# Sources and headers of extensions, tests, types for checkers; lexers for languages that we never print; parts of numpy
# that are loaded on first use, which we never make; of CEL's extensions all but the one that we import.
_DROPPED = re.compile(
    r"""
    .*/tests?/ | .*\.(pyi|pyx|pxd|pxi|a|h|c|cpp|typed)$ | .*_tests\.cpython-[^/]*\.so$
    | numpy/(f2py|doc|testing|polynomial|fft|_pyinstaller|_core/include)/ | numpy/_core/_simd\.
    | pygments/lexers/(?!__init__|_mapping|python|special|data|shell)
    | cel_expr_python/ext/ext_(?!optional\.)
    """,
    re.VERBOSE,
)

# Parts of Python's library that no server loads: old formats and protocols, debuggers, codecs of one country.
_UNUSED_PYTHON = re.compile(
    r"""
    usr/lib/python3\.11/(curses|venv|xmlrpc)/
    | usr/lib/python3\.11/lib-dynload/(_test|_codecs_(jp|hk|cn|kr|tw|iso2022)|_curses|xx|_xx)
    | usr/lib/python3\.11/(_pydecimal|aifc|bdb|cgi|cgitb|chunk|doctest|ftplib|imaplib|mailbox|mailcap|nntplib|pdb
      |pickletools|poplib|profile|cProfile|pstats|pyclbr|sndhdr|sunau|tabnanny|telnetlib|wave|xdrlib|zipapp)\.py
    """,
    re.VERBOSE,
)

# Parts of gangline that are of no use in a cluster: the embedded control plane, notebooks, tools for tests.
_LAPTOP = ("apiserver", "local", "node", "notebook", "testing")
# Except for its HTTP server, which receives progress.
_SHARED = ("apiserver/__init__.py", "apiserver/serving/")

# Imports the rest of gangline, and what it imports inside of functions. Some of that is optional and not in the image.
_LOAD = f"""
import ast, contextlib, importlib, pathlib, gangline
root = pathlib.Path(gangline.__file__).parent
names = set()
for source in root.rglob("*.py"):
    path = source.relative_to(root)
    if path.parts[0] in {_LAPTOP!r}:
        continue
    names.add(".".join(["gangline", *path.with_suffix("").parts]).removesuffix(".__init__"))
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {{alias.name for alias in node.names}}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
for name in sorted(names):
    if name.split(".")[0:2] not in [["gangline", each] for each in {_LAPTOP!r}]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
"""


class Inputs(NamedTuple):
    """Packages for one architecture: Debian's, Python's, our own wheel, and programs for /usr/local/bin."""

    debs: Sequence[Package]
    wheels: Sequence[Package]
    own: Package
    programs: Mapping[str, Path]


def read_inputs(inputs: Path, architecture: str, scratch: Path) -> Inputs:
    """Read the packages below a folder: ARCH/debs, ARCH/wheels, ARCH/bin, and our own wheel in own."""
    place = inputs / architecture
    stripper = Stripper(inputs / "binutils", architecture, scratch)
    files = sorted((place / "wheels").glob("*.whl"))
    wheels = [read_wheel(each, SITE, lambda path: not _DROPPED.match(path), stripper) for each in files]
    (wheel,) = (inputs / "own").glob("*.whl")
    own = read_wheel(wheel, SITE, lambda path: "/__pycache__/" not in path)
    programs = {each.name: each for each in sorted((place / "bin").glob("*"))}
    return Inputs(read_debs(place / "debs", lambda path: not _UNUSED_PYTHON.match(path)), wheels, own, programs)


def layer_trees(inputs: Inputs) -> dict[str, Tree]:
    """The layers by their comments, what changes least first."""
    scripts = {f"usr/local/bin/{name}": file(SCRIPT, 0o755) for name in ("gangline", "kubectl-gangline")}
    programs = {f"usr/local/bin/{name}": file(path, 0o755) for name, path in inputs.programs.items()}
    return {
        "Debian packages": base_tree(inputs.debs),
        "Python packages": merge(inputs.wheels),
        "gangline": inputs.own.tree | scripts | programs,
    }


class Built(NamedTuple):
    """The packages of one architecture and the layers made from them."""

    inputs: Inputs
    layers: dict[str, Tree]


def build_layers(inputs: Path, platforms: Sequence[str], scratch: Path) -> dict[str, Built]:
    """The layers for each platform. Byte code is there for what is loaded in a cluster: the rest would be as large."""
    here = MACHINES[platform.machine()]
    read = {each: read_inputs(inputs, each, scratch) for each in {here, *platforms}}
    trees = layer_trees(read[here])
    compiler = Compiler(trees["Debian packages"], here, scratch)
    laptop = tuple(f"{SITE}/gangline/{each}/" for each in _LAPTOP)
    shared = tuple(f"{SITE}/gangline/{each}" for each in _SHARED)
    loaded = {
        each
        for each in compiler.loaded(trees["Python packages"] | trees["gangline"], _LOAD)
        if not each.startswith(laptop) or each.startswith(shared)
    }
    return {
        each: Built(
            read[each],
            {
                comment: tree | compiler.compile(tree, lambda path: path in loaded)
                for comment, tree in layer_trees(read[each]).items()
            },
        )
        for each in platforms
    }


def image_config(version: str, revision: str) -> dict[str, object]:
    """How a container starts, and the labels."""
    label = "org.opencontainers.image"
    return {
        "User": f"{USER}:{USER}",
        "Env": ["PATH=/usr/local/bin:/usr/bin", "HOME=/home/nonroot", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"],
        "Entrypoint": ["gangline"],
        "WorkingDir": "/home/nonroot",
        "Labels": {
            f"{label}.title": "gangline",
            f"{label}.description": "Distributed training jobs on any Kubernetes: operator, gang scheduler, command line",
            f"{label}.version": version,
            f"{label}.revision": revision,
            f"{label}.licenses": "Apache-2.0",
            f"{label}.vendor": "The gangline authors",
        },
    }


def build(options: argparse.Namespace, scratch: Path) -> None:
    """Build the image for all platforms."""
    images = []
    layers = build_layers(options.inputs, options.platforms, scratch)
    for architecture, built in layers.items():
        tars = [
            oci.write_layer(scratch / f"{architecture}-{number}.tar", comment, tree, options.epoch)
            for number, (comment, tree) in enumerate(built.layers.items())
        ]
        images.append(oci.Image(architecture, image_config(built.inputs.own.version, options.revision), tars))
        total = sum(size(tree.values()) for tree in built.layers.values())
        print(f"{options.name} for {architecture}: {total / 1e6:.1f} MB unpacked")
    written = oci.write_image(options.output, options.name, images, options.epoch)
    for architecture, built in layers.items():
        bill = _bill(options, architecture, written.manifests[architecture], built.inputs)
        path = written.archives[architecture].with_suffix(".cdx.json")
        path.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    (options.output / "digests.txt").write_text(digest_lines(options.name, written))
    for archive in written.archives.values():
        print(archive)


def _bill(options: argparse.Namespace, architecture: str, digest: str, inputs: Inputs) -> dict[str, object]:
    wheels = [*inputs.wheels, inputs.own]
    modules = go_modules(options.agent_module.read_text())
    return bill_of_materials(
        options.name, architecture, digest, options.epoch, debs=inputs.debs, wheels=wheels, modules=modules
    )


def digest_lines(name: str, written: oci.Written) -> str:
    """What to sign and to deploy: a reference by digest, and what it is, a line for the index and for each platform."""
    repository = name.rpartition(":")[0]
    platforms = [(digest, f"linux/{architecture}") for architecture, digest in sorted(written.manifests.items())]
    return "".join(f"{repository}@{digest}\t{what}\n" for digest, what in [(written.digest, "index"), *platforms])


def write_root(options: argparse.Namespace, scratch: Path) -> None:
    """Write the root file system of one platform into a folder."""
    (platform_name,) = options.platforms
    for tree in build_layers(options.inputs, [platform_name], scratch)[platform_name].layers.values():
        write(tree, options.tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--platforms", required=True, type=lambda text: text.split(","))
    parser.add_argument("--agent-module", required=True, type=Path, help="go.mod of the agent")
    parser.add_argument("--tree", type=Path, help="write the root file system into this folder instead")
    options = parser.parse_args()
    os.umask(0o022)
    with tempfile.TemporaryDirectory(dir=options.inputs) as scratch:
        (build if options.tree is None else write_root)(options, Path(scratch))


if __name__ == "__main__":
    main()

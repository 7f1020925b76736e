"""Build the gangline image from packages that hack/image.sh has downloaded. `hack/image.sh --help` says what for."""

import argparse
import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hack.images import oci
from hack.images.base import MACHINES, SITE, USER, Compiler, base_tree, merge, read_debs
from hack.images.packages import Package, read_wheel
from hack.images.tree import Tree, file, size, write

SCRIPT = """#!/usr/bin/python3
import sys

from gangline.__main__ import main

sys.exit(main())
"""

# Sources and headers of extensions, tests, types for checkers; of CEL's extensions all but the one that we import.
_DROPPED = re.compile(
    r"""
    .*/tests?/ | .*\.(pyi|pyx|pxd|pxi|a|h|c|cpp|typed)$
    | numpy/(f2py|_core/include|doc|distutils|_pyinstaller)/
    | cel_expr_python/ext/ext_(?!optional\.)
    """,
    re.VERBOSE,
)


class Inputs(NamedTuple):
    """Packages for one architecture: Debian's, Python's, our own wheel, and programs for /usr/local/bin."""

    debs: Sequence[Package]
    wheels: Sequence[Package]
    own: Package
    programs: Mapping[str, Path]


def read_inputs(inputs: Path, architecture: str) -> Inputs:
    """Read the packages below a folder: ARCH/debs, ARCH/wheels, ARCH/bin, and our own wheel in own."""
    place = inputs / architecture
    files = sorted((place / "wheels").glob("*.whl"))
    wheels = [read_wheel(each, SITE, lambda path: not _DROPPED.match(path)) for each in files]
    (wheel,) = (inputs / "own").glob("*.whl")
    own = read_wheel(wheel, SITE, lambda path: "/__pycache__/" not in path)
    programs = {each.name: each for each in sorted((place / "bin").glob("*"))}
    return Inputs(read_debs(place / "debs"), wheels, own, programs)


def layer_trees(inputs: Inputs, compiler: Compiler) -> dict[str, Tree]:
    """The layers by their comments, what changes least first."""
    scripts = {f"usr/local/bin/{name}": file(SCRIPT, 0o755) for name in ("gangline", "kubectl-gangline")}
    programs = {f"usr/local/bin/{name}": file(path, 0o755) for name, path in inputs.programs.items()}
    trees = {
        "Debian packages": base_tree(inputs.debs),
        "Python packages": merge(inputs.wheels),
        "gangline": inputs.own.tree | scripts | programs,
    }
    return {comment: tree | compiler.compile(tree) for comment, tree in trees.items()}


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
    here = MACHINES[platform.machine()]
    compiler = Compiler(base_tree(read_debs(options.inputs / here / "debs")), here, scratch)
    images = []
    for architecture in options.platforms:
        inputs = read_inputs(options.inputs, architecture)
        trees = layer_trees(inputs, compiler)
        layers = [
            oci.write_layer(scratch / f"{architecture}-{number}.tar", comment, tree, options.epoch)
            for number, (comment, tree) in enumerate(trees.items())
        ]
        images.append(oci.Image(architecture, image_config(inputs.own.version, options.revision), layers))
        total = sum(size(tree.values()) for tree in trees.values())
        print(f"{options.name} for {architecture}: {total / 1e6:.1f} MB unpacked")
    written = oci.write_image(options.output, options.name, images, options.epoch)
    for path in written.archives.values():
        print(path)


def write_root(options: argparse.Namespace, scratch: Path) -> None:
    """Write the root file system of this machine's platform into a folder."""
    here = MACHINES[platform.machine()]
    inputs = read_inputs(options.inputs, here)
    compiler = Compiler(base_tree(inputs.debs), here, scratch)
    for tree in layer_trees(inputs, compiler).values():
        write(tree, options.tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--platforms", required=True, type=lambda text: text.split(","))
    parser.add_argument("--tree", type=Path, help="write the root file system into this folder instead")
    options = parser.parse_args()
    os.umask(0o022)
    with tempfile.TemporaryDirectory(dir=options.inputs) as scratch:
        (build if options.tree is None else write_root)(options, Path(scratch))


if __name__ == "__main__":
    main()

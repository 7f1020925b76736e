"""Build the gangline image from packages that hack/image.sh has downloaded. `hack/image.sh --help` says what for."""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hack.images import oci
from hack.images.packages import Package, package_list, read_deb, read_wheel
from hack.images.tree import MERGED, Node, Tree, file, folder, link, size, with_parents, write

PYTHON = "usr/lib/python3.11"
SITE = "usr/local/lib/python3.11/dist-packages"
USER = 65532
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
LOADERS = {"amd64": "usr/lib64/ld-linux-x86-64.so.2", "arm64": "usr/lib/ld-linux-aarch64.so.1"}
TRIPLES = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

SCRIPT = """#!/usr/bin/python3
import sys

from gangline.__main__ import main

sys.exit(main())
"""

DROPPED_FROM_DEBIAN = re.compile(
    r"""
    usr/share/doc/[^/]+/(?!copyright$)
    | usr/share/(man|locale|lintian|bug|info|doc-base|base-files|python3|apps|binfmts|pixmaps|menu|applications|gcc)/
    | usr/share/zoneinfo/(posix|right)/
    | usr/share/dict | usr/sbin/ | usr/games/ | var/ | root/ | home/ | dev/ | proc/ | sys/ | run/ | boot/ | mnt/
    | etc/(default|profile\.d|skel|update-motd\.d|dpkg|python3\.11|ca-certificates|issue|motd|host\.conf|ld\.so\.conf)
    | usr/lib/[^/]+/(gconv|audit|perl)/ | usr/lib/[^/]+/libmemusage | usr/lib/[^/]+/libpcprofile
    | usr/lib/python3\.11/(pydoc_data|lib2to3|idlelib|test|turtledemo|tkinter|ensurepip|__pycache__|__phello__)/
    | usr/lib/python3\.11/(config-3\.11-[^/]+|distutils)/ | usr/lib/python3\.11/(turtle|pydoc|antigravity|this)\.py
    | .*/__pycache__/
    """,
    re.VERBOSE,
)
DROPPED_FROM_WHEELS = re.compile(
    r"""
    .*/tests?/ | .*\.(pyi|pyx|pxd|pxi|a|h|c|cpp|typed|so\.sources)$
    | numpy/(f2py|_core/include|doc|distutils|_pyinstaller)/
    | cel_expr_python/ext/ext_(?!optional\.)
    """,
    re.VERBOSE,
)


class Inputs(NamedTuple):
    """Packages for one architecture."""

    architecture: str
    debs: Sequence[Package]
    wheels: Sequence[Package]
    own: Package
    programs: Mapping[str, Path]


class Facts(NamedTuple):
    """What is written into the image about itself."""

    version: str
    revision: str
    epoch: int


def read_inputs(folder_of_inputs: Path, architecture: str) -> Inputs:
    """Read the packages below a folder: ARCH/debs, ARCH/wheels, ARCH/bin, and our own wheel in own."""
    place = folder_of_inputs / architecture
    debs = [
        read_deb(each, lambda path: not DROPPED_FROM_DEBIAN.match(path))
        for each in sorted((place / "debs").glob("*.deb"))
    ]
    wheels = [
        read_wheel(each, SITE, lambda path: not DROPPED_FROM_WHEELS.match(path))
        for each in sorted((place / "wheels").glob("*.whl"))
    ]
    (wheel,) = (folder_of_inputs / "own").glob("*.whl")
    own = read_wheel(wheel, SITE, lambda path: "/__pycache__/" not in path)
    programs = {each.name: each for each in sorted((place / "bin").glob("*"))}
    return Inputs(architecture, debs, wheels, own, programs)


def base_tree(debs: Sequence[Package]) -> Tree:
    """The root file system: C library, Python, certificates, time zones, a user. Neither a shell nor a package manager."""
    tree: Tree = {}
    for package in debs:
        tree |= package.tree
    certificates = {path: node for path, node in tree.items() if path.startswith("usr/share/ca-certificates/")}
    tree = {path: node for path, node in tree.items() if path not in certificates}
    bundle = b"".join(node.read().rstrip(b"\n") + b"\n" for _, node in sorted(certificates.items()))
    settings = {
        "etc/passwd": file(
            "root:x:0:0:root:/root:/sbin/nologin\n"
            f"nonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"
        ),
        "etc/group": file(f"root:x:0:\nnonroot:x:{USER}:\nnogroup:x:65534:\n"),
        "etc/nsswitch.conf": file("passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"),
        "etc/ssl/certs/ca-certificates.crt": file(bundle),
        "usr/lib/ssl/certs": link("/etc/ssl/certs"),
        "usr/lib/ssl/cert.pem": link("/etc/ssl/certs/ca-certificates.crt"),
        "etc/localtime": link("/usr/share/zoneinfo/Etc/UTC"),
        "usr/bin/python3": link("python3.11"),
        "usr/bin/python": link("python3.11"),
        "tmp": folder(0o1777),
        "var/tmp": folder(0o1777),
        "root": folder(0o700),
        "home/nonroot": folder(0o755, USER),
        "run": folder(),
        "proc": folder(),
        "sys": folder(),
        "dev": folder(),
    }
    links = {name: link(f"usr/{name}") for name in MERGED if any(path.startswith(f"usr/{name}/") for path in tree)}
    return tree | settings | links | package_list(list(debs))


def merge(packages: Iterable[Package]) -> Tree:
    """The trees of several packages as one."""
    tree: Tree = {}
    for package in packages:
        tree |= package.tree
    return tree


def program_tree(programs: Mapping[str, Path]) -> Tree:
    """The commands of the image, at /usr/local/bin."""
    scripts = {f"usr/local/bin/{name}": file(SCRIPT, 0o755) for name in ("gangline", "kubectl-gangline")}
    return scripts | {f"usr/local/bin/{name}": file(path, 0o755) for name, path in programs.items()}


class Compiler:
    """Python's byte code for the image, made by the image's own Python, started by the image's own loader.

    A read-only file system cannot keep byte code, so it is made here. Its files never look at the time of their source,
    and the same source gives the same bytes.
    """

    def __init__(self, base: Tree, architecture: str, scratch: Path) -> None:
        self._root = scratch / "python"
        self._work = scratch / "sources"
        self._architecture = architecture
        write(base, self._root)

    def compile(self, tree: Tree) -> Tree:
        """The byte code of all sources in a tree."""
        shutil.rmtree(self._work, ignore_errors=True)
        write({path: node for path, node in tree.items() if path.endswith(".py")}, self._work)
        root, triple = self._root, TRIPLES[self._architecture]
        command: list[str | Path] = [
            root / LOADERS[self._architecture],
            *("--library-path", root / "usr/lib" / triple),
            *(root / "usr/bin/python3.11", "-m", "compileall", "-q", "-f"),
            *("--invalidation-mode", "unchecked-hash", "-s", self._work, "-p", "/", self._work),
        ]
        environment = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, env=environment, check=True)
        return {
            str(each.relative_to(self._work)): file(each.read_bytes()) for each in sorted(self._work.rglob("*.pyc"))
        }


def image_config(facts: Facts, architecture: str) -> dict[str, object]:
    """How a container starts, and the labels."""
    title = "org.opencontainers.image"
    return {
        "User": f"{USER}:{USER}",
        "Env": [
            "PATH=/usr/local/bin:/usr/bin",
            "HOME=/home/nonroot",
            "LANG=C.UTF-8",
            "PYTHONDONTWRITEBYTECODE=1",
        ],
        "Entrypoint": ["gangline"],
        "WorkingDir": "/home/nonroot",
        "Labels": {
            f"{title}.title": "gangline",
            f"{title}.description": f"Distributed training jobs on any Kubernetes ({architecture})",
            f"{title}.version": facts.version,
            f"{title}.revision": facts.revision,
            f"{title}.licenses": "Apache-2.0",
            f"{title}.vendor": "The gangline authors",
        },
    }


def layers_of(inputs: Inputs, compiler: Compiler) -> dict[str, Tree]:
    """The layers by their comments, what changes least first."""
    base = base_tree(inputs.debs)
    dependencies = merge(inputs.wheels)
    own = inputs.own.tree | program_tree(inputs.programs)
    trees = {"Debian packages": base, "Python packages": dependencies, "gangline": own}
    return {comment: tree | compiler.compile(tree) for comment, tree in trees.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--revision", required=True)
    parser.add_argument("--epoch", required=True, type=int)
    parser.add_argument("--platforms", required=True, type=lambda text: text.split(","))
    parser.add_argument("--tree", type=Path, help="write the root file system into this folder, and nothing else")
    options = parser.parse_args()
    os.umask(0o022)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.output) as scratch:
        build(options, Path(scratch))


def build(options: argparse.Namespace, scratch: Path) -> None:
    """Build the image for all platforms."""
    here = MACHINES[platform.machine()]
    compiler = Compiler(base_tree(read_inputs(options.inputs, here).debs), here, scratch)
    images = []
    for architecture in options.platforms:
        inputs = read_inputs(options.inputs, architecture)
        facts = Facts(inputs.own.version, options.revision, options.epoch)
        trees = layers_of(inputs, compiler)
        if options.tree is not None:
            for tree in trees.values():
                write(with_parents(tree), options.tree)
            return
        layers = [
            oci.write_layer(scratch / f"{architecture}-{number}.tar", comment, tree, options.epoch)
            for number, (comment, tree) in enumerate(trees.items())
        ]
        images.append(oci.Image(architecture, image_config(facts, architecture), layers))
        print(f"{architecture}: {_megabytes(node for tree in trees.values() for node in tree.values())} MB unpacked")
    written = oci.write_image(options.output, options.name, images, options.epoch)
    (options.output / "digests.json").write_text(
        json.dumps({"index": written.digest, "manifests": written.manifests}) + "\n"
    )
    for path in written.archives.values():
        print(path)


def _megabytes(nodes: Iterable[Node]) -> str:
    return f"{size(nodes) / 1e6:.1f}"


if __name__ == "__main__":
    main()

"""What images share: Debian's Python with little else, and the byte code for a file system that is read only."""

import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hack.images.packages import Keep, Package, package_list, read_deb
from hack.images.tree import MERGED, Node, Tree, file, folder, link, write

SITE = "usr/local/lib/python3.11/dist-packages"
USER = 65532
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_LOADERS = {"amd64": "usr/lib64/ld-linux-x86-64.so.2", "arm64": "usr/lib/ld-linux-aarch64.so.1"}
_TRIPLES = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

_DROPPED = re.compile(
    r"""
    usr/share/doc/[^/]+/(?!copyright$)
    | usr/share/(man|locale|lintian|bug|info|doc-base|base-files|python3|apps|binfmts|pixmaps|menu|applications|gcc)/
    | usr/share/zoneinfo/(posix|right)/
    | usr/share/dict | usr/games/ | var/ | root/ | home/ | dev/ | proc/ | sys/ | run/ | boot/ | mnt/
    | etc/(default|profile\.d|skel|update-motd\.d|dpkg|python3\.11|ca-certificates|issue|motd|host\.conf|ld\.so\.conf)
    | usr/lib/[^/]+/(gconv|audit|perl|engines-3)/
    | usr/lib/[^/]+/lib(memusage|pcprofile|mvec|BrokenLocale|c_malloc_debug|nss_compat|nss_hesiod|thread_db|expatw)\.
    | usr/lib/[^/]+/libnsl\.so\.1$
    | usr/lib/python3\.11/(pydoc_data|lib2to3|idlelib|test|turtledemo|tkinter|ensurepip|__pycache__|__phello__)/
    | usr/lib/python3\.11/(config-3\.11-[^/]+|distutils)/ | usr/lib/python3\.11/(turtle|pydoc|antigravity|this)\.py
    | .*/__pycache__/
    """,
    re.VERBOSE,
)


def read_debs(files: Path, keep: Keep = lambda _path: True) -> list[Package]:
    """The Debian packages of a folder, without what no program that runs in a container reads. Licences stay."""
    return [
        read_deb(each, lambda path: not _DROPPED.match(path) and keep(path)) for each in sorted(files.glob("*.deb"))
    ]


def base_tree(debs: Sequence[Package]) -> Tree:
    """The root file system of these packages, with certificates and a user. No shell and no package manager is added."""
    tree = merge(debs)
    certificates = {path: node for path, node in tree.items() if path.startswith("usr/share/ca-certificates/")}
    tree = {path: node for path, node in tree.items() if path not in certificates}
    links = {name: link(f"usr/{name}") for name in MERGED if any(path.startswith(f"usr/{name}/") for path in tree)}
    return tree | _settings(certificates) | links | package_list(debs)


def _settings(certificates: Tree) -> Tree:
    """What maintainer scripts of packages would write."""
    bundle = b"".join(node.read().rstrip(b"\n") + b"\n" for _, node in sorted(certificates.items()))
    return {
        "etc/passwd": file(
            "root:x:0:0:root:/root:/bin/sh\n"
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


def merge(packages: Iterable[Package]) -> Tree:
    """The trees of several packages as one."""
    tree: dict[str, Node] = {}
    for package in packages:
        tree |= package.tree
    return tree


class Compiler:
    """Python's byte code for images, made by the Python of `base`, started by its own loader.

    A read-only file system cannot keep byte code, so it is made here. Its files never look at the time of their source,
    and the same source gives the same bytes.
    """

    def __init__(self, base: Tree, architecture: str, scratch: Path) -> None:
        self._root = scratch / "python"
        self._work = scratch / "sources"
        write(base, self._root)
        libraries = self._root / "usr/lib" / _TRIPLES[architecture]
        self._python = [str(self._root / _LOADERS[architecture]), "--library-path", str(libraries)]
        self._python += [str(self._root / "usr/bin/python3.11")]

    def compile(self, tree: Mapping[str, Node], only: Callable[[str], bool] = lambda _path: True) -> Tree:
        """The byte code of sources in a tree. Files that are no Python of this version, such as templates, have none."""
        shutil.rmtree(self._work, ignore_errors=True)
        write({path: node for path, node in tree.items() if path.endswith(".py") and only(path)}, self._work)
        work = str(self._work)
        options = ["-q", "-q", "-f", "--invalidation-mode", "unchecked-hash", "-s", work, "-p", "/", work]
        # Its exit code is 1 if one file of many is no Python.
        self._run("-m", "compileall", *options, check=False)
        return {
            str(each.relative_to(self._work)): file(each.read_bytes()) for each in sorted(self._work.rglob("*.pyc"))
        }

    def loaded(self, tree: Mapping[str, Node], program: str) -> frozenset[str]:
        """Paths of the sources that a program in Python imports, with `tree` added to the base."""
        write(tree, self._root)
        ending = "\nimport sys\nfor module in list(sys.modules.values()):\n    print(getattr(module, '__file__', None))"
        lines = self._run("-c", program + ending, PYTHONPATH=str(self._root / SITE)).splitlines()
        root = f"{self._root}/"
        return frozenset(line.removeprefix(root) for line in lines if line.startswith(root))

    def _run(self, *arguments: str, check: bool = True, **variables: str) -> str:
        environment = {"PYTHONHOME": str(self._root / "usr"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*self._python, *arguments]
        return subprocess.run(
            command, env=environment | variables, check=check, stdout=subprocess.PIPE, text=True
        ).stdout


class Stripper:
    """Removes symbols and debug information from the libraries of wheels, with Debian's binutils unpacked in a folder."""

    def __init__(self, binutils: Path, architecture: str, scratch: Path) -> None:
        machine = _TRIPLES[architecture]
        self._program = binutils / "usr/bin" / f"{machine}-strip"
        self._libraries = ":".join(str(each) for each in sorted((binutils / "usr/lib").glob("*-linux-gnu")))
        self._part = scratch / "library.so"

    def __call__(self, path: str, content: bytes) -> bytes:
        """The content of a file in a wheel, smaller if it is a library.

        Libraries whose segments were moved by other tools can be torn by binutils. Those stay as they are.
        """
        if not content.startswith(b"\x7fELF"):
            return content
        self._part.write_bytes(content)
        environment = {"LD_LIBRARY_PATH": self._libraries}
        subprocess.run([self._program, "--strip-unneeded", self._part], env=environment, check=True)
        stripped = self._part.read_bytes()
        return stripped if segments(stripped) == segments(content) else content


def segments(library: bytes) -> list[tuple[int, int, int, bytes]]:
    """What the loader maps of a 64-bit ELF file: address, size in memory, flags and content of each segment. The file's own
    headers, which are mapped too, are left out; a segment that cannot be mapped has no content."""
    table, size, count = _unpack("<Q", library, 32), _unpack("<H", library, 54), _unpack("<H", library, 56)
    mapped = []
    for at in range(table, table + size * count, size):
        kind, flags, offset, address, _, in_file, in_memory, align = struct.unpack_from("<IIQQQQQQ", library, at)
        if kind == 1:
            start = max(offset, table + size * count) if offset == 0 else offset
            content = library[start : offset + in_file] if offset % align == address % align else b""
            mapped.append((address, in_memory, flags, content))
    return mapped


def _unpack(form: str, data: bytes, at: int) -> int:
    value: int = struct.unpack_from(form, data, at)[0]
    return value

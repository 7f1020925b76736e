"""Read what Debian packages and Python wheels bring, as trees."""

import base64
import csv
import email.parser
import hashlib
import io
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from pathlib import Path
from typing import NamedTuple

from hack.images.tree import Node, Tree, file, folder, link, merged_path, plain_mode

Keep = Callable[[str], bool]
Change = Callable[[str, bytes], bytes]


class Package(NamedTuple):
    """A package: its description (control file or METADATA), the hash of its file, and what of it goes into an image."""

    name: str
    version: str
    fields: Message
    sha256: str
    tree: Tree


def _file_hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_deb(path: Path, keep: Keep) -> Package:
    """A Debian package. Its maintainer scripts are not run."""
    with _tar_of(path, "--ctrl-tarfile") as control:
        member = control.extractfile("./control")
        assert member is not None
        fields = email.parser.BytesParser().parse(member)
    tree: Tree = {}
    with _tar_of(path, "--fsys-tarfile") as archive:
        for member_info in archive:
            name = merged_path(member_info.name.removeprefix("./").rstrip("/"))
            if name and keep(name):
                tree |= {name: node} if (node := _node(archive, member_info)) else {}
    return Package(fields["Package"], fields["Version"], fields, _file_hash(path), tree)


def _tar_of(path: Path, part: str) -> tarfile.TarFile:
    output = subprocess.run(["dpkg-deb", part, path], stdout=subprocess.PIPE, check=True).stdout
    return tarfile.open(fileobj=io.BytesIO(output))


def _node(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Node | None:
    """Empty folders are of no use to a program that runs; those with something in them come with it."""
    if info.issym():
        return link(info.linkname)
    content = archive.extractfile(info)  # follows hard links
    return file(content.read(), plain_mode(info.mode)) if content else None


def read_wheel(path: Path, place: str, keep: Keep, change: Change = lambda _path, content: content) -> Package:
    """A wheel, unpacked as an installer does it, into the folder `place`. Its list of files names those that are kept, with
    the hashes of what `change` makes of them."""
    tree: Tree = {}
    with zipfile.ZipFile(path) as archive:
        contents = {each.filename: archive.read(each) for each in archive.infolist() if not each.is_dir()}
        modes = {each.filename: plain_mode(each.external_attr >> 16) for each in archive.infolist()}
    metadata = next(name for name in contents if name.count("/") == 1 and name.endswith(".dist-info/METADATA"))
    fields = email.parser.BytesParser().parsebytes(contents[metadata])
    for name, content in contents.items():
        target = _installed_path(name)
        if target is not None and keep(target):
            tree[f"{place}/{target}"] = file(change(target, content), modes[name])
    information = metadata.rpartition("/")[0]
    tree[f"{place}/{information}/INSTALLER"] = file("gangline\n")
    tree[f"{place}/{information}/RECORD"] = file(_record(tree, place, information))
    return Package(fields["Name"], fields["Version"], fields, _file_hash(path), tree)


def _installed_path(name: str) -> str | None:
    """Where a file of a wheel goes below site-packages; None if it is for another place, such as scripts or headers."""
    top, _, rest = name.partition("/")
    if not top.endswith(".data"):
        return name
    kind, _, rest = rest.partition("/")
    return rest if kind in {"purelib", "platlib"} else None


def _record(tree: Mapping[str, Node], place: str, information: str) -> str:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    for path, node in sorted(tree.items()):
        data = node.read()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if not path.endswith(f"{information}/RECORD"):
            writer.writerow([path.removeprefix(f"{place}/"), f"sha256={digest}", len(data)])
    writer.writerow([f"{information}/RECORD", "", ""])
    return rows.getvalue()


def package_list(packages: Sequence[Package]) -> Tree:
    """What Debian packages are there, in the form that image scanners read where there is no dpkg."""
    return {f"var/lib/dpkg/status.d/{each.name}": file(f"{_control(each.fields)}\n") for each in packages} | {
        "var/lib/dpkg": folder()
    }


def _control(fields: Message) -> str:
    return "\n".join(f"{name}: {value}" for name, value in fields.items())

"""Images are written the same way every time, from what packages really bring."""

import base64
import hashlib
import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from hack.images import gangline, oci, packages, sbom, tree  # noqa: E402
from hack.images.base import segments  # noqa: E402


def write_layer(folder: Path, files: tree.Tree) -> oci.Layer:
    folder.mkdir()
    return oci.write_layer(folder / "layer.tar", "test", files, 7)


def test_a_layer_has_the_same_bytes_whatever_the_order_of_its_files(tmp_path: Path) -> None:
    files = {"b/c": tree.file("1", 0o755), "a": tree.link("b/c"), "d": tree.folder(0o1777), "b/a": tree.file(b"2")}
    forward = write_layer(tmp_path / "forward", files)
    backward = write_layer(tmp_path / "backward", dict(reversed(files.items())))
    assert forward.digest == backward.digest
    assert forward.path.read_bytes() == backward.path.read_bytes()


def test_a_layer_keeps_modes_links_owners_and_the_given_time(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("from disk")
    files = {"bin/run": tree.file(source, 0o755), "run": tree.link("bin/run"), "home": tree.folder(0o700, 65532)}
    with tarfile.open(write_layer(tmp_path / "out", files).path) as archive:
        entries = {each.name: each for each in archive}
        content = archive.extractfile("bin/run")
        assert content is not None
        assert content.read() == b"from disk"
    assert list(entries) == ["bin", "bin/run", "home", "run"]
    assert (entries["bin/run"].mode, entries["bin/run"].uid, entries["bin/run"].mtime) == (0o755, 0, 7)
    assert (entries["home"].mode, entries["home"].uid, entries["home"].gid) == (0o700, 65532, 65532)
    assert entries["run"].linkname == "bin/run"


def test_an_archive_and_a_layout_hold_the_same_image(tmp_path: Path) -> None:
    layer = write_layer(tmp_path / "layer", {"a": tree.file("1")})
    image = oci.Image("arm64", {"User": "1"}, [layer])
    written = oci.write_image(tmp_path, "team/name:2", [image], 7)
    assert written.archives["arm64"].name == "team-name-2-arm64.tar"
    with tarfile.open(written.archives["arm64"]) as archive:
        (listing,) = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        config = archive.extractfile(listing["Config"]).read()  # type: ignore[union-attr]
    assert listing["RepoTags"] == ["team/name:2"]
    assert written.ids["arm64"] == f"sha256:{hashlib.sha256(config).hexdigest()}"
    manifest = json.loads((tmp_path / "oci/blobs" / written.manifests["arm64"].replace(":", "/")).read_text())
    assert manifest["config"]["digest"] == written.ids["arm64"]
    assert json.loads(config)["rootfs"]["diff_ids"] == [layer.digest]
    assert gangline.digest_lines("team/name:2", written).splitlines() == [
        f"team/name@{written.digest}\tindex",
        f"team/name@{written.manifests['arm64']}\tlinux/arm64",
    ]


def make_wheel(folder: Path) -> Path:
    path = folder / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing/__init__.py", "x = 1\n")
        archive.writestr("thing/tests/test_it.py", "assert False\n")
        archive.writestr("thing-1.0.data/purelib/other.py", "y = 2\n")
        archive.writestr("thing-1.0.data/scripts/thing", "#!python\n")
        archive.writestr("thing-1.0.dist-info/METADATA", "Name: thing\nVersion: 1.0\nLicense-Expression: MIT\n\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "thing/tests/test_it.py,,\n")
    return path


def test_a_wheel_is_unpacked_as_an_installer_does_it_and_lists_what_is_there(tmp_path: Path) -> None:
    package = packages.read_wheel(
        make_wheel(tmp_path), "site", lambda path: "/tests/" not in path, lambda _path, content: content.upper()
    )
    information = {f"site/thing-1.0.dist-info/{each}" for each in ("METADATA", "INSTALLER", "RECORD")}
    assert set(package.tree) == {"site/thing/__init__.py", "site/other.py", *information}
    assert (package.name, package.version) == ("thing", "1.0")
    record = package.tree["site/thing-1.0.dist-info/RECORD"].read().decode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"X = 1\n").digest()).rstrip(b"=").decode()
    assert f"thing/__init__.py,sha256={digest},6\n" in record
    assert "test_it" not in record


def test_the_bill_of_materials_names_licences_and_hashes(tmp_path: Path) -> None:
    package = packages.read_wheel(make_wheel(tmp_path), "site", lambda _path: True)
    bill = sbom.bill_of_materials(
        "a/b:1", "amd64", "sha256:00", 0, debs=[], wheels=[package], modules=[("x.y/z", "v1.0.0")]
    )
    go, python = bill["components"]
    assert go["purl"] == "pkg:golang/x.y/z@v1.0.0"
    assert python["purl"] == "pkg:pypi/thing@1.0"
    assert python["licenses"] == [{"expression": "MIT"}]
    assert python["hashes"] == [
        {"alg": "SHA-256", "content": hashlib.sha256(make_wheel(tmp_path).read_bytes()).hexdigest()}
    ]
    assert bill["metadata"]["component"]["purl"] == "pkg:oci/b@sha256%3A00?arch=amd64"


@pytest.mark.parametrize(
    "text",
    ["require a.b/c v1.2.3\n", "require (\n\ta.b/c v1.2.3\n)\n", "go 1.24\n\nrequire a.b/c v1.2.3 // indirect\n"],
)
def test_modules_of_the_agent_are_read_from_its_go_mod(text: str) -> None:
    assert sbom.go_modules(f"module gangline.dev/agent\n\ngo 1.24\n\n{text}") == [("a.b/c", "v1.2.3")]


@pytest.mark.skipif(sys.platform != "linux", reason="ELF programs are Linux's")
def test_a_library_whose_segment_cannot_be_mapped_is_another_one() -> None:
    program = Path(sys.executable).resolve().read_bytes()
    assert segments(program)
    table = int.from_bytes(program[32:40], "little")
    first = next(at for at in range(table, table + 56 * 20, 56) if program[at : at + 4] == b"\x01\0\0\0")
    torn = bytearray(program)
    torn[first + 16] ^= 8  # the address, no longer at the same place of a page as the content
    assert segments(bytes(torn)) != segments(program)


def test_the_containerfile_makes_the_same_image() -> None:
    text = (ROOT / "Containerfile").read_text().replace("\\\n", " ")
    final = text[text.rindex("FROM ") :]
    config = gangline.image_config("1", "2")
    assert final.startswith("FROM scratch\nCOPY --from=build /image /\n")
    assert re.search(r"^USER (.*)$", final, re.MULTILINE)[1] == config["User"]  # type: ignore[index]
    assert json.loads(re.search(r"^ENTRYPOINT (.*)$", final, re.MULTILINE)[1]) == config["Entrypoint"]  # type: ignore[index]
    assert re.search(r"^ENV (.*)$", final, re.MULTILINE)[1].split() == config["Env"]  # type: ignore[index]
    assert re.search(r"^WORKDIR (.*)$", final, re.MULTILINE)[1] == config["WorkingDir"]  # type: ignore[index]
    labels = dict(re.findall(r'(org\.opencontainers\.image\.\w+)="([^"]*)"', final))
    written = config["Labels"]
    assert isinstance(written, dict)
    changing = {"org.opencontainers.image.revision", "org.opencontainers.image.version"}
    assert {name: labels.get(name) for name in set(written) - changing} == {
        name: value for name, value in written.items() if name not in changing
    }


def test_every_architecture_has_the_same_pinned_packages() -> None:
    names = (ROOT / "requirements/debian.in").read_text().split()
    for architecture in ("amd64", "arm64"):
        lines = (ROOT / f"requirements/debian-{architecture}.txt").read_text().splitlines()
        assert [line.partition("=")[0] for line in lines] == sorted(names)
        assert all(re.fullmatch(r"\S+=\S+ [0-9a-f]{64}", line) for line in lines)

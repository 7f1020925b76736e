"""The image, built as hack/image.sh builds it: once for both platforms, once more from nothing for this machine's."""

import json
import os
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.requirements import skip_or_fail

ROOT = Path(__file__).parents[2]
REQUIRED = "GANGLINE_REQUIRE_IMAGE"
HERE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
PLATFORMS = ("amd64", "arm64")


class BuiltImage(NamedTuple):
    """A folder that hack/image.sh has written."""

    folder: Path

    def digests(self) -> dict[str, str]:
        """Digests by what they are of: index, linux/amd64, linux/arm64."""
        rows = [line.split("\t") for line in (self.folder / "digests.txt").read_text().splitlines()]
        return {what: reference.partition("@")[2] for reference, what in rows}

    def blob(self, digest: str) -> Any:
        return json.loads(self.path_of(digest).read_text())

    def path_of(self, digest: str) -> Path:
        return self.folder / "oci" / "blobs" / digest.replace(":", "/")

    def config(self, architecture: str) -> Any:
        manifest = self.blob(self.digests()[f"linux/{architecture}"])
        return self.blob(manifest["config"]["digest"])

    def entries(self, architecture: str) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
        """What is in the image, by path, with the content of files."""
        found = {}
        manifest = self.blob(self.digests()[f"linux/{architecture}"])
        for layer in manifest["layers"]:
            with tarfile.open(self.path_of(layer["digest"])) as archive:
                for info in archive:
                    content = archive.extractfile(info) if info.isreg() else None
                    found[info.name] = (info, content.read() if content else b"")
        return found

    def bill(self, architecture: str) -> Path:
        (path,) = self.folder.glob(f"*-{architecture}.cdx.json")
        return path


def build_image(folder: Path, *options: str) -> BuiltImage:
    command = [str(ROOT / "hack" / "image.sh"), "--output", str(folder), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return BuiltImage(folder)


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> BuiltImage:
    if os.environ.get(REQUIRED) != "1":
        skip_or_fail("the image is built by make test-image only", required=REQUIRED)
    return build_image(tmp_path_factory.mktemp("image"), "--platforms", ",".join(PLATFORMS))


@pytest.fixture(scope="session")
def container(image: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root file system for this machine, unpacked."""
    root = tmp_path_factory.mktemp("root")
    root.chmod(0o755)  # others may look into it, as into the root of a container
    manifest = image.blob(image.digests()[f"linux/{HERE}"])
    for layer in manifest["layers"]:
        with tarfile.open(image.path_of(layer["digest"])) as archive:
            archive.extractall(root, filter="fully_trusted")
    return root

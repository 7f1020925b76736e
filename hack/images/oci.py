"""Write container images without a container engine: an OCI layout and archives that `ctr`, `docker` and `podman` load.

The same trees and settings give the same bytes: entries are sorted, times and owners are given, and nothing else of this
machine gets in. Layers are compressed by zlib; the image id is that of the uncompressed ones, whatever zlib it was.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hack.images.tree import Node, with_parents

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
COMPRESSION = 6

Json = dict[str, Any]


class Layer(NamedTuple):
    """A layer: why it is there, its tar file, and its digest."""

    comment: str
    path: Path
    digest: str


class Image(NamedTuple):
    """An image for one architecture. `config` is what the OCI calls so: Env, Entrypoint, User, Labels and their like."""

    architecture: str
    config: Mapping[str, Any]
    layers: Sequence[Layer]


class Written(NamedTuple):
    """What was written: digest of the index and of the manifest of each architecture, image ids, archives."""

    digest: str
    manifests: Mapping[str, str]
    ids: Mapping[str, str]
    archives: Mapping[str, Path]


def write_layer(path: Path, comment: str, tree: Mapping[str, Node], epoch: int) -> Layer:
    """Write a tree as a tar file."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, node in with_parents(tree).items():
            info = tarfile.TarInfo(name)
            info.mode, info.mtime = node.mode, epoch
            info.uid = info.gid = node.owner
            if node.target is not None:
                info.type, info.linkname = tarfile.SYMTYPE, node.target
                archive.addfile(info)
            elif node.is_folder:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                _add_file(archive, info, node)
    with path.open("rb") as stream:
        return Layer(comment, path, f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}")


def _add_file(archive: tarfile.TarFile, info: tarfile.TarInfo, node: Node) -> None:
    if isinstance(node.content, Path):
        info.size = node.content.stat().st_size
        with node.content.open("rb") as stream:
            archive.addfile(info, stream)
    else:
        data = node.read()
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))


def write_image(target: Path, name: str, images: Sequence[Image], epoch: int) -> Written:
    """Write images of one name: `target`/oci is an OCI layout with an index over all of them, and there is an archive
    for each architecture."""
    layout = target / "oci"
    shutil.rmtree(layout, ignore_errors=True)
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    entries, manifests, ids, archives = [], {}, {}, {}
    for image in images:
        config = _json(_config(image, epoch))
        descriptors = [_compress(layer.path, blobs) for layer in image.layers]
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _put(blobs, CONFIG, config),
                "layers": descriptors,
                "annotations": image.config.get("Labels", {}),
            }
        )
        entry = _put(blobs, MANIFEST, manifest) | {"platform": {"architecture": image.architecture, "os": "linux"}}
        entries.append(entry)
        manifests[image.architecture] = entry["digest"]
        ids[image.architecture] = _digest(config)
        archives[image.architecture] = write_archive(target, name, image, epoch)
    index = _put(blobs, INDEX, _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))
    named = index | {"annotations": {"org.opencontainers.image.ref.name": name.rpartition(":")[2]}}
    (layout / "index.json").write_bytes(_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}))
    (layout / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
    return Written(index["digest"], manifests, ids, archives)


def _config(image: Image, epoch: int) -> Json:
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "created": created,
        "architecture": image.architecture,
        "os": "linux",
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in image.layers]},
        "history": [
            {"created": created, "created_by": "hack/images", "comment": each.comment} for each in image.layers
        ],
    }


def _json(value: Json | list[Json]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _put(blobs: Path, media_type: str, data: bytes) -> Json:
    digest = _digest(data)
    (blobs / digest.removeprefix("sha256:")).write_bytes(data)
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def _compress(layer: Path, blobs: Path) -> Json:
    part = blobs / "part"
    with (
        layer.open("rb") as source,
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as zipped,
    ):
        shutil.copyfileobj(source, zipped, 1 << 20)
    with part.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    part.rename(blobs / digest)
    return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": (blobs / digest).stat().st_size}


def write_archive(target: Path, name: str, image: Image, epoch: int) -> Path:
    """Write what `docker save` writes. Layers are not compressed: nobody sends this file over a network."""
    config = _json(_config(image, epoch))
    path = target / f"{name.replace('/', '-').replace(':', '-')}-{image.architecture}.tar"
    config_name = f"{_digest(config).removeprefix('sha256:')}.json"
    layers: dict[str, bytes | Path] = {
        f"{each.digest.removeprefix('sha256:')}/layer.tar": each.path for each in image.layers
    }
    listing = _json([{"Config": config_name, "RepoTags": [name], "Layers": list(layers)}])
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for info, node in _archived({"manifest.json": listing, config_name: config, **layers}, epoch):
            _add_file(archive, info, node)
    return path


def _archived(contents: Mapping[str, bytes | Path], epoch: int) -> Iterator[tuple[tarfile.TarInfo, Node]]:
    for name, content in contents.items():
        info = tarfile.TarInfo(name)
        info.mtime = epoch
        yield info, Node(0o644, content)

"""Images written by hand: an archive that containerd imports, of a few files."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType


def archive(
    file: Path,
    name: str,
    files: Mapping[str, Path],
    *,
    links: Mapping[str, str] = MappingProxyType({}),
    command: Sequence[str],
) -> Path:
    """Write an image of one layer: files, all of them executable, and links. The same content gives the same bytes."""
    layer = _tar({path: content.read_bytes() for path, content in files.items()}, links)
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    parts = {"manifest.json": json.dumps(manifest).encode(), config_name: config, f"{digest}/layer.tar": layer}
    file.write_bytes(_tar(parts, {}))
    return file


def _tar(files: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()

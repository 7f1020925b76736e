"""Starts hack/fakekubelet, the kubelet of the contract tests; `hack/fakekubelet.sh` builds it."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.servers.real import cache_dir

SOURCE_FOLDER = Path(__file__).parents[3] / "hack" / "fakekubelet"


def find_fake_kubelet() -> Path | None:
    """The binary of this very source, or None."""
    # As hack/fakekubelet.sh has it.
    text = b"".join((SOURCE_FOLDER / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    found = cache_dir() / f"fakekubelet-{hashlib.sha256(text).hexdigest()[:12]}"
    return found if os.access(found, os.X_OK) else None


@contextmanager
def fake_kubelet(binary: Path) -> Iterator[int]:
    """Runs it; gives its port on this machine. It ends with us, however we end, because its input does."""
    with subprocess.Popen(
        [binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()

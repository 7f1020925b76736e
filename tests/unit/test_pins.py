"""Every dependency is pinned to a version, with the hashes of its files."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "requirements" / name for name in ("runtime.txt", "dev.txt", "build.txt", "otel.txt", "docs.txt")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_pin_has_hashes(file: Path) -> None:
    lines = file.read_text().replace("\\\n", " ").splitlines()
    pins = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    assert pins
    assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []

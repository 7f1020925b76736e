"""Every dependency is pinned to a version, with the hashes of its files."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FILES = [ROOT / "requirements" / f"{name}.txt" for name in ("runtime", "dev", "build", "docs", *EXTRAS)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_pin_has_hashes(file: Path) -> None:
    lines = file.read_text().replace("\\\n", " ").splitlines()
    pins = [line for line in lines if line.strip() and not line.strip().startswith("#")]
    assert pins
    assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_pin_names_an_index(file: Path) -> None:
    assert "://" not in file.read_text()


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_has_the_versions_that_gangline_itself_has(extra: str) -> None:
    own, more = (_versions(ROOT / "requirements" / f"{name}.txt") for name in ("runtime", extra))
    assert own <= more
    assert len(more) > len(own)


def _versions(file: Path) -> set[str]:
    return {line.split(" ")[0] for line in file.read_text().splitlines() if line[:1].isalpha()}

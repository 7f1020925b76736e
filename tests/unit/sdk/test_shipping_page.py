"""What docs/run-in-a-cluster.md says is so."""

from pathlib import Path

from gangline.cli.run.command import DAY, Asked
from gangline.sdk.ship.archive import NEVER
from gangline.sdk.ship.manifests import FEW, PARCEL, SMALL, WORK, Form, unpacking

PAGE = (Path(__file__).parents[3] / "docs" / "run-in-a-cluster.md").read_text()


def test_the_page_has_the_limits() -> None:
    assert f"| at most {SMALL // 1024} KiB in {FEW} files |" in PAGE
    assert f"| at most {SMALL // 1024} KiB when packed |" in PAGE
    assert Asked().ship_limit == "1Gi"
    assert "| at most 1 GiB (`--ship-limit`) |" in PAGE
    assert DAY == 86400


def test_the_page_names_places_and_programs() -> None:
    assert f"`{WORK}`" in PAGE
    assert f"-l {PARCEL}=JOB" in PAGE
    assert all(f"`{name}`" in PAGE for name in NEVER)
    assert f"a key for each file | `{unpacking(Form.FILES)[0]}` |" in PAGE
    assert f"with a `tar.gz` | `{unpacking(Form.ARCHIVE)[0]}`, `gzip` |" in PAGE

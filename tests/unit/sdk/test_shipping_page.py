"""The statements of docs/run-in-a-cluster.md are true."""

from pathlib import Path

from gangline.cli.run.request import Shipping
from gangline.cli.run.run import TTL_AFTER_FINISHED
from gangline.sdk.ship.archive import EXCLUDED_FOLDERS
from gangline.sdk.ship.manifests import (
    MAX_CONFIG_MAP_BYTES,
    MAX_CONFIG_MAP_FILES,
    SHIPMENT_LABEL,
    WORK_DIR,
    ShipmentForm,
    unpack_command,
)

PAGE = (Path(__file__).parents[3] / "docs" / "run-in-a-cluster.md").read_text()


def test_the_page_has_the_limits() -> None:
    assert f"| at most {MAX_CONFIG_MAP_BYTES // 1024} KiB in {MAX_CONFIG_MAP_FILES} files |" in PAGE
    assert f"| at most {MAX_CONFIG_MAP_BYTES // 1024} KiB when packed |" in PAGE
    assert Shipping().ship_limit == "1Gi"
    assert "| at most 1 GiB (`--ship-limit`) |" in PAGE
    assert TTL_AFTER_FINISHED == 86400


def test_the_page_names_places_and_programs() -> None:
    assert f"`{WORK_DIR}`" in PAGE
    assert f"-l {SHIPMENT_LABEL}=JOB" in PAGE
    assert all(f"`{name}`" in PAGE for name in EXCLUDED_FOLDERS)
    assert f"a key for each file | `{unpack_command(ShipmentForm.FILES)[0]}` |" in PAGE
    assert f"with a `tar.gz` | `{unpack_command(ShipmentForm.ARCHIVE)[0]}`, `gzip` |" in PAGE

"""The code of a job that was shipped to a cluster comes back from the object that carried it."""

from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.replay.bundle import CodeFile
from gangline.replay.shipped_code import carrier_claim, carrier_name, shipped_files, without_shipment
from gangline.sdk.build.pod_templates import pod_specs
from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.manifests import MAX_CONFIG_MAP_FILES, ShipmentForm, config_map, job_with_folder, plan_shipment

JOB = {
    "metadata": {"name": "bert"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Worker": {"template": {"spec": {"containers": [{"name": "pytorch", "command": ["python", "train.py"]}]}}}
        }
    },
}


@pytest.mark.parametrize(
    ("files", "form"), [(3, ShipmentForm.FILES), (MAX_CONFIG_MAP_FILES + 1, ShipmentForm.ARCHIVE)], ids=str
)
def test_a_shipped_folder_comes_back_as_it_was(tmp_path: Path, files: int, form: ShipmentForm) -> None:
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    (folder / "lib").mkdir(parents=True)
    scratch.mkdir()
    (folder / "train.py").write_text("print(1)\n")
    (folder / "lib" / "raw.bin").write_bytes(b"\0\xff")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    for number in range(files - 3):
        (folder / f"{number}.txt").write_text(str(number))
    shipment = plan_shipment(list_files(folder), scratch)
    assert shipment.form is form
    job = job_with_folder(JOB, PYTORCHJOB, shipment, "bert-folder-x")
    [spec] = pod_specs(job, PYTORCHJOB)
    assert (carrier_name(spec), carrier_claim(spec)) == ("bert-folder-x", "")
    code = shipped_files(config_map(shipment, "bert"), spec)
    assert len(code) == files
    assert code["lib/raw.bin"].content == b"\0\xff"
    assert code["train.py"] == CodeFile(b"print(1)\n", code["train.py"].mode)
    assert code["run.sh"].mode & 0o100
    without_shipment(spec)
    assert (spec["initContainers"], spec["volumes"]) == ([], [])
    assert spec["containers"] == [{"name": "pytorch", "command": ["python", "train.py"], "volumeMounts": []}]


def test_a_folder_in_a_claim_is_not_in_a_config_map() -> None:
    spec = {"volumes": [{"name": "gangline-parcel", "persistentVolumeClaim": {"claimName": "c"}}]}
    assert (carrier_name(spec), carrier_claim(spec)) == ("", "c")

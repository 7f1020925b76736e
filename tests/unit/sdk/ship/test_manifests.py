"""How a folder travels: which form it takes, which objects carry it, what the job's templates say."""

import base64
import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from random import Random

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB, TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.pod_templates import pod_specs, training_container
from gangline.sdk.ship.archive import MIB, FileEntry, FileList, list_files, write_archive
from gangline.sdk.ship.manifests import (
    DIGEST_ANNOTATION,
    MAX_CONFIG_MAP_BYTES,
    MAX_CONFIG_MAP_FILES,
    SHIPMENT_LABEL,
    SOURCE_DIR,
    WORK_DIR,
    Shipment,
    ShipmentForm,
    config_map,
    config_map_keys,
    job_with_folder,
    loader_pod,
    owner_patch,
    plan_shipment,
    replica_total,
    source_volume,
    unpack_command,
    volume_claim,
    wants_folder,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "lib").mkdir(parents=True)
    (found / "train.py").write_text("print('ü')\n")
    (found / "lib" / "run.sh").write_text("true\n")
    (found / "lib" / "run.sh").chmod(0o755)
    (found / "blob").write_bytes(b"\xff\x00")
    return found


def job(facts: JobKind = PYTORCHJOB, **container: object) -> JSON:
    trains = {
        "name": facts.container,
        "image": "registry/img:1",
        "command": ["python", "train.py"],
        **container,
    }
    template = {"spec": {"containers": [trains], "imagePullSecrets": [{"name": "s"}]}}
    replicas = {name: {"replicas": 1 + number, "template": template} for number, name in enumerate(facts.types[:2])}
    return {"metadata": {"name": "train"}, "spec": {facts.replicas: replicas}}


def sized(*sizes: int, digest: str = "") -> Shipment:
    items = tuple(FileEntry(f"f{number}", size) for number, size in enumerate(sizes))
    return Shipment(FileList(Path(), items), ShipmentForm.CLAIM, digest, sum(sizes))


# Forms


def test_a_small_folder_goes_file_by_file(folder: Path, tmp_path: Path) -> None:
    assert plan_shipment(list_files(folder), tmp_path).form is ShipmentForm.FILES
    assert not (tmp_path / "folder.tar.gz").exists()


def test_many_files_go_packed(folder: Path, tmp_path: Path) -> None:
    for number in range(MAX_CONFIG_MAP_FILES):
        (folder / f"m{number}.py").write_text("")
    found = plan_shipment(list_files(folder), tmp_path)
    assert found.form is ShipmentForm.ARCHIVE
    assert found.archive is not None
    assert found.size == found.archive.stat().st_size


def test_what_packs_well_still_fits_into_a_config_map(folder: Path, tmp_path: Path) -> None:
    (folder / "data.csv").write_text("0,1,2\n" * 500_000)
    assert plan_shipment(list_files(folder), tmp_path).form is ShipmentForm.ARCHIVE


def test_what_does_not_fit_at_all_needs_a_claim(folder: Path, tmp_path: Path) -> None:
    (folder / "noise").write_bytes(Random(6).randbytes(MAX_CONFIG_MAP_BYTES + 1))
    found = plan_shipment(list_files(folder), tmp_path)
    assert (found.form, len(found.digest)) == (ShipmentForm.CLAIM, 64)


# Objects


def test_text_can_be_read_in_the_config_map_and_the_rest_is_there_too(folder: Path, tmp_path: Path) -> None:
    body = config_map(plan_shipment(list_files(folder), tmp_path), "train")
    assert body["data"] == {"001-lib-run.sh": "true\n", "002-train.py": "print('ü')\n"}
    assert {name: base64.b64decode(text) for name, text in body["binaryData"].items()} == {"000-blob": b"\xff\x00"}
    assert body["metadata"] == {"generateName": "train-folder-", "labels": {SHIPMENT_LABEL: "train"}}
    assert body["immutable"] is True


def test_keys_are_what_keys_may_be_and_all_different() -> None:
    paths = ["a b.py", "a/b.py", "a-b.py", "ü.txt", "..data", "x" * 300, "deep/" * 60 + "f"]
    found = config_map_keys(FileList(Path(), tuple(FileEntry(path, 1) for path in paths)))
    assert len(set(found)) == len(paths)
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) and not key.startswith("..") for key in found)


def test_an_archive_is_one_key_with_its_digest(folder: Path, tmp_path: Path) -> None:
    (folder / "data.csv").write_text("0,1,2\n" * 500_000)
    shipment = plan_shipment(list_files(folder), tmp_path)
    body = config_map(shipment, "train")
    data = base64.b64decode(body["binaryData"]["folder.tar.gz"])
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["blob", "data.csv", "lib/run.sh", "train.py"]
    assert body["metadata"]["annotations"] == {DIGEST_ANNOTATION: shipment.digest}


def test_a_claim_has_room_and_is_one_that_all_members_can_read() -> None:
    shared = volume_claim(sized(100 * MIB, digest="d"), "train", 4)
    assert shared["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "126Mi"}},
    }
    alone = volume_claim(sized(1), "train", 1, "fast")["spec"]
    assert (alone["accessModes"], alone["storageClassName"]) == (["ReadWriteOnce"], "fast")


def test_the_loader_is_as_the_members_are_and_takes_little() -> None:
    body = job(securityContext={"runAsUser": 7}, resources={"limits": {"nvidia.com/gpu": 8}})
    pod = loader_pod("c", "train", body, PYTORCHJOB)["spec"]
    (container,) = pod["containers"]
    assert (container["image"], container["securityContext"]) == ("registry/img:1", {"runAsUser": 7})
    assert pod["imagePullSecrets"] == [{"name": "s"}]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "c"}


def test_what_carries_a_folder_goes_when_the_job_goes() -> None:
    (reference,) = owner_patch(job(), PYTORCHJOB, "u")["metadata"]["ownerReferences"]
    assert reference == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u"}


# The job


@pytest.mark.parametrize("facts", TRAINING_KINDS, ids=lambda facts: facts.kind)
def test_every_member_of_every_kind_gets_a_copy_of_its_own(facts: JobKind) -> None:
    shipment = Shipment(FileList(Path(), (FileEntry("train.py", 1),)), ShipmentForm.FILES)
    body = job_with_folder(job(facts), facts, shipment, "carrier")
    for spec in pod_specs(body, facts):
        container = training_container(spec, facts)
        assert container is not None
        assert container["workingDir"] == WORK_DIR
        assert container["command"] == ["python", "train.py"]
        assert {"name": "gangline-work", "emptyDir": {}} in spec["volumes"]
        (unpacker,) = spec["initContainers"]
        assert unpacker["image"] == container["image"]
        assert [mount["mountPath"] for mount in unpacker["volumeMounts"]] == [SOURCE_DIR, WORK_DIR]


def test_what_a_template_has_stays() -> None:
    body = job(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    for spec in pod_specs(body, PYTORCHJOB):
        spec["volumes"] = [{"name": "data", "emptyDir": {}}]
        spec["initContainers"] = [{"name": "own"}]
    changed = job_with_folder(body, PYTORCHJOB, sized(1), "carrier")
    for spec in pod_specs(changed, PYTORCHJOB):
        assert [each["name"] for each in spec["volumes"]] == ["data", "gangline-parcel", "gangline-work"]
        assert [each["name"] for each in spec["initContainers"]] == ["gangline-unpack", "own"]
        assert [each["name"] for each in spec["containers"][0]["volumeMounts"]] == ["data", "gangline-work"]


def test_the_copy_is_made_by_the_members_user_and_costs_no_more_than_the_member() -> None:
    resources = {
        "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 1},
        "requests": {"nvidia.com/gpu": 1},
        "claims": [{"name": "c"}],
    }
    body = job(securityContext={"runAsUser": 7}, imagePullPolicy="Always", resources=resources, env=[{"name": "A"}])
    changed = job_with_folder(body, PYTORCHJOB, sized(1), "carrier")
    unpacker = next(pod_specs(changed, PYTORCHJOB))["initContainers"][0]
    assert unpacker["resources"] == {"limits": {"cpu": "4", "memory": "8Gi"}}
    assert (unpacker["securityContext"], unpacker["imagePullPolicy"]) == ({"runAsUser": 7}, "Always")
    assert "env" not in unpacker


def test_a_container_with_a_working_directory_of_its_own_has_no_place_for_a_folder() -> None:
    body = job(workingDir="/app")
    assert not wants_folder(body, PYTORCHJOB)
    assert job_with_folder(body, PYTORCHJOB, sized(1), "carrier") == body
    assert wants_folder(job(), PYTORCHJOB)


def test_members_are_counted_as_written() -> None:
    body = job()
    assert replica_total(body, PYTORCHJOB) == 3
    del body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]
    assert replica_total(body, PYTORCHJOB) == 2


def test_volumes_name_what_carries_the_folder(folder: Path, tmp_path: Path) -> None:
    files = source_volume(plan_shipment(list_files(folder), tmp_path), "c")["configMap"]
    assert files["items"][1] == {"key": "001-lib-run.sh", "path": "folder/lib/run.sh", "mode": 0o755}
    assert source_volume(sized(1), "c")["persistentVolumeClaim"] == {"claimName": "c", "readOnly": True}


# What unpacks, with the programs of this machine


def here(words: list[str], source: Path, work: Path) -> list[str]:
    return [word.replace(SOURCE_DIR, str(source)).replace(WORK_DIR, str(work)) for word in words]


def test_files_are_copied_as_the_kubelet_gives_them(folder: Path, tmp_path: Path) -> None:
    # The kubelet's own layout: data in a dated folder, a link to that, a link for each name.
    source, work = tmp_path / "source", tmp_path / "work"
    work.mkdir()
    shutil.copytree(folder, source / "..2026" / "folder")
    (source / "..data").symlink_to("..2026")
    (source / "folder").symlink_to("..data/folder")
    subprocess.run(here(unpack_command(ShipmentForm.FILES), source, work), check=True)
    assert sorted(path.name for path in work.iterdir()) == ["blob", "lib", "train.py"]
    assert (work / "lib" / "run.sh").stat().st_mode & 0o777 == 0o755
    (work / "train.py").write_text("changed")
    assert not (work / "train.py").is_symlink()


def test_an_archive_is_unpacked_with_its_modes(folder: Path, tmp_path: Path) -> None:
    source, work = tmp_path / "source", tmp_path / "work"
    source.mkdir()
    work.mkdir()
    with (source / "folder.tar.gz").open("wb") as file:
        write_archive(list_files(folder), file)
    subprocess.run(here(unpack_command(ShipmentForm.ARCHIVE), source, work), check=True)
    assert (work / "train.py").read_text() == "print('ü')\n"
    assert (work / "lib" / "run.sh").stat().st_mode & 0o777 == 0o755

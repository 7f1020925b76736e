"""Volumes as folders."""

import stat
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import ConfigMap, Secret
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.node.checkpoint import StateFolder
from gangline.node.environment import Configuration
from gangline.node.pod_types import HostPath, RunPod, Volume, VolumeMount
from gangline.node.volumes.atomic_writer import path_within, write_files
from gangline.node.volumes.files import VolumeFile, VolumeMissing, volume_files, volume_refs
from gangline.node.volumes.manager import CLAIMS, VolumeManager
from gangline.node.volumes.mounts import (
    copy_sub_path,
    disk_usage,
    eviction_message,
    prepare_host_path,
    resolve_mount,
)
from gangline.node.volumes.tokens import ApiTokens, TokenManager
from support.servers.node_api import NodeApi

GIVEN = Configuration(
    {"c": ConfigMap(data={"a": "1", "b": "2"}, binary_data={"raw": "AAE="})},
    {"s": Secret(data={"p": "cHc="})},
)


def pod(*volumes: JSON) -> RunPod:
    body = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"b": "2", "a": "1"}},
        "spec": {"volumes": list(volumes), "containers": [{"name": "main"}]},
    }
    return msgspec.convert(body, RunPod)


def files(**volume: JSON) -> dict[str, tuple[bytes, int]]:
    contents = volume_files(msgspec.convert({"name": "v", **volume}, Volume), pod(), GIVEN)
    assert contents is not None
    return {file.path: (file.content, file.mode) for file in contents}


def test_a_config_map_is_a_file_per_key() -> None:
    assert files(configMap={"name": "c"}) == {
        "a": (b"1", 0o644),
        "b": (b"2", 0o644),
        "raw": (b"\x00\x01", 0o644),
    }


def test_items_choose_keys_paths_and_modes() -> None:
    items = [{"key": "a", "path": "x/y", "mode": 0o400}, {"key": "b", "path": "z"}]
    chosen = files(configMap={"name": "c", "items": items, "defaultMode": 0o640})
    assert chosen == {"x/y": (b"1", 0o400), "z": (b"2", 0o640)}


def test_secrets_are_private_unless_told_otherwise() -> None:
    assert files(secret={"secretName": "s"}) == {"p": (b"pw", 0o600)}
    assert files(secret={"secretName": "s", "defaultMode": 0o644}) == {"p": (b"pw", 0o644)}


def test_what_is_missing_is_named_unless_optional() -> None:
    with pytest.raises(VolumeMissing, match='configmap "no" not found'):
        files(configMap={"name": "no"})
    with pytest.raises(VolumeMissing, match="non-existent config key: no"):
        files(configMap={"name": "c", "items": [{"key": "no", "path": "x"}]})
    assert files(configMap={"name": "no", "optional": True}) == {}
    assert files(secret={"secretName": "no", "optional": True}) == {}


def test_projected_volumes_join_their_sources() -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    sources = [{"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}}, {"secret": {"name": "s"}}]
    contents = files(projected={"sources": [*sources, {"downwardAPI": {"items": items}}]})
    assert contents == {"a": (b"1", 0o644), "p": (b"pw", 0o644), "labels": (b'a="1"\nb="2"', 0o644)}


def test_all_names_are_known_before_anything_is_made() -> None:
    refs = volume_refs(
        pod(
            {"name": "1", "configMap": {"name": "c"}},
            {"name": "2", "secret": {"secretName": "s"}},
            {
                "name": "3",
                "projected": {"sources": [{"secret": {"name": "t"}}, {"configMap": {"name": "d"}}]},
            },
        )
    )
    assert (refs.config_maps, refs.secrets) == (frozenset("cd"), frozenset("st"))


def test_files_are_written_with_their_modes_and_stale_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    write_files(folder, [VolumeFile("old", b"", 0o600)])
    write_files(folder, [VolumeFile("a/b", b"x", 0o640)])
    assert (folder / "a" / "b").read_bytes() == b"x"
    assert stat.S_IMODE((folder / "a" / "b").stat().st_mode) == 0o640
    assert not (folder / "old").exists()
    assert [each.name for each in folder.iterdir() if not each.name.startswith("..")] == ["a"]


def test_who_reads_while_files_change_sees_all_old_or_all_new(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    write_files(folder, [VolumeFile("a", b"1", 0o644), VolumeFile("b", b"1", 0o644)])
    old_folder = (folder / "..data").resolve()
    before = {file.name: file.readlink() for file in folder.iterdir() if file.name in "ab"}
    write_files(folder, [VolumeFile("a", b"2", 0o644), VolumeFile("b", b"2", 0o644)])
    # Only the link has changed: the paths that programs open are the same, and the old files are removed.
    assert {file.name: file.readlink() for file in folder.iterdir() if file.name in "ab"} == before
    assert (folder / "..data").resolve() != old_folder
    assert not old_folder.exists()
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes() == b"2"


def test_files_that_are_as_wanted_are_not_touched(tmp_path: Path) -> None:
    files = [VolumeFile("a", b"1", 0o644)]
    write_files(tmp_path / "v", files)
    before = (tmp_path / "v" / "..data").resolve()
    write_files(tmp_path / "v", files)
    assert (tmp_path / "v" / "..data").resolve() == before
    write_files(tmp_path / "v", [VolumeFile("a", b"1", 0o600)])
    assert (tmp_path / "v" / "..data").resolve() != before


def test_two_files_that_the_disk_takes_for_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: Path) -> bool:
        return path.parent.is_dir() and path.name.casefold() in {each.name.casefold() for each in path.parent.iterdir()}

    files = [VolumeFile("a", b"1", 0o644), VolumeFile("A", b"2", 0o644)]
    write_files(tmp_path / "case-sensitive", files)
    monkeypatch.setattr(Path, "exists", exists)
    with pytest.raises(VolumeMissing, match="'A' and another file of the volume have one name on this disk"):
        write_files(tmp_path / "v", files)
    assert list((tmp_path / "v").iterdir()) == []


def test_a_mount_of_one_file_is_a_copy_that_stays(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    write_files(volume, [VolumeFile("a", b"1", 0o755), VolumeFile("d/e", b"2", 0o644)])
    file, folder = (copy_sub_path(volume / name, tmp_path, name) for name in ("a", "d"))
    write_files(volume, [VolumeFile("a", b"9", 0o644)])
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"1", 0o755)
    assert (folder / "e").read_bytes() == b"2"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert copy_sub_path(plain / "x", tmp_path, "x") == plain / "x"
    assert copy_sub_path(Path("/elsewhere/x"), tmp_path, "x") == Path("/elsewhere/x")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd"])
def test_no_path_leaves_its_volume(tmp_path: Path, path: str) -> None:
    with pytest.raises(VolumeMissing, match="leaves its volume"):
        path_within(tmp_path / "v", path)


def test_host_paths_are_checked_and_made(tmp_path: Path) -> None:
    assert prepare_host_path(HostPath(path=str(tmp_path / "no"))) == tmp_path / "no"
    assert prepare_host_path(HostPath(path=str(tmp_path / "made/deep"), type="DirectoryOrCreate")).is_dir()
    assert prepare_host_path(HostPath(path=str(tmp_path / "file"), type="FileOrCreate")).is_file()
    with pytest.raises(VolumeMissing, match="is not a directory"):
        prepare_host_path(HostPath(path=str(tmp_path / "file"), type="Directory"))
    with pytest.raises(VolumeMissing, match="is not a socket"):
        prepare_host_path(HostPath(path=str(tmp_path / "file"), type="Socket"))


def test_sub_paths_are_made(tmp_path: Path) -> None:
    mount = VolumeMount(name="v", mount_path="/x")
    assert resolve_mount(mount, {"v": tmp_path}, "") == tmp_path
    assert resolve_mount(mount, {"v": tmp_path}, "a/b") == tmp_path / "a" / "b"
    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(VolumeMissing):
        resolve_mount(VolumeMount(name="other"), {"v": tmp_path}, "")


def test_a_volume_that_is_too_large_is_named(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2_000_000)
    assert disk_usage(tmp_path) >= 2_000_000
    limited = pod({"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "w", "emptyDir": {}})
    assert 'EmptyDir volume "v"' in eviction_message(limited, {"v": tmp_path, "w": tmp_path})
    assert eviction_message(pod({"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}), {"v": tmp_path}) == ""


async def test_a_claim_is_bound_and_outlives_the_pod(tmp_path: Path) -> None:
    api, state = NodeApi(), StateFolder(tmp_path)
    tokens = TokenManager(ApiTokens(api.client()), SystemClock())
    volumes, folder = VolumeManager(api.client(), state, {}, tokens), state.pod(Key("default", "p"), "u")
    claiming = pod({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "emptyDir": {}})
    with pytest.raises(VolumeMissing, match='persistentvolumeclaim "data" not found'):
        await volumes.prepare(claiming, folder)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await api.client().create(CLAIMS, {"metadata": {"name": "data"}, "spec": spec}, namespace="default")
    paths = await volumes.prepare(claiming, folder)
    (paths["v"] / "kept").touch()
    (paths["e"] / "lost").touch()
    folder.remove()
    prepared_again = await volumes.prepare(claiming, folder)
    assert (prepared_again["v"] / "kept").exists()
    assert not (prepared_again["e"] / "lost").exists()
    status = api.objects["persistentvolumeclaims", "default", "data"]["status"]
    assert status == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}

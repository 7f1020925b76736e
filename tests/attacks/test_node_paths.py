"""Links, pipes and large files that a pod puts where the node looks: the node reads and mounts nothing outside."""

import asyncio
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.node.checkpoint import RunFiles, StateFolder
from gangline.node.logs import read_lines
from gangline.node.pod_types import RunPod, VolumeMount
from gangline.node.volumes import beneath
from gangline.node.volumes.beneath import resolve_beneath
from gangline.node.volumes.files import VolumeMissing
from gangline.node.volumes.manager import VolumeManager
from gangline.node.volumes.mounts import resolve_mount
from gangline.node.volumes.tokens import ApiTokens, TokenManager
from support.cluster.node import container_logs, file_text, main_container_status, running_node
from support.servers.node_api import NodeApi, command_pod, default_key, shell_command

pytestmark = pytest.mark.usefixtures("each_host")
SECRET = "only for the user"


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no volume leads to, with a file in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    return folder


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


def volume_pod(name: str, script: str, volume: JSON, *, init: str = "", **mount: Any) -> JSON:
    """A pod whose `main` mounts a path of the volume, and whose init container, if any, mounts all of it."""
    mounts = [{"name": "v", "mountPath": "/data", **mount}]
    init_containers: list[JSON] = [
        {
            "name": "init",
            "image": "none",
            "command": list(shell_command(init)),
            "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        }
    ]
    return command_pod(
        name,
        *shell_command(script),
        container={"volumeMounts": mounts},
        volumes=[{"name": "v", **volume}],
        initContainers=init_containers if init else [],
    )


async def wait_refused(api: NodeApi, name: str) -> None:
    """Wait until the main container does not start because of its volume."""

    def message() -> str:
        statuses = api.stored_pod(name).get("status", {}).get("containerStatuses", [])
        return str(statuses[0]["state"].get("waiting", {}).get("message", "")) if statuses else ""

    await api.wait_until(lambda: "leaves its volume" in message())


# Sub paths


@pytest.mark.parametrize(
    ("links", "sub_path"),
    [
        ({"x": "{outside}"}, "x"),
        ({"x": "{outside}"}, "x/secret"),
        ({"x": "{outside}/secret"}, "x"),
        ({"x": "../outside"}, "x"),
        ({"x": "y", "y": "../outside"}, "x"),
        ({"x": "../volume/../outside"}, "x/secret"),
        ({"x": "{outside}"}, "x/new/folder"),
        ({"x": "/proc/self/root"}, "x"),
        ({"x": "x"}, "x"),
    ],
)
def test_no_link_leads_out_of_a_volume(links: dict[str, str], sub_path: str, volume: Path, outside: Path) -> None:
    for name, target in links.items():
        (volume / name).symlink_to(target.format(outside=outside))
    with pytest.raises(VolumeMissing):
        resolve_mount(VolumeMount(name="v", mount_path="/data"), {"v": volume}, sub_path)
    assert [path.name for path in outside.iterdir()] == ["secret"]


@pytest.mark.parametrize("sub_path", ["../outside", "a/../../outside", "/etc", "a/.."])
def test_no_sub_path_climbs(sub_path: str, volume: Path) -> None:
    with pytest.raises(VolumeMissing, match="leaves its volume"):
        resolve_beneath(volume, sub_path, create=True)


def test_links_within_a_volume_are_followed(volume: Path) -> None:
    (volume / "real" / "deep").mkdir(parents=True)
    (volume / "real" / "deep" / "file").write_text("x")
    (volume / "link").symlink_to("real")
    (volume / "real" / "up").symlink_to("../link/deep")
    assert resolve_beneath(volume, "link/up/file", create=True) == volume / "real" / "deep" / "file"
    assert resolve_beneath(volume, "link/new/one", create=True) == volume / "real" / "new" / "one"
    assert (volume / "real" / "new" / "one").is_dir()


def test_new_folders_have_the_mode_of_the_volume(volume: Path) -> None:
    volume.chmod(0o700)
    made = resolve_beneath(volume, "a/b", create=True)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (made.parent, made)] == [0o700, 0o700]


def test_a_volume_may_be_behind_a_link_of_the_user(tmp_path: Path, volume: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(volume)
    assert resolve_beneath(link, "a", create=True) == volume / "a"


@contextmanager
def swapping(volume: Path, outside: Path) -> Iterator[None]:
    """`x` in the volume is a folder and a link out of it, by turns, as fast as they can be exchanged."""
    (volume / "folder").mkdir()
    (volume / "link").symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        names = [volume / "folder", volume / "link"]
        while not done.is_set():
            for path in names:
                path.rename(volume / "x")
                (volume / "x").rename(path)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_link_that_appears_meanwhile_is_not_followed_either(volume: Path, outside: Path) -> None:
    with swapping(volume, outside):
        for _ in range(3000):
            with pytest.raises(VolumeMissing):
                resolve_beneath(volume, "x/secret", create=False)


def test_the_last_name_of_a_path_is_no_link_that_appeared_meanwhile(
    volume: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (volume / "x").symlink_to(outside)
    monkeypatch.setattr(beneath, "_link_target", lambda *_: None)  # it was no link when it was looked at
    with pytest.raises(VolumeMissing, match="symbolic links"):
        resolve_beneath(volume, "x", create=True)


async def test_a_pod_with_a_link_as_sub_path_does_not_start(api: NodeApi, tmp_path: Path, outside: Path) -> None:
    body = volume_pod("p", "cat /data/secret", {"emptyDir": {}}, init=f"ln -s {outside} /data/x", subPathExpr="$(NAME)")
    body["spec"]["containers"][0]["env"] = [{"name": "NAME", "value": "x"}]
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        await wait_refused(api, "p")


async def test_a_link_that_replaces_the_sub_path_is_noticed_at_the_restart(
    api: NodeApi, tmp_path: Path, outside: Path
) -> None:
    script = f"cat /data/secret; rmdir /data; ln -s {outside} /data; exit 1"
    body = volume_pod("p", script, {"emptyDir": {}}, subPath="x")
    body["spec"]["restartPolicy"] = "OnFailure"
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        await wait_refused(api, "p")


async def test_a_file_of_a_config_map_is_mounted_by_its_sub_path(api: NodeApi, tmp_path: Path) -> None:
    body = volume_pod("p", "cat /data", {"configMap": {"name": "c"}}, subPath="key")
    async with running_node(api, tmp_path):
        config = {"metadata": {"name": "c", "namespace": "default"}, "data": {"key": "value"}}
        await api.client().create(ConfigMap, config)
        await api.client().create(Pod, body)
        await api.wait_phase("p", "Succeeded")
        assert await container_logs(tmp_path, "p") == "value"


@pytest.mark.parametrize("kind", ["emptyDir", "configMap"])
async def test_a_link_in_place_of_a_volume_is_not_used(kind: str, api: NodeApi, tmp_path: Path, outside: Path) -> None:
    pod = volume_pod("p", "true", {"emptyDir": {}} if kind == "emptyDir" else {"configMap": {"name": "c"}})
    config = {"metadata": {"name": "c", "namespace": "default"}, "data": {"secret": "overwritten"}}
    await api.client().create(ConfigMap, config)
    state = StateFolder(tmp_path)
    folder = state.pod(default_key("p"), "u").volumes_folder
    folder.mkdir(parents=True)
    (folder / "v").symlink_to(outside)
    manager = VolumeManager(api.client(), state, {}, TokenManager(ApiTokens(api.client()), SystemClock()))
    with pytest.raises(VolumeMissing, match="replaced by a link"):
        await manager.prepare(msgspec.convert(pod, RunPod), state.pod(default_key("p"), "u"))
    assert file_text(outside / "secret") == SECRET


# Files that the node reads


async def termination_message(api: NodeApi, state: Path, script: str) -> str:
    async with running_node(api, state):
        await api.client().create(Pod, command_pod("p", *shell_command(script)))
        status = await api.wait_phase("p", "Succeeded")
    return str(main_container_status(status)["state"]["terminated"].get("message", ""))


async def test_a_termination_message_is_no_link(api: NodeApi, tmp_path: Path, outside: Path) -> None:
    script = f'rm "$GANGLINE_TERMINATION_LOG"; ln -s {outside}/secret "$GANGLINE_TERMINATION_LOG"'
    assert await termination_message(api, tmp_path, script) == ""


async def test_a_pipe_as_termination_message_holds_nobody_up(api: NodeApi, tmp_path: Path) -> None:
    script = 'rm "$GANGLINE_TERMINATION_LOG"; mkfifo "$GANGLINE_TERMINATION_LOG"'
    async with asyncio.timeout(30):
        assert await termination_message(api, tmp_path, script) == ""


async def test_a_large_termination_message_is_its_end(api: NodeApi, tmp_path: Path) -> None:
    script = 'truncate -s 1G "$GANGLINE_TERMINATION_LOG"; echo the end >> "$GANGLINE_TERMINATION_LOG"'
    message = await termination_message(api, tmp_path, script)
    assert len(message) == 4096
    assert message.endswith("the end\n")


@pytest.mark.parametrize("ending", ["log", "message", "run", "exit"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_no_file_of_a_run_is_read_through_a_link_or_a_pipe(
    kind: str, ending: str, tmp_path: Path, outside: Path
) -> None:
    files = RunFiles(tmp_path, 0)
    line = "2026-01-01T00:00:00.0Z stdout F x\n"
    (outside / "secret").write_text(line if ending == "log" else '{"shim": 1, "pid": 1, "at": 1.0}')
    if kind == "pipe":
        os.mkfifo(tmp_path / f"0.{ending}")
    else:
        (tmp_path / f"0.{ending}").symlink_to(outside / "secret")
    assert list(read_lines(files.log_file)) == []
    assert files.start_record() is None
    assert files.exit_record() is None
    assert files.termination_message() == ""


async def test_a_link_in_place_of_the_log_is_not_written_through(api: NodeApi, tmp_path: Path, outside: Path) -> None:
    # Enough for a rotation, which makes a new file at the same path.
    log = '"$(dirname "$GANGLINE_TERMINATION_LOG")"/0.log'
    script = f"echo first; sleep 0.2; rm {log}; ln -s {outside}/secret {log}; head -c 12000000 /dev/zero | tr '\\0' x | fold -w 9000; sleep 0.2"
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command(script)))
        await api.wait_phase("p", "Succeeded")
    assert (outside / "secret").read_text() == SECRET

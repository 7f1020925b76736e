"""A whole node on an API in memory: real processes, real files."""

import asyncio
import fcntl
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from gangline.api.core import ConfigMap, Pod, Secret, Service
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.node.network.service_ports import ServicePortAllocator, service_ports
from gangline.node.ports import bind_port
from gangline.node.settings import Backoff, NodeSettings
from gangline.node.volumes.manager import CLAIMS
from gangline.runtime.informer import Informer
from gangline.testing.clock import FakeClock
from support.cluster.node import (
    FAST_SETTINGS,
    container_logs,
    file_text,
    is_alive,
    main_container_status,
    path_exists,
    running_node,
    single_file,
)
from support.servers.node_api import NodeApi, command_pod, default_key, serve_http, shell_command
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("each_host")


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


async def test_a_pod_runs_and_its_end_is_told_completely(api: NodeApi, tmp_path: Path) -> None:
    # A status that is over before it was written is skipped.
    script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo hello; exit 3"
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command(script)))
        await api.wait_phase("p", "Running")
        (tmp_path / "go").touch()
        status = await api.wait_phase("p", "Failed")
    ended = main_container_status(status)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert ended["containerID"].startswith("process://")
    assert ended["startedAt"] <= ended["finishedAt"]
    assert status["hostIP"] == "127.0.0.1"
    assert status["podIP"].startswith("127.")
    assert status["startTime"]
    assert [each["phase"] for each in api.status_history("p")][-2:] == ["Running", "Failed"]
    assert await container_logs(tmp_path, "p") == "hello\n"


async def test_conditions_of_others_survive(api: NodeApi, tmp_path: Path) -> None:
    body = command_pod("p", "true")
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    body["status"] = {"phase": "Pending", "conditions": [scheduled], "qosClass": "BestEffort"}
    api.status_conflicts = 2
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        status = await api.wait_phase("p", "Succeeded")
    assert "PodScheduled" in [each["type"] for each in status["conditions"]]
    assert status["qosClass"] == "BestEffort"


async def test_status_is_written_once_the_api_is_back(api: NodeApi, tmp_path: Path) -> None:
    async with running_node(api, tmp_path):
        await api.client().create(
            Pod, command_pod("p", *shell_command(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"))
        )
        await api.wait_phase("p", "Running")
        api.is_down = True
        (tmp_path / "go").touch()
        await wait_until(lambda: list(tmp_path.glob("pods/*/main/0.exit")))
        api.is_down = False
        await api.wait_phase("p", "Succeeded")


async def test_restarts_back_off_and_keep_the_last_state(api: NodeApi, tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/runs; [ $(wc -l < {tmp_path}/runs) -ge 3 ]"
    # Long enough to be seen: the node writes the newest state, and may leave out one that is over already.
    delay = Backoff(timedelta(seconds=1), timedelta(seconds=2), timedelta(seconds=3))
    async with running_node(api, tmp_path, msgspec.structs.replace(FAST_SETTINGS, backoff=delay)):
        await api.client().create(Pod, command_pod("p", *shell_command(script), restart="OnFailure"))
        status = await api.wait_phase("p", "Succeeded")
    assert main_container_status(status)["restartCount"] == 2
    assert main_container_status(status)["lastState"]["terminated"]["exitCode"] == 1
    reasons = [
        main_container_status(each)["state"].get("waiting", {}).get("reason") for each in api.status_history("p")[1:]
    ]
    assert "CrashLoopBackOff" in reasons


async def test_init_containers_and_sidecars_come_in_order(api: NodeApi, tmp_path: Path) -> None:
    def member(name: str, script: str, **more: Any) -> JSON:
        return {
            "name": name,
            "image": "none",
            "command": list(shell_command(f"echo {name} >> {tmp_path}/order; {script}")),
            **more,
        }

    body = command_pod(
        "p",
        initContainers=[
            member("first", "true"),
            member(
                "side",
                f"trap 'echo side-ends >> {tmp_path}/order; exit 0' TERM; echo up > {tmp_path}/up; "
                "while :; do sleep 0.02; done",
                restartPolicy="Always",
                # That it has a process does not mean that it has come anywhere.
                startupProbe={"exec": {"command": ["test", "-s", f"{tmp_path}/up"]}, "periodSeconds": 1},
            ),
            member("second", "true"),
        ],
    )
    body["spec"]["containers"] = [member("main", "true")]
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        status = await api.wait_phase("p", "Succeeded")
    assert (tmp_path / "order").read_text().split() == ["first", "side", "second", "main", "side-ends"]
    assert [each["state"]["terminated"]["exitCode"] for each in status["initContainerStatuses"]] == [0, 0, 0]


async def test_deletion_asks_then_kills_the_whole_group_and_releases(api: NodeApi, tmp_path: Path) -> None:
    script = (
        f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$$$ > {tmp_path}/child; while :; do sleep 1; done' & wait; wait"
    )
    async with running_node(api, tmp_path):
        client = api.client()
        await client.create(Pod, command_pod("p", *shell_command(script), terminationGracePeriodSeconds=1))
        await api.wait_phase("p", "Running")
        await wait_until(lambda: file_text(tmp_path / "child"))
        await client.delete(Pod, default_key("p"))
        await api.wait_deleted("p")
        child = int((tmp_path / "child").read_text())
        assert not is_alive(child)
    last = api.status_history("p")[-1]
    assert main_container_status(last)["state"]["terminated"]["exitCode"] == 137
    assert main_container_status(last)["state"]["terminated"]["signal"] == 9


async def test_grace_is_measured_by_the_clock(api: NodeApi, tmp_path: Path) -> None:
    clock = FakeClock()
    script = f"trap '' TERM; echo up > {tmp_path}/up; while :; do sleep 0.05; done"
    async with running_node(api, tmp_path, NodeSettings(), clock):
        await api.client().create(Pod, command_pod("p", *shell_command(script), terminationGracePeriodSeconds=60))
        await api.wait_phase("p", "Running")
        await wait_until(lambda: file_text(tmp_path / "up"))
        await api.client().delete(Pod, default_key("p"))
        await clock.advance(timedelta(seconds=59))
        assert "running" in main_container_status(api.stored_pod("p")["status"])["state"]
        await clock.advance(timedelta(seconds=2))
        await api.wait_deleted("p")


async def test_a_mapping_of_images_makes_their_paths_real(api: NodeApi, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')")
    mapping = tmp_path / "images.yaml"
    mapping.write_text("kubeflow/mnist: {paths: {/var/mnist: ./src}}\n")
    body = command_pod("p", "python", "/var/mnist/train.py", container={"image": "kubeflow/mnist:1.0"})
    async with running_node(api, tmp_path, NodeSettings(images=mapping)):
        await api.client().create(Pod, body)
        await api.client().create(Pod, command_pod("q", "python", "/var/mnist/train.py"))
        await api.wait_phase("p", "Succeeded")
        unmapped = await api.wait_phase("q", "Failed")
    assert await container_logs(tmp_path, "p") == "trained\n"
    message = main_container_status(unmapped)["state"]["terminated"]["message"]
    assert message.startswith(
        'image "none": /var/mnist/train.py exists only in the image (pods run as processes of this machine);'
    )


@asynccontextmanager
async def address_book(api: NodeApi) -> AsyncIterator[tuple[ServicePortAllocator, int]]:
    """A book with one service, and the port that the service got."""
    clock, client = SystemClock(), api.client()
    services = Informer(client, Service, clock=clock)
    book = ServicePortAllocator(services.cache, client)
    spec = {"selector": {"app": "x"}, "ports": [{"name": "a", "port": 2222}]}
    await client.create(Service, {"metadata": {"name": "s", "namespace": "default"}, "spec": spec})
    async with asyncio.TaskGroup() as group:
        following = group.create_task(services.run())
        await services.wait_for_sync()
        await book.reconcile(default_key("s"))
        await services.wait_until(lambda cache: any(service_ports(each) for each in cache))
        (service,) = services.cache
        yield book, service_ports(service)["a"]
        following.cancel()
    book.close()


def team_member(*command: str, restart: str = "Never") -> JSON:
    body = command_pod("p", *command, restart=restart)
    owner = {"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    body["metadata"] |= {"labels": {"app": "x"}, "ownerReferences": [owner]}
    return body


@pytest.mark.parametrize("restart", ["Never", "OnFailure", "Always"])
async def test_a_port_that_somebody_took_fails_the_pod_as_such(api: NodeApi, tmp_path: Path, restart: str) -> None:
    async with address_book(api) as (book, port):
        book.close()
        with bind_port(port) as stranger:
            stranger.listen()
            async with running_node(api, tmp_path, ports=book):
                await api.client().create(Pod, team_member("true", restart=restart))
                status = await api.wait_phase("p", "Failed")
    told = f'port {port}, given to service "s" as "a", is taken by another process'
    assert (status["reason"], status["message"]) == ("PortClash", told)
    ended = main_container_status(status)["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("PortClash", 128)


async def test_a_process_that_lost_the_race_for_its_port_is_a_clash_too(api: NodeApi, tmp_path: Path) -> None:
    script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 1"
    async with address_book(api) as (book, port), running_node(api, tmp_path, ports=book):
        await api.client().create(Pod, team_member(*shell_command(script)))
        await api.wait_phase("p", "Running")
        with bind_port(port) as stranger:
            stranger.listen()
            (tmp_path / "go").touch()
            status = await api.wait_phase("p", "Failed")
    assert status["reason"] == "PortClash"
    assert main_container_status(status)["state"]["terminated"]["exitCode"] == 1


async def test_a_pod_that_nobody_makes_anew_waits_for_its_port(api: NodeApi, tmp_path: Path) -> None:
    body = command_pod("p", "true", restart="OnFailure")
    body["metadata"]["labels"] = {"app": "x"}
    async with address_book(api) as (book, port), running_node(api, tmp_path, ports=book):
        book.close()
        with bind_port(port) as stranger:
            stranger.listen()
            await api.client().create(Pod, body)
            await api.wait_until(lambda: "PortClash" in str(api.stored_pod("p")["status"]))
        await api.wait_phase("p", "Succeeded")


async def test_files_follow_their_objects_while_a_pod_runs(api: NodeApi, tmp_path: Path) -> None:
    script = (
        "import sys, time\nwhile open(sys.argv[1]).read() != 'new': time.sleep(0.02)\nprint(open(sys.argv[2]).read())"
    )
    mounts = [
        {"name": "v", "mountPath": "/conf"},
        {"name": "v", "mountPath": "/one", "subPath": "a"},
        {"name": "d", "mountPath": "/labels"},
    ]
    volumes = [
        {"name": "v", "configMap": {"name": "c"}},
        {
            "name": "d",
            "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        },
    ]
    command = ("python", "-c", script, "/conf/a", "/one")
    async with running_node(api, tmp_path):
        client = api.client()
        await client.create(ConfigMap, {"metadata": {"name": "c"}, "data": {"a": "old"}}, namespace="default")
        await client.create(Pod, command_pod("p", *command, container={"volumeMounts": mounts}, volumes=volumes))
        await api.wait_phase("p", "Running")
        seen = single_file(tmp_path, "pods/*/_volumes/d/l")
        assert file_text(seen) == ""
        await client.patch(Pod, default_key("p"), {"metadata": {"labels": {"x": "y"}}})
        await wait_until(lambda: file_text(seen) == 'x="y"')
        await client.patch(ConfigMap, default_key("c"), {"data": {"a": "new", "b": "more"}})
        await api.wait_phase("p", "Succeeded")
    # As in Kubernetes, a mount with a sub path stays as it was.
    assert await container_logs(tmp_path, "p") == "old\n"


async def test_every_container_has_a_folder_for_temporary_files_while_it_runs(api: NodeApi, tmp_path: Path) -> None:
    script = f"mktemp; mkdir $TMPDIR/deep; ln -s {tmp_path} $TMPDIR/deep/link; echo $TMPDIR"
    mounts = [{"name": "t", "mountPath": "/tmp"}]
    own = command_pod("q", *shell_command("echo $TMPDIR"), container={"volumeMounts": mounts})
    own["spec"]["volumes"] = [{"name": "t", "emptyDir": {}}]
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", *shell_command(script)))
        await api.client().create(Pod, own)
        await api.wait_phase("p", "Succeeded")
        await api.wait_phase("q", "Succeeded")
    made, folder = (await container_logs(tmp_path, "p")).split()
    assert Path(made).parent == Path(folder)
    assert not path_exists(Path(folder))
    assert path_exists(tmp_path / "pods")
    assert (await container_logs(tmp_path, "q")).strip().endswith("_volumes/t")


async def test_a_supervisor_that_was_killed_leaves_no_temporary_files(api: NodeApi, tmp_path: Path) -> None:
    async with serve_http(api) as address:
        first = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "cluster" / "node_process.py"),
            address,
            str(tmp_path),
        )
        await api.client().create(Pod, command_pod("p", *shell_command("echo $TMPDIR; exec sleep 99")))
        await api.wait_phase("p", "Running")
        run = json.loads(single_file(tmp_path, "pods/*/main/0.run").read_text())
        async with asyncio.timeout(60):
            while not (said := await container_logs(tmp_path, "p")).endswith("\n"):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)
        first.send_signal(signal.SIGKILL)
        await first.wait()
        folder = Path(said.strip())
        assert path_exists(folder)
        os.kill(run["shim"], signal.SIGKILL)
        os.kill(run["pid"], signal.SIGKILL)
    async with running_node(api, tmp_path):
        await api.wait_phase("p", "Failed")
    assert not path_exists(folder)


async def test_a_process_whose_shim_was_killed_has_ended_when_its_pod_fails(api: NodeApi, tmp_path: Path) -> None:
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", "sleep", "99"))
        await api.wait_phase("p", "Running")
        run = json.loads(single_file(tmp_path, "pods/*/main/0.run").read_text())
        os.kill(run["shim"], signal.SIGKILL)
        await api.wait_phase("p", "Failed")
        assert not psutil.pid_exists(run["pid"]) or psutil.Process(run["pid"]).status() == psutil.STATUS_ZOMBIE


async def test_a_pod_waits_for_the_processes_of_one_that_was_removed_by_force(api: NodeApi, tmp_path: Path) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "j", "uid": "u", "controller": True}

    def owned_pod(name: str, *command: str) -> JSON:
        body = command_pod(name, *command)
        return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}

    client = api.client()
    async with running_node(api, tmp_path, msgspec.structs.replace(FAST_SETTINGS, leave_running=True)):
        await client.create(Pod, owned_pod("p", "sleep", "99"))
        await api.wait_phase("p", "Running")
    lock = os.open(single_file(tmp_path, "pods/*/main/0.lock"), os.O_RDWR)
    async with running_node(api, tmp_path) as node, asyncio.TaskGroup() as group:
        await wait_until(lambda: node.container_targets(api.stored_pod("p")["metadata"]["uid"]))
        # Whoever has its lock counts as the shim of an adopted process.
        locked = group.create_task(asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_SH))
        await client.delete(Pod, default_key("p"), grace=timedelta())
        await locked
        await client.create(Pod, owned_pod("q", "true"))
        await client.create(Pod, command_pod("other", "true"))
        await api.wait_phase("other", "Succeeded")
        assert not api.stored_pod("q")["status"].get("containerStatuses")
        os.close(lock)
        await api.wait_phase("q", "Succeeded")


async def test_a_deadline_fails_the_pod(api: NodeApi, tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_node(api, tmp_path, NodeSettings(), clock):
        await api.client().create(Pod, command_pod("p", "sleep", "99", activeDeadlineSeconds=60))
        await api.wait_phase("p", "Running")
        await clock.advance(timedelta(seconds=59))
        assert "running" in main_container_status(api.stored_pod("p")["status"])["state"]
        await clock.advance(timedelta(seconds=2))
        status = await api.wait_phase("p", "Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert main_container_status(status)["state"]["terminated"]["exitCode"] == 143


async def test_a_command_that_is_not_there_is_one_line(api: NodeApi, tmp_path: Path) -> None:
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", "no-such-program"))
        status = await api.wait_phase("p", "Failed")
    ended = main_container_status(status)["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]
    assert "; install no-such-program; or run the image" in ended["message"]


async def test_environment_waits_for_what_it_needs(api: NodeApi, tmp_path: Path) -> None:
    env = [
        {"name": "WHO", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "who"}}},
        {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pass"}}},
        {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    body = command_pod("p", "echo", "$(WHO) $(PASS) $(ME) $$(WHO) $(NO)", container={"env": env})
    async with running_node(api, tmp_path):
        client = api.client()
        await client.create(Pod, body)
        await api.wait_until(lambda: "CreateContainerConfigError" in str(api.stored_pod("p")["status"]))
        await client.create(ConfigMap, {"metadata": {"name": "c"}, "data": {"who": "me"}}, namespace="default")
        await client.create(Secret, {"metadata": {"name": "s"}, "data": {"pass": "cHc="}}, namespace="default")
        await api.wait_phase("p", "Succeeded")
    assert await container_logs(tmp_path, "p") == "me pw p $(WHO) $(NO)\n"


async def test_volumes_are_folders_that_paths_lead_to(api: NodeApi, tmp_path: Path) -> None:
    mounts = [
        {"name": "work", "mountPath": "/scratch/dir"},
        {"name": "conf", "mountPath": "/etc/conf"},
        {"name": "claim", "mountPath": "/keep", "subPath": "deep"},
    ]
    volumes = [
        {"name": "work", "emptyDir": {}},
        {"name": "conf", "configMap": {"name": "c", "items": [{"key": "a", "path": "x/a.txt"}]}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    script = "cat /etc/conf/x/a.txt; pwd > /keep/pwd; touch $GANGLINE_VOLUME_WORK/here; ls /scratch/dir"
    container = {"volumeMounts": mounts, "workingDir": "/scratch/dir"}
    async with running_node(api, tmp_path):
        client = api.client()
        await client.create(ConfigMap, {"metadata": {"name": "c"}, "data": {"a": "text\n"}}, namespace="default")
        await client.create(CLAIMS, {"metadata": {"name": "data"}, "spec": {}}, namespace="default")
        await client.create(Pod, command_pod("p", *shell_command(script), container=container, volumes=volumes))
        await api.wait_phase("p", "Succeeded")
        assert await container_logs(tmp_path, "p") == "text\nhere\n"
        await client.delete(Pod, default_key("p"))
        await api.wait_deleted("p")
    kept = tmp_path / "claims" / "default_data" / "deep" / "pwd"
    assert kept.read_text().strip().endswith("_volumes/work")
    assert api.objects["persistentvolumeclaims", "default", "data"]["status"]["phase"] == "Bound"


async def test_an_empty_dir_that_grows_too_large_evicts(api: NodeApi, tmp_path: Path) -> None:
    script = "head -c 3000000 /dev/zero > /scratch/big; exec sleep 99"
    body = command_pod(
        "p",
        *shell_command(script),
        container={"volumeMounts": [{"name": "s", "mountPath": "/scratch"}]},
        volumes=[{"name": "s", "emptyDir": {"sizeLimit": "1Mi"}}],
        terminationGracePeriodSeconds=1,
    )
    async with running_node(api, tmp_path):
        await api.client().create(Pod, body)
        status = await api.wait_phase("p", "Failed")
    assert status["reason"] == "Evicted"
    assert 'EmptyDir volume "s" exceeds the limit "1Mi"' in status["message"]


async def test_too_much_memory_is_oom_killed(api: NodeApi, tmp_path: Path) -> None:
    script = "import time; x = bytearray(150_000_000); time.sleep(99)"
    container = {"resources": {"limits": {"memory": "64Mi"}}}
    async with running_node(api, tmp_path):
        await api.client().create(Pod, command_pod("p", sys.executable, "-c", script, container=container))
        status = await api.wait_phase("p", "Failed")
    ended = main_container_status(status)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
    peak = re.fullmatch(r"peak memory (\d+)Mi", ended["message"])
    assert peak is not None
    assert int(peak[1]) > 64


async def test_devices_are_given_out_once(api: NodeApi, tmp_path: Path) -> None:
    container = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    script = f"echo $CUDA_VISIBLE_DEVICES; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    settings = NodeSettings(capacity={"nvidia.com/gpu": "4"})
    async with running_node(api, tmp_path, settings):
        client = api.client()
        for name in ("a", "b"):
            await client.create(Pod, command_pod(name, *shell_command(script), container=container))
        await api.wait_phase("a", "Running")
        await api.wait_phase("b", "Running")
        (tmp_path / "go").touch()
        await api.wait_phase("a", "Succeeded")
        await api.wait_phase("b", "Succeeded")
    assert {await container_logs(tmp_path, "a"), await container_logs(tmp_path, "b")} == {"0,1\n", "2,3\n"}
    assert api.objects["nodes", "", "local"]["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert api.objects["leases", "kube-node-lease", "local"]["spec"]["holderIdentity"] == "local"


async def test_probes_make_ready_and_restart(api: NodeApi, tmp_path: Path) -> None:
    container = {
        "readinessProbe": {"exec": {"command": ["test", "-e", f"{tmp_path}/ready"]}, "periodSeconds": 1},
        "livenessProbe": {
            "exec": {"command": ["test", "!", "-e", f"{tmp_path}/sick"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
    }
    async with running_node(api, tmp_path):
        body = command_pod("p", "sleep", "99", container=container, restart="Always", terminationGracePeriodSeconds=1)
        await api.client().create(Pod, body)
        status = await api.wait_phase("p", "Running")
        assert main_container_status(status)["ready"] is False
        (tmp_path / "ready").touch()
        await api.wait_until(lambda: main_container_status(api.stored_pod("p")["status"])["ready"])
        (tmp_path / "sick").touch()
        await api.wait_until(lambda: main_container_status(api.stored_pod("p")["status"])["restartCount"] >= 1)


async def test_hooks_run_around_a_process(api: NodeApi, tmp_path: Path) -> None:
    hooks = {
        "postStart": {"exec": {"command": list(shell_command(f"echo post >> {tmp_path}/hooks"))}},
        "preStop": {"exec": {"command": list(shell_command(f"echo pre >> {tmp_path}/hooks"))}},
    }
    script = f"trap 'echo term >> {tmp_path}/hooks; exit 0' TERM; echo up > {tmp_path}/up; while :; do sleep 0.02; done"
    async with running_node(api, tmp_path):
        client = api.client()
        await client.create(Pod, command_pod("p", *shell_command(script), container={"lifecycle": hooks}))
        await api.wait_until(
            lambda: bool(api.stored_pod("p")["status"].get("containerStatuses", [{}])[0].get("started"))
        )
        await wait_until(lambda: file_text(tmp_path / "up"))
        await client.delete(Pod, default_key("p"))
        await api.wait_deleted("p")
    assert (tmp_path / "hooks").read_text().split() == ["post", "pre", "term"]


async def test_termination_message_comes_from_file_or_log(api: NodeApi, tmp_path: Path) -> None:
    async with running_node(api, tmp_path):
        client = api.client()
        await client.create(Pod, command_pod("a", *shell_command("echo why > /dev/termination-log; exit 1")))
        fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
        await client.create(Pod, command_pod("b", *shell_command("echo last words; exit 1"), container=fallback))
        first, second = await api.wait_phase("a", "Failed"), await api.wait_phase("b", "Failed")
    assert main_container_status(first)["state"]["terminated"]["message"] == "why\n"
    assert main_container_status(second)["state"]["terminated"]["message"] == "last words\n"


async def test_leaving_ends_every_process(api: NodeApi, tmp_path: Path) -> None:
    async with running_node(api, tmp_path):
        await api.client().create(
            Pod,
            command_pod("p", *shell_command(f"echo $$$$ > {tmp_path}/pid; trap '' TERM; sleep 99 & wait; wait")),
        )
        await api.wait_phase("p", "Running")
        await wait_until(lambda: file_text(tmp_path / "pid"))
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_what_is_left_running_is_adopted(api: NodeApi, tmp_path: Path) -> None:
    settings = NodeSettings(leave_running=True)
    body = command_pod("p", *shell_command(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo done; exit 4"))
    async with running_node(api, tmp_path, settings):
        await api.client().create(Pod, body)
        before = main_container_status(await api.wait_phase("p", "Running"))["containerID"]
    async with running_node(api, tmp_path):
        (tmp_path / "go").touch()
        status = await api.wait_phase("p", "Failed")
    assert main_container_status(status)["containerID"] == before
    assert main_container_status(status)["state"]["terminated"]["exitCode"] == 4
    assert main_container_status(status)["restartCount"] == 0
    assert await container_logs(tmp_path, "p") == "done\n"


def marked() -> list[int]:
    """Processes of containers, wherever they are."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("NODE_TEST") == str(os.getpid()):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


async def test_a_killed_node_doubles_nothing_and_orphans_nothing(api: NodeApi, tmp_path: Path) -> None:
    count = 20
    env = [{"name": "NODE_TEST", "value": str(os.getpid())}]
    script = f"echo run >> {tmp_path}/$HOSTNAME.runs; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 5"
    async with serve_http(api) as address:

        async def start() -> asyncio.subprocess.Process:
            program = str(Path(__file__).parents[1] / "support" / "cluster" / "node_process.py")
            return await asyncio.create_subprocess_exec(sys.executable, program, address, str(tmp_path))

        first = await start()
        client = api.client()
        names = [f"p{number}" for number in range(count)]
        for name in names:
            await client.create(Pod, command_pod(name, *shell_command(script), container={"env": env}))
        for name in names:
            await api.wait_phase(name, "Running")
        await wait_until(lambda: all(file_text(tmp_path / f"{name}.runs") for name in names))
        before = {name: main_container_status(api.stored_pod(name)["status"])["containerID"] for name in names}
        first.send_signal(signal.SIGKILL)
        await first.wait()
        # One pod goes while there is no node, and is force-deleted: nobody else could end its process.
        await client.delete(Pod, default_key("p0"), grace=timedelta())
        second = await start()
        try:
            (tmp_path / "go").touch()
            for name in names[1:]:
                status = await api.wait_phase(name, "Failed")
                assert main_container_status(status)["state"]["terminated"]["exitCode"] == 5
                assert main_container_status(status)["containerID"] == before[name]
            for name in names:
                assert (tmp_path / f"{name}.runs").read_text() == "run\n"
            await wait_until(lambda: not marked())
        finally:
            second.send_signal(signal.SIGKILL)
            await second.wait()


async def test_a_node_killed_at_any_moment_starts_every_pod_once(api: NodeApi, tmp_path: Path) -> None:
    """Nodes die after a few more milliseconds each, in the middle of starting pods. The last one finishes."""
    names = [f"p{number}" for number in range(8)]
    async with serve_http(api) as address:
        program = str(Path(__file__).parents[1] / "support" / "cluster" / "node_process.py")
        client = api.client()
        for name in names:
            script = f"echo run >> {tmp_path}/{name}.runs; exit 3"
            await client.create(Pod, command_pod(name, *shell_command(script)))

        async def start() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(sys.executable, program, address, str(tmp_path))

        async def spotted(count: int) -> None:
            await wait_until(lambda: len(list(tmp_path.glob("pods/*/*/*"))) >= count)

        for files in (1, 6, 15, 30):
            process = await start()
            await spotted(files)
            process.send_signal(signal.SIGKILL)
            await process.wait()
        last = await start()
        try:
            for name in names:
                status = await api.wait_phase(name, "Failed")
                assert main_container_status(status)["state"]["terminated"]["exitCode"] == 3
                assert (
                    main_container_status(status)["restartCount"],
                    file_text(tmp_path / f"{name}.runs"),
                ) == (0, "run")
        finally:
            last.send_signal(signal.SIGKILL)
            await last.wait()

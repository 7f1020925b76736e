"""A container that ends again and again, and prints much each time, fills the disk with its last two runs only."""

from datetime import timedelta
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.kube.pods import PodSubresources
from gangline.local.cluster import LocalSettings, local_cluster
from gangline.node.checkpoint import StateFolder
from gangline.node.settings import Backoff, NodeSettings
from support.builders.objects import pod_body
from support.waiting import wait_until

RUNS = 6
SCRIPT = f'n=$(($(cat "$COUNT" 2>/dev/null || echo 0) + 1)); echo $n > "$COUNT"; echo run $n; [ $n -ge {RUNS} ] && exec sleep 600; exit 1'


async def test_files_of_old_runs_are_removed(tmp_path: Path) -> None:
    node = NodeSettings(backoff=Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1)))
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "state", node=node)
    async with local_cluster(settings, CORE_SCHEME, SystemClock()) as cluster:
        env = [{"name": "COUNT", "value": str(tmp_path / "count")}]
        container = {"name": "main", "image": "none", "command": ["sh", "-c", SCRIPT], "env": env}
        key = Key("default", "loop")
        await cluster.client.create(Pod, pod_body(key.name, key.namespace, containers=[container]))

        async def runs_on() -> Pod | None:
            pod = await cluster.client.get(Pod, key)
            states = pod.status.container_statuses
            return pod if states and states[0].restart_count == RUNS - 1 and states[0].state.running else None

        pod = await wait_until(runs_on)
        folder = StateFolder(tmp_path / "state").pod(key, pod.metadata.uid)
        assert [files.attempt for files in folder.runs("main")] == [RUNS - 2, RUNS - 1]
        kept = {int(file.name.partition(".")[0]) for file in (folder.path / "main").iterdir()}
        assert kept == {RUNS - 2, RUNS - 1}

        async def log(*, previous: bool) -> list[bytes]:
            return [line async for line in PodSubresources(cluster.client).logs(key, previous=previous)]

        assert await wait_until(lambda: log(previous=False)) == [f"run {RUNS}".encode()]
        assert await log(previous=True) == [f"run {RUNS - 1}".encode()]

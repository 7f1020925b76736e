"""CPU and memory of pods: `metrics.k8s.io` of a local cluster, the dashboard's curves, and what was recorded of them."""

import sys
from pathlib import Path
from typing import Any

import pytest

from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.dashboard.settings import LoginMethod
from gangline.history import recorder
from gangline.history.reader import HistoryReader
from gangline.kube.errors import NotFound
from gangline.kube.pod_metrics import POD_METRICS, pod_usage
from gangline.local.history import StoreRecording
from gangline.summary.objects import JOB_KINDS
from support.servers.dashboard import Browser, DashboardPlane, dashboard_plane, job_body, until, user_token
from support.waiting import wait_until

PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
PATH = "/api/jobs/default/pytorchjobs/bert"
BUSY = [sys.executable, "-c", "while True: pass"]
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


async def start_team(plane: DashboardPlane, browser: Browser) -> None:
    """A master that computes and a worker that sleeps, both running."""
    body = job_body("bert", BUSY)
    body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = {
        "spec": {"containers": [{"name": "pytorch", "image": "x", "command": SLEEP}]}
    }
    await plane.client.create(PYTORCHJOBS, body, namespace="default")
    async with browser.stream("view=board") as events:
        await until(events, {}, lambda rows: rows.get("default/pytorchjobs/bert", {}).get("ready") == 2)


async def metrics(plane: DashboardPlane, labels: str = "") -> dict[str, JSON]:
    page = await plane.client.list(POD_METRICS, Selector("default", labels))
    return {item["metadata"]["name"]: item for item in page.items}


async def test_a_local_cluster_serves_the_metrics_api(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        await start_team(plane, browser)

        async def measured() -> dict[str, JSON] | None:
            found = await metrics(plane)
            return found if len(found) == 2 and pod_usage(found["bert-master-0"]).cores > 0 else None

        found = await wait_until(measured)
        master, worker = pod_usage(found["bert-master-0"]), pod_usage(found["bert-worker-0"])
        assert master.cores > worker.cores
        assert worker.memory > 2**20
        assert found["bert-master-0"]["containers"][0]["name"] == "pytorch"
        chosen = await metrics(plane, "training.kubeflow.org/replica-type=worker")
        assert list(chosen) == ["bert-worker-0"]
        one = await plane.client.get(POD_METRICS, Key("default", "bert-worker-0"))
        assert one["kind"] == "PodMetrics"
        with pytest.raises(NotFound, match="default/none"):
            await plane.client.get(POD_METRICS, Key("default", "none"))


async def test_curves_have_the_usage_of_each_replica_while_somebody_looks(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        await start_team(plane, browser)
        # Nobody has asked: nothing was measured.
        assert '"resource":"pods","namespace":"default","apiGroup":"metrics.k8s.io"' not in plane.audit_log.read_text()

        async def two_points() -> Any:
            usage = (await browser.get(f"{PATH}/curves?over=time"))["usage"]
            lengths = [len(series["points"]) for series in usage["cpu"]]
            return usage if len(lengths) == 2 and min(lengths) > 1 else None

        usage = await wait_until(two_points)
        assert (usage["note"], [series["replica"] for series in usage["memory"]]) == ("", ["master-0", "worker-0"])
        assert usage["memory"][1]["points"][-1][1] > 2**20
        assert "metrics.k8s.io" in plane.audit_log.read_text()


async def test_a_viewer_without_the_right_reads_what_is_missing(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, ("jane",), login=LoginMethod.TOKEN) as plane:
        body = job_body("bert", SLEEP, workers=0)
        await plane.client.create(PYTORCHJOBS, body, namespace="default")
        read = ["get", "list", "watch"]
        await plane.allow(
            "jane",
            "default",
            {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": read},
            {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": read},
        )
        async with plane.logged_in(user_token("jane")) as browser:
            usage = (await browser.get(f"{PATH}/curves"))["usage"]
            assert (usage["cpu"], usage["memory"]) == ([], [])
            assert "jane may not list pods.metrics.k8s.io in namespace default" in usage["note"]
        token = user_token("jane")
        async with (
            plane.browser() as stranger,
            stranger.http.get(
                f"{plane.connection.server}/apis/metrics.k8s.io/v1beta1/namespaces/default/pods",
                headers={"Authorization": f"Bearer {token}"},
                ssl=False,
            ) as response,
        ):
            assert response.status == 403


async def test_usage_is_recorded_and_stays_after_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "USAGE_SECONDS", 0.5)
    history = tmp_path / "history"
    async with dashboard_plane(tmp_path, history=history) as plane, plane.logged_in() as browser:
        recording = StoreRecording(history, tmp_path / "pods", SystemClock())
        recording.start(plane.store)
        async with background_tasks(recording.run()):
            await start_team(plane, browser)
            reader = HistoryReader(history)
            await wait_until(lambda: len(reader.usage("default", "pytorchjobs", "bert")) > 3)
            await plane.client.delete(PYTORCHJOBS, Key("default", "bert"))

            async def gone() -> Any:
                status, answer = await browser.call("GET", f"{PATH}?history=true")
                return status == 200 and answer["deleted"]

            await wait_until(gone)
            usage = (await browser.get(f"{PATH}/curves"))["usage"]
            assert {series["replica"] for series in usage["cpu"]} == {"master-0", "worker-0"}
            assert len(usage["cpu"][0]["points"]) > 1
        recording.finish()

"""The pages of a job on the embedded plane: why, logs, curves, actions, submit, fit, sweeps, the cluster and the past."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.cli.dashboard.recording import record_cluster
from gangline.cli.dashboard.tools import dashboard_tools
from gangline.history.reader import HistoryReader
from gangline.local.history import StoreRecording
from gangline.summary.objects import JOB_KINDS
from gangline.why.verdicts import verdict_maker
from support.servers.dashboard import Browser, dashboard_plane, job_body, until
from support.waiting import wait_until

PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
PATH = "/api/jobs/default/pytorchjobs/bert"
REPORT = (
    "import json, time\n"
    "for step in range(5):\n"
    "    print(json.dumps({'progress': {'step': step, 'total': 5, 'loss': 1 / (step + 1)}}), flush=True)\n"
    "print('<script>alert(1)</script>')\n"
    "print('same'); print('same'); print('same')\n"
    "raise SystemExit(7)\n"
)


async def _until_state(browser: Browser, state: str, name: str = "default/pytorchjobs/bert") -> dict[str, Any]:
    async with browser.stream("view=board") as events:
        rows = await until(events, {}, lambda rows: rows.get(name, {}).get("state") == state)
    return rows[name]


async def test_why_logs_and_curves_of_a_failed_job(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        body = job_body("bert", [sys.executable, "-c", REPORT], workers=0)
        body["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
        await plane.client.create(PYTORCHJOBS, body, namespace="default")
        await _until_state(browser, "Failed")
        why = await browser.get(f"{PATH}/why")
        assert not why["healthy"]
        assert "7" in " ".join(item["text"] for item in why["evidence"])
        links = [item["link"] for item in why["evidence"] if item["link"] and item["link"]["kind"] == "log"]
        assert {link["pod"] for link in links} == {"master-0"}
        assert any(step["command"] for step in why["next"])
        page = await browser.get(f"{PATH}/logs")
        texts = [(line["text"], line["repeats"]) for line in page["lines"]]
        assert texts[-2:] == [("<script>alert(1)</script>", 1), ("same", 3)]
        assert (page["more"], page["notRead"]) == (False, [])
        first = await browser.get(f"{PATH}/logs?limit=2&fold=false")
        assert (len(first["lines"]), first["more"]) == (2, True)
        rest = await browser.get(f"{PATH}/logs?fold=false&cursor={first['cursor']}")
        assert len(first["lines"]) + len(rest["lines"]) == 9
        found = await browser.get(f"{PATH}/logs?search=SCRIPT&replica=master")
        assert [line["text"] for line in found["lines"]] == ["<script>alert(1)</script>"]
        async with browser.http.get(f"{browser.url}{PATH}/logs/download") as response:
            assert response.headers["Content-Disposition"] == 'attachment; filename="bert.log"'
            assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
            assert (await response.text()).count("\n") == 9
        # What a page selects, its download has, too: replicas, a span of time, an earlier moment.
        before, after = "2000-01-01T00:00:00Z", "2099-01-01T00:00:00Z"
        for query, count in (
            ("replica=worker", 0),
            (f"replica=master&from={before}&to={after}", 9),
            (f"to={before}", 0),
            (f"from={after}", 0),
            (f"at={before}", 0),
            (f"at={after}&search=same", 3),
        ):
            async with browser.http.get(f"{browser.url}{PATH}/logs/download?{query}") as response:
                assert (await response.text()).count("\n") == count, query
        assert (await browser.get(f"{PATH}/logs?at={before}"))["lines"] == []
        curves = await browser.get(f"{PATH}/curves")
        (loss,) = curves["metrics"]
        assert (loss["name"], loss["points"][0], len(loss["points"])) == ("loss", [0, 1], 5)


async def test_actions_change_the_job_and_ask_for_the_job_that_the_viewer_saw(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP), namespace="default")
        row = await _until_state(browser, "Running")
        status, answer = await browser.call("POST", f"{PATH}/actions/suspend", {"uid": "another"})
        assert (status, "another one of that name" in answer["error"]["message"]) == (409, True)
        assert (await browser.call("POST", f"{PATH}/actions/suspend", {"uid": row["uid"]}))[1] == {
            "text": "pytorchjob.kubeflow.org/bert suspended"
        }
        await _until_state(browser, "Suspended")
        assert (await browser.get(PATH))["allowed"]["resume"]
        assert (await browser.call("POST", f"{PATH}/actions/resume", {}))[0] == 200
        await _until_state(browser, "Running")
        assert (await browser.call("POST", f"{PATH}/actions/scale", {"replicas": 2}))[1]["text"].endswith(
            "scaled: Worker 1 -> 2"
        )
        assert (await browser.call("POST", f"{PATH}/actions/scale", {"replicas": -1}))[0] == 400
        assert (await browser.call("POST", f"{PATH}/actions/restart", {"replica": "master"}))[0] == 200
        assert (await browser.call("POST", f"{PATH}/actions/explode", {}))[0] == 404
        assert (await browser.call("POST", f"{PATH}/actions/delete", {"uid": row["uid"]}))[0] == 200
        async with browser.stream("view=board") as events:
            await until(events, {}, lambda rows: not rows)


async def test_a_file_is_checked_before_anything_is_stored(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, tools=dashboard_tools()) as plane, plane.logged_in() as browser:
        good = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **job_body("bert", SLEEP, workers=0)}
        wrong = {**good, "metadata": {"name": "wrong"}, "spec": {"pytorchReplicaSpecs": {"Worker": {"replica": 1}}}}
        both = yaml.safe_dump_all([good, wrong], sort_keys=False)
        status, answer = await browser.call("POST", "/api/submit", {"yaml": both})
        assert (status, answer["objects"]) == (200, [])
        assert any(problem["line"] and "replica" in problem["text"] for problem in answer["problems"])
        text = yaml.safe_dump(good, sort_keys=False)
        _, tried = await browser.call("POST", "/api/submit", {"yaml": text, "dryRun": True})
        assert tried["objects"] == [{"kind": "PyTorchJob", "name": "bert", "namespace": "default", "result": "created"}]
        assert (await browser.get("/api/jobs"))["total"] == 0
        _, done = await browser.call("POST", "/api/submit", {"yaml": text, "namespace": "default"})
        assert done == tried
        async with browser.stream("view=board") as events:
            await until(events, {}, lambda rows: "default/pytorchjobs/bert" in rows)
        _, fit = await browser.call("POST", "/api/cluster/fit", {"yaml": text})
        assert fit["results"][0]["fits"], fit
        assert (await browser.call("POST", "/api/submit", {"yaml": "{"}))[1]["problems"]
        assert (await browser.call("POST", "/api/submit", {"yaml": 3}))[0] == 400


async def test_the_cluster_shows_what_the_team_uses_and_what_is_free(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        body = job_body("bert", SLEEP, workers=0)
        master = body["spec"]["pytorchReplicaSpecs"]["Master"]
        master["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m"}}
        await plane.client.create(PYTORCHJOBS, body, namespace="default")
        nodes: list[Any] = []
        async with browser.stream("view=cluster") as events:
            async for event in events:
                nodes = event.data.get("nodes") or event.data.get("upsert")
                if nodes and nodes[0]["gangs"]:
                    break
        (node,) = nodes
        cpu = node["resources"]["cpu"]
        assert node["ready"]
        assert node["gangs"] == [{"namespace": "default", "job": "bert", "pods": 1}]
        assert (cpu["used"], cpu["usedText"]) == (0.25, "250m")
        assert cpu["free"] == cpu["total"] - 0.25
        assert (await browser.get("/api/cluster"))["holes"][0]["node"] == node["name"]


async def test_trials_of_a_sweep_are_ranked(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        for number, rate in enumerate(("0.1", "0.5"), 1):
            note = {"trial": number, "parameters": {"lr": rate}, "metric": "loss", "maximize": False}
            metadata = {
                "labels": {"training.gangline.dev/sweep": "rates"},
                "annotations": {"training.gangline.dev/trial": json.dumps(note)},
            }
            program = f"from gangline import progress\nprogress.report(step=1, total=1, loss={rate})\n"
            body = job_body(f"trial-{number}", [sys.executable, "-c", program], workers=0, **metadata)
            await plane.client.create(PYTORCHJOBS, body, namespace="default")
        for number in (1, 2):
            await _until_state(browser, "Succeeded", f"default/pytorchjobs/trial-{number}")
        sweep = await browser.get("/api/sweeps/rates")
        assert (sweep["metric"], sweep["parameters"]) == ("loss", ["lr"])
        assert [(trial["rank"], trial["number"], trial["value"]) for trial in sweep["trials"]] == [
            (1, 1, 0.1),
            (2, 2, 0.5),
        ]
        await plane.client.delete(PYTORCHJOBS, Key("default", "trial-1"))
        async with browser.stream("view=board") as events:
            await until(events, {}, lambda rows: len(rows) == 1)
        assert [
            (trial["number"], trial["row"]["deleted"]) for trial in (await browser.get("/api/sweeps/rates"))["trials"]
        ] == [(1, True), (2, False)]
        assert [each["name"] for each in (await browser.get("/api/sweeps"))["sweeps"]] == ["rates"]
        assert (await browser.call("GET", "/api/sweeps/none"))[0] == 404


async def test_a_trial_that_nobody_watched_when_it_was_deleted_is_ranked_from_the_history(tmp_path: Path) -> None:
    history = tmp_path / "history"
    async with dashboard_plane(tmp_path, history=history) as plane, plane.logged_in() as browser:
        recording = StoreRecording(history, tmp_path / "pods", SystemClock())
        recording.start(plane.store)
        async with background_tasks(recording.run()):
            note = {"trial": 7, "parameters": {"lr": "0.1"}, "metric": "loss", "maximize": False}
            metadata = {
                "labels": {"training.gangline.dev/sweep": "rates"},
                "annotations": {"training.gangline.dev/trial": json.dumps(note)},
            }
            program = "from gangline import progress\nprogress.report(step=1, total=1, loss=0.25)\n"
            body = job_body("trial-7", [sys.executable, "-c", program], workers=0, **metadata)
            await plane.client.create(PYTORCHJOBS, body, namespace="default")
            reader = HistoryReader(history)
            await wait_until(lambda: [job for job in reader.jobs() if job.state == "Succeeded"])
            await plane.client.delete(PYTORCHJOBS, Key("default", "trial-7"))
            await wait_until(lambda: [job for job in reader.jobs() if job.deleted])
            sweep = await browser.get("/api/sweeps/rates")
            (trial,) = sweep["trials"]
            assert (trial["rank"], trial["number"], trial["value"], trial["row"]["deleted"]) == (1, 7, 0.25, True)
        recording.finish()


async def test_a_deleted_job_is_still_there_with_its_timeline_logs_and_cause(tmp_path: Path) -> None:
    history = tmp_path / "history"
    async with dashboard_plane(tmp_path, history=history) as plane, plane.logged_in() as browser:
        recording = StoreRecording(history, tmp_path / "pods", SystemClock())
        recording.start(plane.store, verdict_maker(plane.client, SystemClock()))
        async with background_tasks(recording.run()):
            body = job_body("bert", [sys.executable, "-c", REPORT], workers=0)
            body["spec"]["runPolicy"] = {"cleanPodPolicy": "None"}
            await plane.client.create(PYTORCHJOBS, body, namespace="default")
            row = await _until_state(browser, "Failed")
            reader = HistoryReader(history)
            await wait_until(lambda: reader.verdicts("default", "pytorchjobs", "bert"))
            failed_at = SystemClock().now()
            await plane.client.delete(PYTORCHJOBS, Key("default", "bert"))
            async with browser.stream("view=board") as events:
                await until(events, {}, lambda rows: not rows)
            detail = await _eventually(browser, PATH, lambda answer: answer.get("deleted"))
            assert (detail["recorded"], detail["row"]["state"], detail["row"]["uid"]) == (True, "Failed", row["uid"])
            assert [pod["replica"] for pod in detail["pods"]] == ["master-0"]
            assert detail["timeline"]["rows"][0]["spans"][-1]["state"] == "failed"
            assert not any(detail["allowed"].values())
            logs = await _eventually(browser, f"{PATH}/logs", lambda answer: answer.get("lines"))
            assert "<script>alert(1)</script>" in {line["text"] for line in logs["lines"]}
            why = await _eventually(browser, f"{PATH}/why", lambda answer: answer.get("cause"))
            assert why["headline"]
            assert (await browser.get("/api/jobs"))["total"] == 0
            page = await _eventually(
                browser, "/api/jobs?history=true", lambda answer: answer["rows"] and answer["rows"][0]["deleted"]
            )
            assert [(each["id"], each["deleted"]) for each in page["rows"]] == [("default/pytorchjobs/bert", True)]
            curves = await _eventually(browser, f"{PATH}/curves", lambda answer: "metrics" in answer)
            assert curves["source"] == "history"
            then = quote(failed_at.isoformat())
            before = await browser.get(f"{PATH}?at={then}")
            assert (before["deleted"], before["row"]["state"]) == (False, "Failed")
            page = await _eventually(browser, f"/api/jobs?at={then}", lambda answer: answer["rows"])
            assert [each["id"] for each in page["rows"]] == [row["id"]]
        recording.finish()


async def _eventually(browser: Browser, path: str, holds: Callable[[Any], object]) -> Any:
    """The answer of an endpoint once it holds: the history is written a little later than things happen."""

    async def answer() -> Any:
        _, body = await browser.call("GET", path)
        return body if holds(body) else None

    return await wait_until(answer)


async def test_a_recorded_cluster_keeps_its_deleted_jobs(tmp_path: Path) -> None:
    history = tmp_path / "history"
    async with (
        dashboard_plane(tmp_path, history=history) as plane,
        plane.logged_in() as browser,
        background_tasks(record_cluster(plane.connection, history, SystemClock())),
    ):
        await wait_until(lambda: HistoryReader(history).spans())
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace="default")
        await _until_state(browser, "Running")
        await plane.client.delete(PYTORCHJOBS, Key("default", "bert"))
        detail = await _eventually(browser, PATH, lambda answer: answer.get("recorded") and answer["deleted"])
        assert detail["row"]["name"] == "bert"
        why = await browser.get(f"{PATH}/why")
        assert (why["healthy"], "neither failed nor waited" in why["headline"]) == (True, True)
        assert (await browser.call("GET", "/api/jobs/default/pytorchjobs/none/why"))[0] == 404

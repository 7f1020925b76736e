"""The dashboard on the embedded plane: what a viewer sees, live, and who is refused."""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from gangline.api.meta import Key
from gangline.dashboard.settings import LoginMethod
from gangline.summary.objects import JOB_KINDS, NAMESPACES
from support.servers.dashboard import dashboard_plane, job_body, until, user_token

PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
FAIL = [sys.executable, "-c", "raise SystemExit(3)"]


async def test_a_link_works_once_and_begins_a_session(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.browser() as browser, plane.browser() as other:
        status, answer = await browser.call("GET", "/api/session")
        assert (status, answer["error"]["login"]) == (401, "link")
        link = plane.new_link()
        await browser.open(link)
        session = await browser.get("/api/session")
        assert session["local"]
        assert session["canSeeAllNamespaces"]
        assert "default" in session["namespaces"]
        assert session["user"] == "admin"
        assert await other.open(link) == 403
        assert (await other.call("GET", "/api/session"))[0] == 401
        assert (await browser.call("POST", "/api/logout", {}))[0] == 200
        assert (await browser.call("GET", "/api/session"))[0] == 401


async def test_the_board_follows_a_job_from_its_creation_to_its_deletion(tmp_path: Path) -> None:
    async with (
        dashboard_plane(tmp_path) as plane,
        plane.logged_in() as browser,
        browser.stream("view=board") as events,
    ):
        state: dict[str, dict[str, object]] = {}
        await until(events, state, lambda rows: not rows)
        await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP), namespace="default")
        name = "default/pytorchjobs/bert"
        await until(events, state, lambda rows: rows.get(name, {}).get("ready") == 2)
        row = state[name]
        assert (row["state"], row["replicas"], row["kind"], row["reason"]) == ("Running", 2, "PyTorchJob", "")
        await plane.client.delete(PYTORCHJOBS, Key("default", "bert"))
        await until(events, state, lambda rows: not rows)


async def test_the_page_of_a_job_has_pods_conditions_events_and_what_may_be_done(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        await plane.client.create(PYTORCHJOBS, job_body("bert", FAIL, workers=0), namespace="default")
        async with browser.stream("view=board&namespace=default") as events:
            name = "default/pytorchjobs/bert"
            state = await until(events, {}, lambda rows: rows.get(name, {}).get("state") == "Failed")
        assert state[name]["reason"] == "master-0 exit 3"
        detail = await browser.get("/api/jobs/default/pytorchjobs/bert")
        assert detail["row"]["state"] == "Failed"
        assert detail["conditions"][-1]["type"] == "Failed"
        assert detail["firstFailure"]["exitCode"] == 3
        assert {event["reason"] for event in detail["events"]} >= {"Started"}
        assert "kind: PyTorchJob" in detail["yaml"]
        assert "managedFields" not in detail["yaml"]
        assert detail["allowed"] == {
            "suspend": False,
            "resume": False,
            "scale": False,
            "restart": False,
            "delete": True,
        }
        page = await browser.get("/api/jobs?text=bert&limit=1")
        assert (page["total"], page["rows"][0]["id"]) == (1, name)


async def test_a_viewer_with_a_namespaced_role_sees_that_namespace_and_reads_what_is_refused(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path, ("jane",), login=LoginMethod.TOKEN) as plane:
        for namespace in ("team-a", "team-b"):
            await plane.client.create(NAMESPACES, {"metadata": {"name": namespace}})
            await plane.client.create(PYTORCHJOBS, job_body("bert", SLEEP, workers=0), namespace=namespace)
        rule = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get", "list", "watch"]}
        await plane.allow("jane", "team-a", rule)
        async with plane.logged_in(user_token("jane")) as browser:
            session = await browser.get("/api/session")
            assert (session["user"], session["namespaces"], session["canSeeAllNamespaces"]) == ("jane", None, False)
            async with browser.stream("view=board") as events:
                assert (await anext(events)).data["rows"] == []
            async with browser.stream("view=board&namespace=team-a") as events:
                first = await anext(events)
            assert [row["id"] for row in first.data["rows"]] == ["team-a/pytorchjobs/bert"]
            async with browser.stream("view=board&namespace=team-b") as events:
                first = await anext(events)
            assert first.data["rows"] == []
            refused = {(item["resource"], item["namespace"]): item["message"] for item in first.data["refused"]}
            assert "jane may not list pytorchjobs in namespace team-b" in refused["pytorchjobs", "team-b"]
            status, answer = await browser.call("GET", "/api/jobs/team-b/pytorchjobs/bert")
            assert (status, answer["error"]["resource"], answer["error"]["namespace"]) == (403, "pytorchjobs", "team-b")
            # All that she may see has grown by the namespace that she has asked for.
            async with browser.stream("view=board") as events:
                first = await anext(events)
            assert [row["id"] for row in first.data["rows"]] == ["team-a/pytorchjobs/bert"]
            detail = await browser.get("/api/jobs/team-a/pytorchjobs/bert")
            assert {item["resource"] for item in detail["refused"]} == {"pods", "events", "podgroups"}
            assert not any(detail["allowed"].values())


async def test_a_killed_worker_is_on_the_timeline_of_an_open_page(tmp_path: Path) -> None:
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        body = job_body("bert", SLEEP)
        body["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
        await plane.client.create(PYTORCHJOBS, body, namespace="default")
        async with browser.stream("view=job&id=default/pytorchjobs/bert") as events:
            detail: dict[str, Any] = {}

            async def seen(wanted: Callable[[], object]) -> None:
                while not wanted():
                    event = await anext(events)
                    detail.update(event.data)

            def states(replica: str) -> list[str]:
                rows = [row for row in detail["timeline"]["rows"] if row["name"] == replica]
                return [span["state"] for row in rows for span in row["spans"]]

            await seen(lambda: detail and states("worker-0")[-1:] == ["running"])
            assert {pod["replica"] for pod in detail["pods"]} == {"master-0", "worker-0"}
            assert detail["allowed"]["suspend"]
            process = await _worker_process(tmp_path)
            process.kill()
            await seen(lambda: any(mark["row"] == "worker-0" for mark in detail["timeline"]["marks"]))
            await plane.client.delete(PYTORCHJOBS, Key("default", "bert"))
            await seen(lambda: detail["deleted"])
            assert detail["row"]["deleted"]
            assert not any(detail["allowed"].values())
        status, answer = await browser.call("GET", "/api/jobs/default/pytorchjobs/bert")
        assert (status, answer["error"]["message"]) == (
            404,
            "pytorchjobs.kubeflow.org default/bert: there is no such job",
        )


async def _worker_process(folder: Path) -> psutil.Process:
    """The process of the worker, which sleeps."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            if (
                environment.get("RANK") == "1"
                and str(folder) in environment.get("KUBECONFIG", "")
                and process.cmdline() == SLEEP
            ):
                return process
    raise AssertionError("no such process")

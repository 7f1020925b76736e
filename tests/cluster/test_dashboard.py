"""The dashboard in a cluster with real nodes: installed, reached through its Service, with the rights of who looks."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from gangline.apiserver.audit.rights import read_events
from support.nodes.inside import NodeCluster
from support.nodes.installation import NAMESPACE
from support.nodes.jobs import pods_of, shell_job, waiting_job
from support.servers.dashboard import Browser
from support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SERVICE = "service/gangline-dashboard"


@pytest.fixture
def with_dashboard(installed: NodeCluster) -> Iterator[NodeCluster]:
    """gangline with its dashboard, which is removed afterwards."""
    done = installed.gangline("upgrade", "--with", "scheduler,dashboard", seconds=330)
    assert done.code == 0, done
    yield installed
    done = installed.gangline("upgrade", "--set", "dashboard.enabled=false", seconds=330)
    assert done.code == 0, done
    assert not [body for body in installed.objects("services", NAMESPACE) if "dashboard" in body["metadata"]["name"]]


@pytest.fixture
def other_namespace(cluster: NodeCluster, namespace: str) -> Iterator[str]:
    name = f"{namespace}-other"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@contextmanager
def forwarded() -> Iterator[str]:
    """The address at which this machine reaches the dashboard."""
    words = ["kubectl", "port-forward", "--namespace", NAMESPACE, SERVICE, ":http"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        try:
            found = re.search(r"127\.0\.0\.1:\d+", forward.stdout.readline())
            assert found, "the port is not forwarded"
            yield f"http://{found[0]}"
        finally:
            forward.terminate()


def viewer_token(cluster: NodeCluster, namespace: str) -> str:
    """The token of an account that may look at one namespace."""
    cluster.kubectl("create", "serviceaccount", "viewer", "--namespace", namespace)
    binding = ("rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={namespace}:viewer")
    cluster.kubectl("create", *binding, "--namespace", namespace)
    return cluster.kubectl("create", "token", "viewer", "--namespace", namespace).strip()


async def test_a_viewer_of_one_namespace_sees_exactly_its_jobs(
    with_dashboard: NodeCluster, namespace: str, other_namespace: str
) -> None:
    cluster, began = with_dashboard, datetime.now(UTC)
    cluster.apply(shell_job("mine", "echo from a container; sleep 600"), waiting_job("waits"), namespace=namespace)
    cluster.apply(shell_job("theirs", "echo secret; sleep 600"), namespace=other_namespace)
    cluster.wait("tfjob/mine", "Running", namespace)
    cluster.wait("tfjob/theirs", "Running", other_namespace)
    token = viewer_token(cluster, namespace)
    with forwarded() as url:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
            browser = Browser(url, http)
            async with http.get(f"{url}/") as page:
                assert (page.status, "<title>" in await page.text()) == (200, True)
            assert (await browser.call("GET", "/api/jobs"))[0] == 401
            assert (await browser.call("POST", "/api/login", {"token": "made-up"}))[0] == 401
            assert (await browser.call("POST", "/api/login", {"token": token}))[0] == 200
            session = await browser.get("/api/session")
            assert (session["user"], session["local"]) == (f"system:serviceaccount:{namespace}:viewer", False)
            for place in ("", namespace):
                async with browser.stream(f"view=board&namespace={place}") as events:
                    snapshot = await anext(events)
                shown = {row["id"]: row["state"] for row in snapshot.data["rows"]}
                assert set(shown) == {f"{namespace}/tfjobs/mine", f"{namespace}/tfjobs/waits"}
                assert shown[f"{namespace}/tfjobs/mine"] == "Running"
            async with browser.stream(f"view=board&namespace={other_namespace}") as events:
                snapshot = await anext(events)
            assert snapshot.data["rows"] == []
            assert any("may not list tfjobs" in one["message"] for one in snapshot.data["refused"])
            for path in ("", "/logs", "/why", "/curves"):
                assert (await browser.call("GET", f"/api/jobs/{other_namespace}/tfjobs/theirs{path}"))[0] == 403

            async def lines() -> list[str]:
                return [
                    line["text"] for line in (await browser.get(f"/api/jobs/{namespace}/tfjobs/mine/logs"))["lines"]
                ]

            assert await wait_until(lines) == ["from a container"]
            async with browser.stream(f"view=job&id={namespace}/tfjobs/mine") as events:
                assert (await anext(events)).data["row"]["state"] == "Running"
                ((name, pod),) = pods_of(cluster, namespace, "mine").items()
                cluster.kubectl("delete", "pod", name, "--namespace", namespace, "--wait=false")
                async for event in events:
                    if any(one["uid"] != pod["metadata"]["uid"] for one in event.data.get("pods") or ()):
                        break  # the pod that replaces it
                else:
                    pytest.fail("the page does not follow")
    sent = [
        event["user"].get("username", "")
        for event in read_events(cluster.layout.audit_log)
        if str(event.get("userAgent", "")).startswith("gangline-dashboard/")
        and datetime.fromisoformat(event["requestReceivedTimestamp"]) >= began
    ]
    # Who made up a token has none.
    assert set(sent) <= {f"system:serviceaccount:{namespace}:viewer", ""}
    assert len(sent) > 10

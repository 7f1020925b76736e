"""Notifications of a real plane to a real receiver, as a person sets them up; also over a crash."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from gangline.notify.plan.signature import signature_headers, signing_keys
from support.cluster.clients import DetachedPlane, run_gangline
from support.servers.receiver import ReceivedRequest, WebhookReceiver, webhook_receiver
from support.waiting import wait_until_blocking

KEY = f"whsec_{base64.b64encode(b'0123456789abcdef0123456789abcdef').decode()}"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as running:
        yield running


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[DetachedPlane]:
    found = DetachedPlane(tmp_path / "plane")
    yield found
    found.down()


def submit(plane: DetachedPlane, name: str, script: str) -> None:
    container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
    master = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default", "labels": {"team": "vision"}},
        "spec": {"pytorchReplicaSpecs": {"Master": master}},
    }
    file = plane.folder.parent / f"{name}.yaml"
    file.write_text(yaml.safe_dump(job))
    done = run_gangline("apply", "-f", file, "--kubeconfig", plane.kubeconfig)
    assert done.returncode == 0, done.stderr


def test_routes_of_a_file_signed_and_filtered(plane: DetachedPlane, receiver: WebhookReceiver, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    routes = [
        {"name": "all", "url": f"{receiver.url}/all", "signingKeyFile": str(tmp_path / "key")},
        {"name": "failures", "url": f"{receiver.url}/failures", "states": ["failed"], "labels": "team=vision"},
        {"name": "others", "url": f"{receiver.url}/others", "namespaces": ["elsewhere"]},
        {"name": "dead", "url": "http://127.0.0.1:1/"},
        {"name": "file", "command": ["sh", "-c", f"cat >> {tmp_path}/got"]},
    ]
    (tmp_path / "routes.yaml").write_text(yaml.safe_dump({"routes": routes}))
    plane.up("--notify", tmp_path / "routes.yaml")
    submit(plane, "good", "true")
    submit(plane, "bad", "echo what is wrong; exit 3")
    receiver.wait_for("good succeeded", path="/all")
    receiver.wait_for("bad failed", path="/failures")
    receiver.wait_for("bad failed", path="/all")
    for name, end in (("good", "succeeded"), ("bad", "failed")):
        of_job = [label for label in receiver.labels("/all") if label.startswith(f"{name} ")]
        assert of_job[0] == f"{name} created"
        assert of_job[-1] == f"{name} {end}"
    assert receiver.labels("/failures") == ["bad failed"]
    assert receiver.labels("/others") == []
    failed = next(request for request in receiver.requests if request.path == "/failures").json
    assert failed["cause"] == "master-0 exit 3"
    assert failed["log"] == ["what is wrong"]
    assert failed["why"] == "gangline why bad -n default"
    for request in (request for request in receiver.requests if request.path == "/all"):
        timestamp = int(request.headers["webhook-timestamp"])
        expected = signature_headers(signing_keys(KEY, "key"), request.id, timestamp, request.body)
        assert request.headers["webhook-signature"] == expected["webhook-signature"]
    wait_until_blocking(lambda: (tmp_path / "got").read_text().count('"state":"failed"') == 1)
    assert KEY not in (plane.folder / "log").read_text()


@pytest.mark.faults
def test_jobs_from_before_are_not_reported_and_nothing_is_repeated_after_a_restart(
    plane: DetachedPlane, receiver: WebhookReceiver
) -> None:
    plane.up()
    submit(plane, "old", "true")
    done = run_gangline("wait", "old", "--kubeconfig", plane.kubeconfig)
    assert done.returncode == 0, done.stderr
    plane.down()
    plane.up("--notify", f"{receiver.url}/")
    submit(plane, "fresh", "true")
    receiver.wait_for("fresh succeeded")
    plane.down()
    plane.up("--notify", f"{receiver.url}/")
    submit(plane, "last", "true")
    receiver.wait_for("last succeeded")
    assert [label for label in receiver.labels() if label.startswith("old")] == []
    assert set(Counter(request.id for request in receiver.requests).values()) == {1}


@pytest.mark.faults
def test_a_crash_between_delivery_and_remembering_repeats_that_notification_and_loses_none(
    plane: DetachedPlane, receiver: WebhookReceiver
) -> None:
    def kill_at_first_run(request: ReceivedRequest) -> None:
        if request.label == "job running" and receiver.labels().count("job running") == 1:
            process = psutil.Process(plane.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.wait(60)

    plane.up("--notify", f"{receiver.url}/")
    receiver.before_answer = kill_at_first_run
    submit(plane, "job", f"until test -e {plane.folder.parent}/go; do sleep 0.05; done; exit 3")
    receiver.wait_for("job running")
    wait_until_blocking(lambda: run_gangline("get", "jobs", "--kubeconfig", plane.kubeconfig).returncode != 0)
    plane.up("--notify", f"{receiver.url}/")
    receiver.wait_for("job running", count=2)
    (plane.folder.parent / "go").touch()
    receiver.wait_for("job failed")
    counts = Counter(request.id for request in receiver.requests)
    assert max(counts.values()) == 2
    firsts = list(dict.fromkeys(receiver.labels()))
    assert firsts == ["job created", "job running", "job failed"]
    plane.down()
    received = len(receiver.requests)
    plane.up("--notify", f"{receiver.url}/")
    submit(plane, "next", "true")
    receiver.wait_for("next succeeded")
    assert not [label for label in receiver.labels()[received:] if label.startswith("job ")]


def test_a_run_delivers_its_last_state_before_it_ends(receiver: WebhookReceiver, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gangline", "run", "--nproc", "1"]
    command += ["--notify", f"{receiver.url}/", "--notify", "command:cat >> got", "--", "sh", "-c", "exit 3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=90)
    assert done.returncode == 100, done.stderr
    assert receiver.labels()[-1] == "sh failed"
    lines = [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]
    # Each at least once, and in order.
    states = [label.split()[1] for label in receiver.labels()]
    assert list(dict.fromkeys(line["state"] for line in lines)) == list(dict.fromkeys(states))


def test_a_run_with_a_dead_receiver_ends_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gangline", "run", "--nproc", "1", "--notify", "http://127.0.0.1:1/hidden"]
    done = subprocess.run([*command, "--", "true"], capture_output=True, text=True, cwd=tmp_path, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "not delivered (notify-1): no connection: Connection refused" in done.stdout + done.stderr
    assert "hidden" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("receiver_option", "message"),
    [
        ("nowhere.yaml", "error: --notify nowhere.yaml: no such file; write a URL"),
        ("https://me:hunter2@h/", "error: --notify: has a password in its URL"),
        ("command:", "error: --notify: command: has no command"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(receiver_option: str, message: str, tmp_path: Path) -> None:
    for command in (
        ("run", "--nproc", "1", "--notify", receiver_option, "--", "true"),
        ("up", "--notify", receiver_option),
    ):
        done = run_gangline(*command, *(("--dir", tmp_path / "plane") if command[0] == "up" else ()))
        assert done.returncode == 1
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1
        assert "hunter2" not in done.stderr
    assert not (tmp_path / "plane").exists()


def test_notify_is_for_this_machine() -> None:
    done = run_gangline("run", "--context", "prod", "--notify", "https://h/", "--nproc", "1", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith("error: --notify: is about a run on this machine")

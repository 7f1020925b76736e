"""Programs that report progress by HTTP, as transformers does, in runs and on a plane, with no code of ours."""

import asyncio
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import TFJOB, TFJob
from gangline.api.kubeflow.training import JOB_NAME
from gangline.api.meta import Selector
from gangline.base.certificates.serving import tls_from_folder
from gangline.base.certificates.x509_pem import issue, issue_ca
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.tasks import background_tasks
from gangline.jobs.pods.progress_reporting import ProgressEndpoint
from gangline.kube.pods import PodSubresources
from gangline.local.cluster import LocalSettings
from gangline.node.options import check_network
from gangline.operator.assembly import embedded_plane
from gangline.operator.progress.endpoint import listening_socket, progress_endpoint
from gangline.operator.progress.log_reader import ProgressLogFollower, ProgressLogReader
from gangline.operator.progress.reporters import Reporter
from gangline.operator.progress.writer import ProgressWriter
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.progress.line import Progress
from gangline.runtime.health import BindAddress
from gangline.runtime.informer import Informer
from support.waiting import wait_until, wait_until_blocking

ROOT = Path(__file__).parents[2]
# What transformers.integrations.KubeflowCallback sends, and how: urllib, synchronous, the token read from its file.
CLIENT = """
import json, os, ssl, sys, time, urllib.request

def post(status):
    url, path = os.environ["KUBEFLOW_TRAINER_SERVER_URL"], os.environ["KUBEFLOW_TRAINER_SERVER_TOKEN"]
    authority = os.environ.get("KUBEFLOW_TRAINER_SERVER_CA_CERT")
    token = open(path).read().strip()
    data = json.dumps({"trainerStatus": {"lastUpdatedTime": "2026-11-18T04:00:00.095543+00:00", **status}}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    context = ssl.create_default_context(cafile=authority) if authority else None
    with urllib.request.urlopen(request, timeout=5, context=context) as response:
        assert response.status == 200, response.status

def metrics(**values):
    return [{"name": name, "value": str(value)} for name, value in values.items()]

post({"progressPercentage": 0, "metrics": metrics(total_steps=20)})
between = metrics(loss=0.5, learning_rate=2.5e-05, epoch=0.5, current_step=10, total_steps=20, current_epoch=0.5)
post({"progressPercentage": 50, "estimatedRemainingSeconds": 30, "metrics": between})
"""
END = """
post({"progressPercentage": 100, "estimatedRemainingSeconds": 0, "metrics": metrics(loss=0.25, train_loss=0.375)})
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "GANGLINE_HOME": str(tmp_path / "home")}


def gangline(*words: str, cwd: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=150)


def test_a_run_shows_what_its_program_reports_and_the_job_keeps_it(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(CLIENT + END)
    done = gangline("run", "--nproc", "1", "--", sys.executable, "train.py", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"master-0 +step 0/20  0 %", done.stdout)
    # Whether or not the report between is written depends on time; the last one is.
    assert re.search(r"master-0 +step 20/20  100 %  loss 0\.25  train_loss 0\.375", done.stdout)
    told = gangline("get", "pytorchjobs", "train", "-o", "json", cwd=tmp_path, env=environment)
    status = json.loads(told.stdout)["status"]
    assert {name: status["progress"][name] for name in ("step", "total", "metrics", "replica")} == {
        "step": 20,
        "total": 20,
        "metrics": {"loss": 0.25, "train_loss": 0.375},
        "replica": "master-0",
    }


def test_pods_with_a_network_of_their_own_report_too(tmp_path: Path, environment: dict[str, str]) -> None:
    try:
        check_network()
    except InputError as error:
        pytest.skip(str(error))
    (tmp_path / "train.py").write_text(CLIENT + END)
    words = ("run", "--nproc", "1", "--network", "isolated", "-o", "json", "--", sys.executable, "train.py")
    done = gangline(*words, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["progress"]["metrics"] == {"loss": 0.25, "train_loss": 0.375}


async def test_by_tls_the_authority_reaches_the_program_in_a_file(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = issue_ca(now)
    issued = issue(authority, "operator", now, hosts=("localhost", "127.0.0.1"))
    (tmp_path / "tls.crt").write_text(issued.certificate)
    (tmp_path / "tls.key").write_text(issued.key)
    (tmp_path / "train.py").write_text(CLIENT + END)
    listener = listening_socket(BindAddress("127.0.0.1", 0))
    url = f"https://localhost:{listener.getsockname()[1]}"
    site = msgspec.structs.replace(
        LOCAL_SETTINGS.site, progress=ProgressEndpoint(url, authority.certificate, every_job=True)
    )
    operator = msgspec.structs.replace(LOCAL_SETTINGS, site=site, receives_progress=False)
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "logs")
    clock = SystemClock()
    async with embedded_plane(settings, clock, operator) as plane:
        writer, tls = ProgressWriter(plane.client, clock), tls_from_folder(tmp_path, "--progress-cert-path")
        async with (
            asyncio.timeout(60),
            writer.running(),
            progress_endpoint(plane.client, [TFJOB], writer, listener, clock, tls=tls),
        ):
            container = {"name": "tensorflow", "image": "none", "command": [sys.executable, "train.py"]}
            worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
            body = {"metadata": {"name": "bert"}, "spec": {"tfReplicaSpecs": {"Worker": worker}}}
            made = await plane.client.create(TFJob, body, namespace="default")

            async def finished() -> TFJob | None:
                job = await plane.client.get(TFJob, made.metadata.key)
                return job if job.status.finished else None

            job = await wait_until(finished)
    assert job.status.progress is not None
    assert job.status.progress.metrics == {"loss": 0.25, "train_loss": 0.375}


async def test_the_log_reader_follows_real_logs(tmp_path: Path) -> None:
    settings, clock = LocalSettings(folder=tmp_path, logs=tmp_path / "logs"), SystemClock()
    reports: list[tuple[float, bool]] = []

    class RecordingWriter:
        async def put(self, reporter: Reporter, progress: Progress, *, is_last: bool = False) -> None:
            # The other worker is followed, too, if it was the first one that ran.
            if reporter.pod.name == "bert-worker-0":
                reports.append((progress.step, is_last))

    program = """
import os, time
print('{"progress": {"step": 1, "total": 3}}', flush=True)
while not os.path.exists("go"): time.sleep(0.05)
print("other output")
print('{"progress": {"step": 3, "total": 3}}')
"""
    writer: Any = RecordingWriter()
    async with embedded_plane(settings, clock, LOCAL_SETTINGS) as plane, asyncio.timeout(60):
        pods = Informer(plane.client, Pod, Selector(labels=JOB_NAME), clock=clock)
        follower = ProgressLogFollower(PodSubresources(plane.client), writer, [TFJOB], clock)
        reader = ProgressLogReader(pods, follower, 5)
        async with background_tasks(pods.run(), reader.run()):
            container = {"name": "tensorflow", "image": "none", "command": [sys.executable, "-c", program]}
            worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
            body = {"metadata": {"name": "bert"}, "spec": {"tfReplicaSpecs": {"Worker": worker}}}
            await plane.client.create(TFJob, body, namespace="default")
            await wait_until(lambda: reports == [(1, False)])
            (tmp_path / "go").touch()
            # To its end.
            await wait_until(lambda: reports == [(1, False), (3, True)])


def test_only_who_reports_first_in_rank_counts(tmp_path: Path, environment: dict[str, str]) -> None:
    # Every replica may report; the status has what the master says.
    program = CLIENT + 'post({"progressPercentage": 100, "metrics": metrics(rank=os.environ["RANK"])})'
    (tmp_path / "train.py").write_text(program)
    words = ("run", "--nproc", "2", "-o", "json", "--", sys.executable, "train.py")
    done = gangline(*words, cwd=tmp_path, env=environment)
    progress = json.loads(done.stdout)["status"]["progress"]
    assert (progress["replica"], progress["metrics"]) == ("master-0", {"rank": 0})


def test_off_means_that_programs_are_told_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    program = 'import os, sys; sys.exit(any("KUBEFLOW_TRAINER" in name for name in os.environ))'
    command = ("--nproc", "1", "--", sys.executable, "-c", program)
    assert gangline("run", "--no-progress-endpoint", *command, cwd=tmp_path, env=environment).returncode == 0
    assert gangline("run", *command, cwd=tmp_path, env=environment).returncode == 100


def test_the_example_of_the_docs_reports(tmp_path: Path, environment: dict[str, str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "progress.md").read_text(), re.DOTALL)
    (example,) = [block for block in blocks if "def report_by_http" in block]
    (tmp_path / "train.py").write_text(f"{example}\nreport_by_http(40, 12)\nreport_by_http(100, loss=0.5)\n")
    words = ("run", "--nproc", "1", "-o", "json", "--", sys.executable, "train.py")
    done = gangline(*words, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    progress = json.loads(done.stdout)["status"]["progress"]
    assert (progress["step"], progress["total"], progress["metrics"]) == (100, 100, {"loss": 0.5})


def test_on_a_plane_get_and_describe_show_progress_and_the_time_that_is_left(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    # It waits until the test has seen the report between.
    (tmp_path / "train.py").write_text(CLIENT + 'while not os.path.exists("go"): time.sleep(0.05)\n' + END)
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "bert"},
        "spec": {
            "tfReplicaSpecs": {
                "Worker": {
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "tensorflow", "image": "none", "command": [sys.executable, "train.py"]}
                            ]
                        }
                    }
                }
            }
        },
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert gangline("up", "--detach", cwd=tmp_path, env=environment).returncode == 0
    try:
        assert gangline("submit", "job.json", cwd=tmp_path, env=environment).returncode == 0

        def row() -> str:
            return gangline("get", "jobs", "-o", "wide", cwd=tmp_path, env=environment).stdout

        wait_until_blocking(lambda: "step 10/20" in row(), "the report does not arrive")
        assert re.search(r"step 10/20 loss=0\.5 .*eta=30s", row())
        described = gangline("describe", "bert", cwd=tmp_path, env=environment).stdout
        assert re.search(r"Progress: +step 10/20 loss=0\.5 .*eta=30s \(50 %\), worker-0", described)
        (tmp_path / "go").touch()
        wait_until_blocking(lambda: "Succeeded" in row(), "the job does not end")
        assert re.search(r"step 20/20 loss=0\.25 train_loss=0\.375\n", row())
    finally:
        assert gangline("down", cwd=tmp_path, env=environment).returncode == 0

"""What the operator and the scheduler really serve, read by promtool, and single jobs, read by kube-state-metrics."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import MPIJOB, TRAINING_KINDS
from support.cluster.operator_process import (
    APIS,
    bring_job_to,
    create_object,
    get_page,
    job_pods,
    running_operator,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.cluster.promtool import KNOWN_COMPLAINTS, metric_complaints
from support.requirements import skip_or_fail
from support.servers.real import HOST, LoggedProcess, RealServer, cache_dir, find_assets, free_ports
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("monitoring")]

STATE_FILE = Path(__file__).parents[2] / "src" / "gangline" / "install" / "monitoring" / "kube-state-metrics.yaml"
STATE_METRICS = "kube-state-metrics-2.15.0"  # as in hack/kube-state-metrics.sh
TFJOB = TRAINING_KINDS[0]
SERIES = re.compile(r"^(kube_trainingjob_\w+)\{(.*)\} (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("server")) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        yield running


def test_promtool_has_no_complaint_about_what_the_operator_serves(server: RealServer, tmp_path: Path) -> None:
    create_object(server, "/api/v1/namespaces", {"metadata": {"name": "served"}})
    with running_operator(server, tmp_path, "--namespace=served", "--leader-elect") as operator:
        submit_job(server, "served", TFJOB, "job")
        # Of a kind with two APIs.
        submit_job(server, "served", MPIJOB, "ranks")
        # Else the job runs with the first of them.
        wait_until_blocking(lambda: len(job_pods(server, "served", "job")) == 2, "not all pods are created")
        bring_job_to(server, "served", TFJOB, "job", "Running")
        operator.counts("gangline_jobs", 1, state="Running", job_namespace="served")
        operator.counts("gangline_jobs", 1, framework="mpi")
        operator.counts("gangline_job_pods_created_seconds_count", 1)
        bring_job_to(server, "served", TFJOB, "job", "Succeeded")
        operator.counts("gangline_jobs", 1, state="Succeeded", framework="tensorflow")
        text = get_page(operator.metrics, "/metrics")[1]
        assert "gangline_job_replica_seconds_total" in text
        lines = [line for line in operator.lines() if line["logger"].startswith("gangline.jobs.")]
        fields = {"ts", "level", "msg", "controller", "namespace", "name", "reconcileID"}
        assert lines
        assert [line for line in lines if not fields <= line.keys()] == []
        assert metric_complaints(text) == set()


def test_promtool_has_no_new_complaint_about_what_the_scheduler_serves(server: RealServer, tmp_path: Path) -> None:
    metrics, probes = free_ports(2)
    command = [sys.executable, "-m", "gangline", "scheduler", "--kubeconfig", str(server.kubeconfig), "--install-crds"]
    command += [f"--metrics-bind-address={HOST}:{metrics}", f"--health-probe-bind-address={HOST}:{probes}"]
    scheduler = LoggedProcess(command, tmp_path / "scheduler.log")
    try:
        scheduler.wait_until(lambda: get_page(probes, "/readyz")[0] == 200)
        text = get_page(metrics, "/metrics")[1]
    finally:
        scheduler.kill()
    assert 'gangline_build_info{component="scheduler"' in text
    assert metric_complaints(text) <= KNOWN_COMPLAINTS


# Single jobs


@contextmanager
def state_metrics(server: RealServer, folder: Path) -> Iterator[int]:
    """kube-state-metrics with our file; gives the port of its metrics."""
    program = cache_dir().parents[1] / STATE_METRICS
    if not program.is_file():
        skip_or_fail("kube-state-metrics not found: run hack/kube-state-metrics.sh")
    port, telemetry = free_ports(2)
    command = [str(program), "--kubeconfig", str(server.kubeconfig), "--custom-resource-state-only"]
    command += ["--custom-resource-state-config-file", str(STATE_FILE), "--host", HOST, "--port", str(port)]
    command += ["--telemetry-host", HOST, "--telemetry-port", str(telemetry)]
    running = LoggedProcess(command, folder / "kube-state-metrics.log")
    try:
        running.wait_until(lambda: get_page(port, "/metrics")[0] == 200)
        yield port
    finally:
        running.kill()


def series(port: int) -> dict[tuple[str, str], float]:
    """The series of single jobs: metric and labels but for those that are the same for all."""
    text = get_page(port, "/metrics")[1]
    return {
        (name, ",".join(label for label in labels.split(",") if "customresource_" not in label)): float(value)
        for name, labels, value in SERIES.findall(text)
    }


def test_kube_state_metrics_shows_every_job_with_state_replicas_restarts_and_progress(
    server: RealServer, tmp_path: Path
) -> None:
    create_object(server, "/api/v1/namespaces", {"metadata": {"name": "single"}})
    with running_operator(server, tmp_path, "--namespace=single"), state_metrics(server, tmp_path) as port:
        for kind in TRAINING_KINDS:
            submit_job(server, "single", kind, kind.plural)
        wait_until_blocking(lambda: len(job_pods(server, "single", "tfjobs")) == 2, "not all pods are created")
        for kind in TRAINING_KINDS:
            bring_job_to(server, "single", kind, kind.plural, "Running")
        # Where no operator takes it for outdated.
        submit_job(server, "default", TFJOB, "reports")
        report = {"status": {"progress": {"step": 7, "total": 10}}}
        path = f"{APIS}/namespaces/default/tfjobs/reports/status"
        assert server.call("PATCH", path, report, content_type="application/merge-patch+json").status == 200

        def expected() -> dict[tuple[str, str], float]:
            reports = 'job_name="reports",job_namespace="default"'
            found = {("kube_trainingjob_status_progress_step", reports): 7.0}
            found["kube_trainingjob_status_progress_total", reports] = 10.0
            workers = 'job_name="tfjobs",job_namespace="single",replica_type="Worker"'
            found["kube_trainingjob_status_replicas_active", workers] = 2.0
            for kind in TRAINING_KINDS:
                job = f'job_name="{kind.plural}",job_namespace="single"'
                found["kube_trainingjob_status_restarts", job] = 0.0
                found["kube_trainingjob_status_phase", f'{job},phase="Running"'] = 1.0
                found["kube_trainingjob_status_phase", f'{job},phase="Done"'] = 0.0
                reason = f'{job},reason="{kind.kind}Running",type="Running"'
                found["kube_trainingjob_status_condition", reason] = 1.0
            return found

        def missing() -> dict[tuple[str, str], float]:
            served = series(port)
            return {name: value for name, value in expected().items() if served.get(name) != value}

        wait_until_blocking(lambda: not missing(), "kube-state-metrics does not show all jobs")
        served = series(port)
        job = 'job_name="tfjobs",job_namespace="single"'
        assert served["kube_trainingjob_spec_replicas", f'{job},replica_type="Worker"'] == 2
        assert served["kube_trainingjob_created", job] > 1.7e9
        assert served["kube_trainingjob_status_start_time", job] > 1.7e9

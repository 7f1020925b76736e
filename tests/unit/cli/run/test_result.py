"""Suggested commands after a run."""

from pathlib import Path

import msgspec
import pytest

from gangline.api.codec.codec import decode
from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobStatus
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.output.text import Span
from gangline.cli.run.result import failure_hints, next_commands

SUCCEEDED = msgspec.convert({"conditions": [{"type": "Succeeded", "status": "True"}]}, JobStatus)


@pytest.fixture(autouse=True)
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path))


def outcome(name: str, namespace: str = "default", status: JobStatus | None = None) -> RunOutcome:
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"tfReplicaSpecs": {}}}
    job = decode(msgspec.json.encode(body), TRAINING_KINDS[0].model)
    return RunOutcome(msgspec.structs.replace(job, status=status or JobStatus()), 1.0)


def test_hints_are_for_failed_jobs_only() -> None:
    hints = failure_hints([outcome("bad"), outcome("good", status=SUCCEEDED), outcome("far", "team")])
    assert hints == [
        (Span("next: ", "bold"), Span("gangline why bad")),
        (Span("      ", "bold"), Span("gangline logs bad")),
        (Span("      ", "bold"), Span("gangline why far -n team")),
        (Span("      ", "bold"), Span("gangline logs far -n team")),
    ]


def test_with_a_kubeconfig_hints_select_the_context_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "x")
    assert next_commands("get", "why bad") == [
        "gangline get --context gangline",
        "gangline why bad --context gangline",
    ]

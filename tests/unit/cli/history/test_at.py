"""`gangline at` and `gangline get --history` on a history that was written before."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from gangline.api.meta import JSON
from gangline.cli.jobs.why import at_moment
from gangline.cli.main import run
from gangline.history.records import LogLine
from gangline.history.writer import HistoryWriter

START = 1_763_400_000.0  # 2025-11-17T17:20:00Z
JOB, POD = "/kubeflow.org/pytorchjobs/default/bert", "//pods/default/bert-worker-0"
PAST_JOB = "2025-11-17T17:20:30Z"


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


def job(*conditions: str) -> JSON:
    held = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2025-11-17T17:20:40Z"}
        for kind in conditions
    ]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "bert",
            "namespace": "default",
            "uid": "job-1",
            "creationTimestamp": "2025-11-17T17:20:10Z",
        },
        "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}},
        "status": {"conditions": held},
    }


def pod() -> JSON:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "bert", "uid": "job-1", "controller": True}
    labels = {"training.kubeflow.org/job-name": "bert", "training.kubeflow.org/replica-type": "worker"}
    labels["training.kubeflow.org/replica-index"] = "0"
    running = {"state": {"running": {"startedAt": "2025-11-17T17:20:12Z"}}, "containerID": "process://run-1"}
    status = {"name": "pytorch", "ready": True, "restartCount": 0, "image": "none", "imageID": "", **running}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "bert-worker-0",
            "namespace": "default",
            "uid": "pod-1",
            "labels": labels,
            "creationTimestamp": "2025-11-17T17:20:11Z",
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "one", "containers": [{"name": "pytorch", "image": "none"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


LOG = "2025-11-17T17:20:15.000000000Z step 1\n2025-11-17T17:20:39.000000000Z killed\n"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "state"))
    writer = HistoryWriter(tmp_path / "state" / "history", START, source="one")
    writer.record(START + 10, JOB, job("Created"))
    writer.record(START + 11, POD, pod())
    writer.record(START + 12, JOB, job("Created", "Running"))
    writer.record(START + 40, JOB, job("Created", "Failed"))
    writer.record_log(START + 40, POD, pod(), LogLine(0, 0, "pytorch", "process://run-1", 0, LOG))
    writer.record(START + 50, POD, None)
    writer.record(START + 50, JOB, None)
    writer.close(START + 60)

    def call(*words: str) -> Done:
        code = run(words)
        return Done(code, *capsys.readouterr())

    return call


def test_a_job_is_shown_as_it_was(command: Command) -> None:
    done = command("at", PAST_JOB, "get", "jobs", "--no-headers")
    assert done.out.split()[:3] == ["PyTorchJob", "bert", "Running"]
    assert done.out.split()[6] == "20s"  # its age, then
    assert (done.code, done.err) == (0, "")


def test_a_log_is_shown_as_far_as_it_was_printed(command: Command) -> None:
    assert command("at", PAST_JOB, "logs", "bert").out == "worker-0| step 1\n"
    assert command("at", "2025-11-17T17:20:45Z", "logs", "bert").out == "worker-0| step 1\nworker-0| killed\n"


def test_a_moment_without_a_record_shows_the_last_one_before(command: Command) -> None:
    done = command("at", "2025-11-18T00:00:00Z", "get", "jobs", "-o", "name")
    assert "nothing was recorded at 2025-11-18 00:00:00; this is the state at 2025-11-17 17:21:00" in done.err


def test_a_time_ago_is_no_option_and_options_of_the_command_stay_its_own(command: Command) -> None:
    done = command("at", "-2h", "get", "jobs", "-o", "name")
    assert "nothing was recorded" in done.err
    assert (
        command("at", PAST_JOB, "get", "jobs", "-o", "name", "--sort-by", "-1").out == "pytorchjob.kubeflow.org/bert\n"
    )
    assert command("at", "--history", "nowhere", "-2h", "get").err.startswith("error: nowhere: has no history")


def test_why_points_at_commands_of_the_same_moment() -> None:
    moment = datetime(2026, 11, 18, 14, 2, 3, 500_000, tzinfo=UTC)
    text = at_moment("read it: gangline logs bert; then gangline restart bert", moment)
    assert text == "read it: gangline at 2026-11-18T14:02:03.500Z logs bert; then gangline restart bert"
    assert at_moment("gangline get jobs", moment, "one") == "gangline at --server one 2026-11-18T14:02:03.500Z get jobs"


def test_nothing_can_be_changed(command: Command) -> None:
    done = command("at", PAST_JOB, "delete", "bert")
    assert done.code == 1
    assert done.err.startswith("error: delete: cannot show the past; write one of get, list, ps, describe, why, logs")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "error: which time? write one of 14:02, yesterday 14:02, -15m, 2026-11-18T14:02:03Z"),
        (("soon", "get"), "error: soon: is no time; write one of 14:02"),
        ((PAST_JOB,), "error: which command? write one of get"),
        (("2025-11-17T17:00:00Z", "get"), "is before the record began; it begins at 2025-11-17 17:20:00"),
        (("--history", "nowhere", "-5m", "get"), "nowhere: has no history; gangline up and gangline run record one"),
        (("--serve", PAST_JOB, "get"), "error: --serve: takes no command, but there is get; leave out one of them"),
    ],
)
def test_mistakes_get_one_clear_line(command: Command, words: tuple[str, ...], error: str) -> None:
    done = command("at", *words)
    assert done.code == 1
    assert error in done.err
    assert done.err.count("\n") == 1


def test_all_recorded_jobs_are_listed(command: Command) -> None:
    done = command("get", "jobs", "--history")
    header, row = done.out.splitlines()
    assert header.split() == ["KIND", "NAME", "STATE", "CREATED", "DURATION", "DELETED"]
    assert row.split() == ["PyTorchJob", "bert", "Failed", "2025-11-17", "17:20:10", "30s", "2025-11-17", "17:20:50"]
    assert command("get", "pytorchjob/bert", "--history", "--no-headers").out.split()[1] == "bert"
    assert command("get", "--history", "-A", "--no-headers").out.split()[:3] == ["default", "PyTorchJob", "bert"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("pods",), "--history: lists jobs, not pods; of a moment: gangline at TIME get pods"),
        (("jobs", "-w"), "--history: cannot be combined with --watch, --selector, --field-selector or --sort-by"),
        (
            ("jobs", "-o", "yaml"),
            "--history: prints a table; for one job in full: gangline at TIME get KIND/NAME -o yaml",
        ),
        (("job/other",), "No jobs are recorded in namespace default"),
    ],
)
def test_what_the_list_cannot_do_it_says(command: Command, words: tuple[str, ...], error: str) -> None:
    done = command("get", *words, "--history")
    assert done.code == 1
    assert error in done.err


def other_server(state: Path, source: str = "two-0123456789", name: str = "bert") -> None:
    """A second server, which ran at the same time."""
    body = job("Created", "Succeeded")
    body["metadata"] |= {"uid": "job-of-two", "name": name}
    writer = HistoryWriter(state / "history", START, source=source)
    writer.record(START + 10, f"/kubeflow.org/pytorchjobs/default/{name}", body)
    writer.close(START + 60)


def test_jobs_of_one_name_on_two_servers_are_kept_apart(command: Command, tmp_path: Path) -> None:
    other_server(tmp_path / "state")
    for words in (("get", "jobs"), ("why", "bert"), ("logs", "bert")):
        done = command("at", PAST_JOB, *words)
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            "error: 17:20:30: 2 servers had pytorchjobs default/bert; add --server one (recorded from 17:20:00)"
            " or --server two-0123 (recorded from 17:20:00)\n"
        )
    assert command("at", "--server", "one", PAST_JOB, "get", "jobs", "--no-headers").out.split()[2] == "Running"
    assert command("at", "--server", "two", PAST_JOB, "get", "jobs", "--no-headers").out.split()[2] == "Succeeded"
    assert command("at", "--server", "one", PAST_JOB, "logs", "bert").out == "worker-0| step 1\n"


def test_jobs_of_other_names_on_two_servers_are_shown_together(command: Command, tmp_path: Path) -> None:
    other_server(tmp_path / "state", name="vit")
    names = command("at", PAST_JOB, "get", "jobs", "-o", "name").out.split()
    assert sorted(names) == ["pytorchjob.kubeflow.org/bert", "pytorchjob.kubeflow.org/vit"]


def test_a_server_that_is_none_or_several_is_refused(command: Command, tmp_path: Path) -> None:
    other_server(tmp_path / "state", "one-more-server", "vit")
    other_server(tmp_path / "state", "one-more-second", "gpt")
    unknown = command("at", "--server", "three", PAST_JOB, "get", "jobs")
    assert unknown.code == 1
    assert unknown.err.startswith("error: --server three: is no server of this history; write one of ")
    assert "one-more-ser" in unknown.err
    assert "one-more-sec" in unknown.err
    several = command("at", "--server", "one-", PAST_JOB, "get", "jobs")
    assert several.err.startswith("error: --server one-: is the beginning of several servers; write one of ")
    assert command("at", "--server", "one", PAST_JOB, "get", "jobs", "-o", "name").out.endswith("/bert\n")

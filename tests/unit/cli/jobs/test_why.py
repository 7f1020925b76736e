"""The commands that `gangline why` suggests."""

from pathlib import Path

import msgspec
import pytest

from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.jobs.why import report_json, report_text, with_server_flags
from gangline.kube.config.connection import Connection
from gangline.why.diagnosis.report import Cause, Diagnosis

NEXT = (
    "look: kubectl describe queues.scheduling.gangline.dev",
    "after the change: gangline restart bert --replica worker/3",
    "is its node alive? kubectl describe pod bert-worker-3 -n team-a",
    "delete it: kubectl delete pod bert-worker-3",
    "gangline crds | kubectl apply -f -",
)
REPORT = Diagnosis(
    "PyTorchJob",
    "default",
    "bert",
    "Created",
    "PyTorchJob default/bert is Created.",
    healthy=False,
    next=NEXT,
    causes=(Cause("gang-waits-its-turn", "It waits.", next=NEXT),),
    notes=("Let it run: gangline resume bert",),
)


def server_target(source: str = "", local: Path | None = None, archive: Path | None = None) -> ServerTarget:
    return ServerTarget(
        Connection(server="https://127.0.0.1:1", source=source), "default", plane_folder=local, archive=archive
    )


def test_on_this_machine_gangline_does_what_it_can_and_kubectl_gets_the_planes_kubeconfig() -> None:
    local_target = server_target("/state of/kubeconfig", local=Path("/state of"))
    report = with_server_flags(REPORT, ServerOptions(), local_target)
    assert report.next == (
        "look: gangline get queues.scheduling.gangline.dev -o yaml",
        "after the change: gangline restart bert --replica worker/3",
        "is its node alive? gangline get pod bert-worker-3 -n team-a -o yaml",
        "delete it: gangline delete pod bert-worker-3",
        "gangline crds | kubectl --kubeconfig '/state of/kubeconfig' apply -f -",
    )
    assert report.causes[0].next == report.next


def test_a_context_of_the_command_line_is_added_to_the_commands() -> None:
    report = with_server_flags(REPORT, ServerOptions(context="prod"), server_target("/home/me/.kube/config"))
    assert report.next == (
        "look: kubectl --context prod describe queues.scheduling.gangline.dev",
        "after the change: gangline restart --context prod bert --replica worker/3",
        "is its node alive? kubectl --context prod describe pod bert-worker-3 -n team-a",
        "delete it: kubectl --context prod delete pod bert-worker-3",
        "gangline crds | kubectl --context prod apply -f -",
    )
    assert report.notes == ("Let it run: gangline resume --context prod bert",)


def test_nothing_is_added_if_both_find_the_server_themselves() -> None:
    assert with_server_flags(REPORT, ServerOptions(), server_target("/home/me/.kube/config")) == REPORT


def test_kubectl_commands_are_left_out_for_an_archive() -> None:
    steps = (
        "ask for fewer replicas",
        "kubectl describe podgroups.scheduling.gangline.dev bert",
        "is its node alive? kubectl describe node gpu-7",
    )
    report = msgspec.structs.replace(REPORT, next=steps, causes=(), notes=())
    report = with_server_flags(report, ServerOptions(context="gangline"), server_target(archive=Path("/state")))
    assert report.next == ("ask for fewer replicas",)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_run_is_repeated_in_its_own_folder(is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my models"
    folder.mkdir()
    monkeypatch.chdir(folder if is_there else tmp_path)
    step = f"run it again after the change: cd '{folder}' && gangline run job.yaml"
    report = msgspec.structs.replace(REPORT, next=(step,), causes=(), notes=())
    report = with_server_flags(report, ServerOptions(), server_target(archive=Path("/state")))
    assert report.next == ("run it again after the change: gangline run job.yaml" if is_there else step,)


def test_a_relative_gangline_is_found_from_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my models" / ".venv" / "bin" / "gangline"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path / "my models")
    monkeypatch.setattr("sys.argv", [".venv/bin/gangline"])
    monkeypatch.setenv("PATH", "/nowhere")
    step = "run it again after the change: cd /elsewhere && gangline run job.yaml"
    report = msgspec.structs.replace(REPORT, next=(step,), causes=(), notes=())
    report = with_server_flags(report, ServerOptions(), server_target(archive=Path("/state")))
    here = f"'{tmp_path}/my models'"
    assert report.next == (f"run it again after the change: cd /elsewhere && {here}/.venv/bin/gangline run job.yaml",)


def test_the_rest_of_a_report_is_unchanged() -> None:
    report = with_server_flags(REPORT, ServerOptions(context="prod"), server_target())
    assert msgspec.structs.replace(report, next=(), causes=(), notes=()) == msgspec.structs.replace(
        REPORT, next=(), causes=(), notes=()
    )


def test_a_command_is_never_broken_in_two() -> None:
    steps = (
        "gangline restart bert --replica worker/3 --context a-cluster-with-a-long-name",
        "raise the limit of memory, and after the change restart: gangline restart bert --context a-cluster-with-a-name",
        "raise the limit of memory of this replica type, or lower the size of a batch",
    )
    cause = Cause("x", "It waits.", next=steps)
    lines = report_text(msgspec.structs.replace(REPORT, causes=(cause,)), 60).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Next"))
    assert lines[start : start + 6] == [
        f"Next      {steps[0]}",
        "          raise the limit of memory, and after the change",
        "          restart:",
        "          gangline restart bert --context a-cluster-with-a-name",
        "          raise the limit of memory of this replica type, or",
        "          lower the size of a batch",
    ]


def test_commands_in_the_text_are_those_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.base.invocation.own_command", lambda: ".venv/bin/gangline")
    text = report_text(REPORT)
    assert ".venv/bin/gangline restart bert --replica worker/3" in text
    assert "Let it run: .venv/bin/gangline resume bert" in text
    assert " gangline " not in text
    assert "gangline restart bert --replica worker/3" in report_json(REPORT)
    assert ".venv" not in report_json(REPORT)


def test_the_page_about_a_cause_is_a_link_where_the_site_is_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    report = msgspec.structs.replace(REPORT, causes=(Cause("oom-killed", "It was killed."),))
    monkeypatch.delenv("GANGLINE_DOCS_URL", raising=False)
    assert "More      docs/why/oom-killed.md\n" in report_text(report)
    monkeypatch.setenv("GANGLINE_DOCS_URL", "https://docs.example.org/gangline/")
    assert "More      https://docs.example.org/gangline/why/oom-killed.html\n" in report_text(report)

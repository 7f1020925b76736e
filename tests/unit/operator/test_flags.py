"""`gangline operator` understands the flags of the operator it replaces, and complains in one line."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB, TRAINING_KINDS
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.main import run
from gangline.jobs.plan.actions import PODS, Create
from gangline.jobs.pods.progress_reporting import ProgressEndpoint
from gangline.jobs.site import ServiceMode, Site
from gangline.operator.engine import enabled_frameworks
from gangline.operator.flags import settings_from_flags
from gangline.operator.go_flags import log_level
from gangline.operator.main import IGNORED_FLAGS, operator
from gangline.operator.settings import (
    LOCAL_GANG_SETTINGS,
    LOCAL_SETTINGS,
    OperatorProcessSettings,
    OperatorSettings,
    ProgressSettings,
)
from gangline.testing.builders import make_job
from support.builders.observed_jobs import job_plan


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undo the logging set-up of the command, which is for the whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def flags(*arguments: str) -> dict[str, Any]:
    with operator.make_context("operator", list(arguments)) as context:
        return context.params


def settings(*arguments: str, **environ: str) -> OperatorProcessSettings:
    return settings_from_flags(flags(*arguments), environ)


def planned_pods(chosen: OperatorSettings) -> list[JSON]:
    """The pods of a PyTorchJob and of an MPIJob."""
    jobs = {"PyTorchJob": make_job(PYTORCHJOB, master=1, worker=1), "MPIJob": make_job(MPIJOB, launcher=1, worker=1)}
    return [
        create.body
        for framework in enabled_frameworks(chosen)
        if framework.facts.kind in jobs
        for stage in job_plan(framework, jobs[framework.facts.kind]).stages
        for create in stage
        if isinstance(create, Create) and create.resource == PODS
    ]


def test_without_flags_the_settings_are_the_defaults() -> None:
    assert settings() == OperatorProcessSettings()


def test_the_flags_of_the_kubeflow_operator_are_understood() -> None:
    parsed = settings(
        "--metrics-bind-address=:1",
        "--health-probe-bind-address=:2",
        "--leader-elect=true",
        "--leader-election-id=x",
        "--enable-scheme=TFJOB",
        "--enable-scheme=pytorchjob",
        "--namespace=team",
        "--controller-threads=10",
        "--pytorch-init-container-image=",
        "--pytorch-init-container-max-tries=7",
        "--mpi-kubectl-delivery-image=mine",
        "--webhook-server-port=9443",
        "--webhook-service-name=s",
        "--webhook-secret-name=s",
        "--zap-devel=true",
        "--zap-encoder=json",
        "--zap-log-level=debug",
        "--zap-stacktrace-level=error",
        "--zap-time-encoding=iso8601",
    )
    assert parsed == OperatorProcessSettings(
        operator=OperatorSettings(
            kinds=("TFJob", "PyTorchJob"),
            namespaces=("team",),
            workers=10,
            pytorch_init_image="",
            pytorch_init_tries=7,
            mpi_delivery_image="mine",
        ),
        metrics_address=":1",
        probe_address=":2",
        leader_elect=True,
        lease="x",
    )


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        (["mpijob.V2BETA1"], ["MPIJob.v2beta1"]),
        (["mpijob.v2beta1", "mpijob"], ["MPIJob", "MPIJob.v2beta1"]),
        (["all", "mpijob.v2beta1"], [*(kind.kind for kind in TRAINING_KINDS), "MPIJob.v2beta1"]),
        (["all"], [kind.kind for kind in TRAINING_KINDS]),
    ],
)
def test_the_second_api_of_mpijob_is_enabled_by_name(flags: list[str], kinds: list[str]) -> None:
    chosen = settings(*(f"--enable-scheme={flag}" for flag in flags)).operator
    assert list(chosen.kinds) == kinds
    assert sorted(framework.facts.scheme for framework in enabled_frameworks(chosen)) == sorted(kinds)


def test_an_operator_that_knows_its_own_image_pulls_no_other() -> None:
    chosen = settings("--agent-image=gangline:1").operator
    images = {
        container["image"] for body in planned_pods(chosen) for container in body["spec"].get("initContainers", [])
    }
    assert images == {"gangline:1"}


def test_an_operator_that_does_not_know_its_image_makes_exactly_the_pods_of_v1() -> None:
    chosen = settings().operator
    images = {
        container["image"] for body in planned_pods(chosen) for container in body["spec"].get("initContainers", [])
    }
    assert images == {"alpine:3.10", "kubeflow/kubectl-delivery:latest"}


def test_the_images_of_v1_are_used_where_they_are_asked_for() -> None:
    asked = ("--pytorch-init-container-image=alpine:3.10", "--mpi-kubectl-delivery-image=kubeflow/kubectl-delivery:1")
    chosen = settings("--agent-image=gangline:1", *asked).operator
    assert (chosen.pytorch_init_image, chosen.mpi_delivery_image) == ("alpine:3.10", "kubeflow/kubectl-delivery:1")
    assert chosen.agent_image == ""
    assert settings("--agent-image=gangline:1", "--mpi-kubectl-delivery-image=").operator.agent_image == ""


def test_the_agents_image_may_be_the_operators_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings().operator.mpi_delivery_image == "kubeflow/kubectl-delivery:latest"
    monkeypatch.setenv("GANGLINE_IMAGE", "gangline:2")
    assert settings().operator.agent_image == "gangline:2"
    assert settings("--agent-image=mine").operator.agent_image == "mine"


def test_launchers_may_have_an_account_of_the_administrator() -> None:
    assert settings("--mpi-launcher-service-account=mpi").operator.mpi_launcher_account == "mpi"


def test_what_comes_from_the_environment() -> None:
    parsed = settings("--services=per-job", CUSTOM_CLUSTER_DOMAIN="cluster.local", POD_NAME="operator-1")
    assert parsed.operator.site == Site(services=ServiceMode.PER_JOB, domain="cluster.local")
    assert parsed.pod == "operator-1"


def test_the_labels_of_earlier_operators_are_off_in_a_cluster_and_on_locally() -> None:
    assert not settings().operator.site.legacy_labels
    assert settings("--legacy-labels").operator.site.legacy_labels
    assert LOCAL_SETTINGS.site.legacy_labels
    assert LOCAL_GANG_SETTINGS.site.legacy_labels


def test_the_namespace_may_come_from_kubeflows_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team")
    assert settings().operator.namespaces == ("team",)
    assert settings("--namespace=other").operator.namespaces == ("other",)
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team,other")
    assert settings().operator.namespaces == ("team", "other")


def test_namespaces_are_a_list_with_commas_or_repeated_and_each_counts_once() -> None:
    assert settings().operator.namespaces == ()
    assert settings("--namespace=").operator.namespaces == ()
    assert settings("--namespace=a,b, c", "-namespace=b,d").operator.namespaces == ("a", "b", "c", "d")


@pytest.mark.parametrize("text", [",", "a,", "a,,b", "Team", "a b", "a/b", "x" * 64])
def test_a_list_with_a_hole_is_not_taken_for_all_namespaces(text: str) -> None:
    with pytest.raises(InputError, match="is not the name of a namespace; write one, or several with commas"):
        settings(f"--namespace={text}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--leader-elect"], True),
        (["--leader-elect=false"], False),
        (["-leader-elect"], True),
        (["-leader-elect=true", "-workers=2"], True),
        ([], False),
    ],
)
def test_switches_are_written_as_in_go(arguments: list[str], expected: bool) -> None:
    assert settings(*arguments).leader_elect is expected


def test_a_template_is_read_and_the_default_one_need_not_exist(tmp_path: Path) -> None:
    file = tmp_path / "init.yaml"
    file.write_text("- name: init\n")
    chosen = settings(f"--pytorch-init-container-template-file={file}")
    assert chosen.operator.pytorch_init_template == "- name: init\n"
    assert chosen.operator.pytorch_init_image == "alpine:3.10"
    assert (
        settings(
            f"--pytorch-init-container-template-file={file}", "--pytorch-init-container-image="
        ).operator.pytorch_init_image
        == ""
    )
    with pytest.raises(InputError, match=r"nowhere\.yaml: no such file"):
        settings("--pytorch-init-container-template-file=nowhere.yaml")


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--enable-scheme=FooJob", "scheme FooJob is not supported yet"),
        ("--nonsense", "No such option '--nonsense'"),
        ("--workers=0", "0 is not in the range"),
        ("--leader-elect=maybe", "'maybe' is not a valid boolean"),
        ("--services=none", "'none' is not one of"),
        ("--log-level=loud", '--log-level: is "loud"; write one of debug, info'),
        ("--kubeconfig=nowhere", "nowhere: no such file"),
        ("surplus", "unexpected extra argument (surplus)"),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_one(
    argument: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["operator", argument]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert complaint in line


def test_levels_are_zaps() -> None:
    assert [log_level(text) for text in ("debug", "INFO", "warn", "error", "panic", "0", "5")] == [
        "DEBUG",
        "INFO",
        "WARNING",
        "ERROR",
        "CRITICAL",
        "INFO",
        "DEBUG",
    ]


def test_flags_without_effect_are_not_shown() -> None:
    shown = {name for option in operator.params for name in option.opts if not getattr(option, "hidden", False)}
    assert not shown & set(IGNORED_FLAGS)


PROGRESS = ("--progress-bind-address", ":8082")


def test_progress_is_off_by_default_and_pods_are_told_by_the_url() -> None:
    assert settings().progress == ProgressSettings()
    assert settings().operator.site.progress is None
    # An operator that listens and tells nobody, for whoever tells their pods themselves.
    assert settings(*PROGRESS).operator.site.progress is None
    assert settings(*PROGRESS).progress.address == ":8082"
    told = settings(*PROGRESS, "--progress-url", "http://operator.ns.svc:8082/", "--progress-log-streams=7")
    assert told.operator.site.progress == ProgressEndpoint("http://operator.ns.svc:8082")
    assert told.progress.log_streams == 7
    every = settings(*PROGRESS, "--progress-url", "http://operator:8082", "--inject-progress")
    assert every.operator.site.progress == ProgressEndpoint("http://operator:8082", every_job=True)


def test_the_authority_of_the_endpoint_is_beside_its_certificate(tmp_path: Path) -> None:
    arguments = (*PROGRESS, "--progress-cert-path", str(tmp_path), "--progress-url", "https://operator:8082")
    assert settings(*arguments).operator.site.progress == ProgressEndpoint("https://operator:8082")
    (tmp_path / "ca.crt").write_text("PEM")
    assert settings(*arguments).operator.site.progress == ProgressEndpoint("https://operator:8082", "PEM")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--progress-bind-address", "here"), "--progress-bind-address: 'here' is not an address"),
        (
            ("--progress-url", "http://operator:8082"),
            "--progress-url: nobody listens there; add --progress-bind-address",
        ),
        ((*PROGRESS, "--progress-url", "operator:8082"), '--progress-url: is "operator:8082"; write http://HOST:PORT'),
        ((*PROGRESS, "--progress-url", "http://operator/path"), "--progress-url: is "),
        ((*PROGRESS, "--progress-url", "https://operator:8082"), "--progress-url: is "),
        (
            (*PROGRESS, "--progress-cert-path", "/nowhere", "--progress-url", "http://operator:8082"),
            '--progress-url: is "http://operator:8082"; write https://HOST:PORT',
        ),
        ((*PROGRESS, "--inject-progress"), "--inject-progress: pods must know where to report; add --progress-url"),
        (("--progress-cert-path", "/nowhere"), "--progress-cert-path: is for the endpoint for progress"),
    ],
)
def test_flags_of_progress_that_do_not_fit_are_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(InputError) as refused:
        settings(*arguments)
    assert str(refused.value).startswith(complaint)
    assert "\n" not in str(refused.value)


ROUTES = "routes:\n- name: a\n  url: https://example.org/hook\n"


def test_notifications_are_read_from_a_file_or_else_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(ROUTES.replace("name: a", "name: filed"))
    assert settings().notifications is None
    assert settings(GANGLINE_NOTIFICATIONS=" \n").notifications is None
    by_variable = settings(GANGLINE_NOTIFICATIONS=ROUTES).notifications
    by_file = settings("--notifications-file", str(file), GANGLINE_NOTIFICATIONS=ROUTES).notifications
    assert by_variable is not None
    assert by_file is not None
    assert (by_variable.routes[0].name, by_file.routes[0].name) == ("a", "filed")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "--notifications-file: FILE: No such file or directory"),
        (b"\xff", "--notifications-file: FILE: is not text"),
        (b"routes: []", "FILE:1: routes: has no route; write one, or leave the file out"),
        (b"routes:\n- name: a\n  command: [date]", "FILE:3: routes[0].command: is for gangline up and gangline run"),
    ],
)
def test_a_file_of_notifications_that_cannot_be_used(tmp_path: Path, text: bytes | None, complaint: str) -> None:
    file = tmp_path / "routes.yaml"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(InputError) as error:
        settings("--notifications-file", str(file))
    assert str(error.value).startswith(complaint.replace("FILE", str(file)))


def test_a_variable_of_notifications_that_cannot_be_used_is_named() -> None:
    with pytest.raises(InputError, match=r"^GANGLINE_NOTIFICATIONS:2: routes\[0\]: has no receiver"):
        settings(GANGLINE_NOTIFICATIONS="routes:\n- name: a\n")

"""How `gangline doctor` judges this machine."""

from typing import Any

import msgspec
import pytest

from gangline.cli.resources.machine import Amount
from gangline.cli.services.check_result import CheckResult, results_text
from gangline.cli.services.machine_checks import MachineFacts, machine_results, observe_machine, satisfies

GIB = 2**30
HEALTHY = MachineFacts(
    python="3.12.1",
    environment="/home/me/.venv",
    is_virtual=True,
    requirements={"click>=8.3,<9": "8.3.1"},
    frameworks={"torch": "2.9.0"},
    cpus=8,
    memory=Amount(4 * GIB, 16 * GIB),
    state_folder="/home/me/.local/state/gangline",
    is_state_writable=True,
    state_disk=Amount(10 * GIB, 100 * GIB),
    temporary_folder="/tmp",
    temporary_disk=Amount(10 * GIB, 100 * GIB),
    programs={"podman": "podman version 5.0", "kubectl": "Client Version: v1.34.0"},
    gpus=("H100", "H100"),
    open_files=4096,
    processes=None,
    shared_memory=Amount(0, 8 * GIB),
    contexts=("prod", "lab"),
    current_context="lab",
)


def results(**changes: Any) -> dict[str, CheckResult]:
    """The worst result of each check."""
    found: dict[str, CheckResult] = {}
    for result in machine_results(msgspec.structs.replace(HEALTHY, **changes)):
        if result.check not in found or result.result != "ok":
            found[result.check] = result
    return found


def test_on_a_healthy_machine_everything_is_in_place_and_nothing_is_to_do() -> None:
    found = results()
    assert {result.result for result in found.values()} == {"ok"}
    assert [result.remedy for result in found.values() if result.remedy] == []
    assert found["gpus"].found == "2 x H100"
    assert found["clusters"].found == "contexts: prod, lab (current)"
    assert found["machine"].found == "8 CPUs; 12.0 GiB of 16.0 GiB memory free"


@pytest.mark.parametrize(
    ("changes", "check", "verdict", "remedy"),
    [
        ({"requirements": {"click>=8.3,<9": "8.1"}}, "packages", "error", "pip install 'click>=8.3,<9'"),
        ({"requirements": {"click>=8.3,<9": ""}}, "packages", "error", "pip install 'click>=8.3,<9'"),
        ({"memory": Amount(16 * GIB, 16 * GIB)}, "machine", "warning", "gangline top"),
        ({"is_state_writable": False}, "disk", "error", "export GANGLINE_HOME="),
        ({"state_disk": Amount(0, GIB)}, "disk", "warning", "export GANGLINE_HOME="),
        ({"temporary_disk": Amount(0, 2**20)}, "disk", "error", "export TMPDIR="),
        ({"port_error": "Cannot assign requested address"}, "ports", "error", "ip link set lo up"),
        ({"open_files": 256}, "limits", "warning", "ulimit -n"),
        ({"processes": 100}, "limits", "warning", "ulimit -u"),
        ({"shared_memory": Amount(0, 64 * 2**20)}, "shared mem", "warning", "--shm-size"),
        ({"is_virtual": False}, "python", "ok", "python3 -m venv"),
        ({"frameworks": {}}, "frameworks", "ok", "pip install torch"),
    ],
)
def test_a_problem_has_a_verdict_and_what_to_type(
    changes: dict[str, Any], check: str, verdict: str, remedy: str
) -> None:
    found = results(**changes)
    assert found[check].result == verdict
    assert remedy in found[check].remedy
    assert {result.result for name, result in found.items() if name != check} == {"ok"}


def test_what_is_only_missing_is_no_problem() -> None:
    found = results(programs={}, gpus=(), contexts=(), shared_memory=None)
    assert "shared mem" not in found
    assert {result.result for result in found.values()} == {"ok"}


def test_an_engine_that_is_installed_and_does_not_answer_is_not_usable() -> None:
    found = results(programs={"docker": "Docker version 28"}, engine_error="docker: is the docker daemon running?")
    assert found["containers"].found.startswith("Docker version 28; not usable: docker: is the docker daemon running?")


def test_what_to_type_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/my envs/bin/python")
    assert "'/my envs/bin/python' -m pip install torch" in results(frameworks={})["frameworks"].remedy


def test_a_kubeconfig_that_cannot_be_read_is_reported_by_the_server_check_alone() -> None:
    assert "clusters" not in results(contexts=None)


@pytest.mark.parametrize(
    ("requirement", "version", "expected"),
    [
        ("click>=8.3,<9", "8.3", True),
        ("click>=8.3,<9", "8.3.0.post1", True),
        ("click>=8.3,<9", "9.0", False),
        ("pathspec>=1,<2", "1.0.4", True),
        ("x==1.2", "1.2.0", True),
        ("x", "0.1", True),
        ("x>=1", "", False),
    ],
)
def test_a_version_is_compared_number_by_number(requirement: str, version: str, expected: bool) -> None:
    assert satisfies(requirement, version) is expected


def test_this_machine_is_observed_and_has_what_gangline_needs() -> None:
    facts = observe_machine({"GANGLINE_HOME": "/nowhere/at/all"})
    assert facts.requirements
    assert all(satisfies(*item) for item in facts.requirements.items())
    assert (facts.cpus > 0, facts.memory.total > 0, facts.port_error) == (True, True, "")


def test_a_remedy_is_below_its_line() -> None:
    text = results_text([CheckResult("disk", "error", "full", "empty it"), CheckResult("x", "ok", "fine")])
    assert text == "error    disk  full\n               -> empty it\nok       x     fine\n"

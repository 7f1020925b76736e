"""`gangline scheduler`: its flags and its manifest."""

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.cli.services.scheduler import process_settings, scheduler
from gangline.operator.scheduler_process import SchedulerProcessSettings
from support.cluster.installation import installation


def settings(*words: str) -> SchedulerProcessSettings:
    with scheduler.make_context("scheduler", list(words)) as context:
        found: SchedulerProcessSettings = process_settings(context.params)
        return found


def test_by_default_it_binds_pins_rolls_back_and_elects_a_leader() -> None:
    assert settings() == SchedulerProcessSettings()


def test_every_flag_changes_a_setting() -> None:
    found = settings(
        "--scheduler-name=mine",
        "--namespace=a,b",
        "--commit=pin",
        "--no-preemption",
        "--patience=0",
        "--undo-after=5",
        "--in-flight=8",
        "--leader-elect=false",
        "--install-crds",
    )
    rules = found.scheduler
    assert rules.namespaces == ("a", "b")
    assert (rules.name, rules.bind_pods, rules.pin_pods, rules.concurrency) == ("mine", False, True, 8)
    assert (rules.policy.preemption, rules.policy.reclaim, rules.policy.starvation_timeout) == (
        False,
        False,
        None,
    )
    assert (rules.start_timeout, rules.roll_back) == (timedelta(seconds=5), True)
    assert not found.leader_elect
    assert found.install_crds
    assert not settings("--undo-after=0").scheduler.roll_back


def test_an_unknown_flag_is_an_error_of_one_line() -> None:
    with pytest.raises(InputError, match=r"See scheduler --help\."):
        settings("--nope")


def documents() -> dict[str, Any]:
    objects = installation({"scheduler": {"enabled": True}})
    return {one["kind"]: one for one in objects if one["metadata"]["name"] == "gangline-scheduler"}


def test_its_deployment_runs_a_command_that_exists_with_the_account_that_has_the_role() -> None:
    found = documents()
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]
    assert found["ClusterRoleBinding"]["subjects"][0]["name"] == pod["serviceAccountName"]
    (container,) = pod["containers"]
    assert container["command"] == ["gangline", "scheduler"]
    assert settings(*container["args"]).leader_elect


def test_it_may_delete_nothing_and_see_no_secret() -> None:
    rules = documents()["ClusterRole"]["rules"]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert verbs == {"get", "list", "watch", "create", "patch"}
    assert "secrets" not in resources
    assert not any("*" in rule["resources"] + rule["apiGroups"] for rule in rules)


def test_a_local_plane_without_gangs_needs_no_numpy() -> None:
    code = "import sys, gangline.operator.assembly, gangline.cli.run.local; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

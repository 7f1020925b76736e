"""docs/recovery.md is right: its examples are valid, its tables complete, its sentence the one that is written."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gangline.api.codec.codec import decode
from gangline.api.in_place import HOLD_CONTAINER, IN_PLACE_ANNOTATION
from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.defaults import problems
from gangline.jobs.plan.recovery.classes import CAUSE_CLASSES, CauseClass
from gangline.jobs.plan.recovery.in_place_plan import IN_PLACE_ABANDONED, RESTARTED_IN_PLACE
from gangline.jobs.plan.recovery.policy import (
    _CONDITIONS,
    _FIELDS_BY_ACTION,
    AUTO_RULES,
    RecoveryAction,
    parse_recovery,
)
from gangline.jobs.pods.in_place_containers import GATE_CONTAINER, RESTART_CODE
from support.cases.recovery_faults import FAULTS, recovery_world, start_pods, strike

PAGE = (Path(__file__).parents[4] / "docs" / "recovery.md").read_text()
YAML: list[Any] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def rows(heading: str) -> dict[str, str]:
    """The table under a heading: its other columns by the first one."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].split("<!--")[0]
    return {row.split(" | ")[0].strip("| "): row for row in table.splitlines()[2:] if row}


def test_the_job_of_the_page_can_run() -> None:
    job = PyTorch().default(decode(msgspec.json.encode(YAML[0]), PyTorchJob))
    assert not problems(PyTorch(), job)
    assert job.spec.run_policy.recovery == "auto"


def test_the_rules_of_the_page_are_a_policy() -> None:
    policy, invalid = parse_recovery(YAML[1]["recovery"])
    assert not invalid
    assert policy is not None
    assert len(policy.rules) == 4 + len(AUTO_RULES)


def test_the_page_says_how_to_restart_in_place() -> None:
    policy, invalid = parse_recovery(YAML[2]["recovery"])
    assert not invalid
    assert policy is not None
    assert policy.in_place
    for word in (IN_PLACE_ANNOTATION, GATE_CONTAINER, HOLD_CONTAINER, RESTARTED_IN_PLACE, IN_PLACE_ABANDONED):
        assert f"`{word}`" in PAGE
    assert f"exit code {RESTART_CODE}" in PAGE


def test_the_tables_are_complete() -> None:
    actions = rows("`then`")
    assert set(actions) == {f"`{action}`" for action in RecoveryAction}
    for action, fields in _FIELDS_BY_ACTION.items():
        row = actions[f"`{action}`"]
        assert all(f"`{name}`" in row for name in fields), action
    assert set(rows("condition")) == {f"`{name}`" for name in _CONDITIONS}
    named = re.findall(r"`([a-z]+)`", " ".join(rows("class of the cause")))
    assert named == [*(cause for rule in AUTO_RULES for cause in rule.causes), "capacity", "unknown"]


def test_the_classes_are_those_of_the_code() -> None:
    listed = PAGE.split("<!-- classes -->", 1)[1].split("<!-- end of classes -->")[0]
    assert listed.strip() == classes_table()


def classes_table() -> str:
    lines = ["| class | causes |", "| --- | --- |"]
    for kind in CauseClass:
        causes = ", ".join(f"`{cause}`" for cause, of in CAUSE_CLASSES.items() if of is kind)
        lines.append(f"| `{kind}` | {causes} |")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["an eviction"])
async def test_the_sentence_of_the_page_is_written(name: str) -> None:
    world = recovery_world("auto")
    await start_pods(world)
    await strike(world, FAULTS[name])
    sentence = next(line for line in PAGE.splitlines() if line.startswith("restarted elsewhere because"))
    assert world.job.status.recovery.message.replace("rank 2", "rank 1") == sentence

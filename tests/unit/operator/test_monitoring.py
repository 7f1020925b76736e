"""The board, the alert rules and their runbooks fit what the code really serves; promtool and our own checks say so."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.operator.metrics import JobMetrics
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.prometheus import PrometheusSchedulerMetrics
from support.cluster.promtool import KNOWN_COMPLAINTS, metric_complaints, promtool

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "src" / "gangline" / "install" / "monitoring"
RULES = MONITORING / "rules.yaml"
RULE_TESTS = ROOT / "tests" / "data" / "monitoring" / "rules_test.yaml"
BOARD = json.loads((MONITORING / "board.json").read_text())
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
PREFIXES = "gangline|training_operator|kube_batch|controller_runtime|workqueue|rest_client|leader_election|process"


def operator_metrics() -> PrometheusMetrics:
    """All metrics of the operator, with a series each where labels allow it."""
    metrics = PrometheusMetrics()
    metrics.set_build_info("operator", "0")
    jobs = JobMetrics(metrics.registry)
    kind = jobs.for_kind(TRAINING_KINDS[0])
    for event in jobs.jobs:
        kind.count_job("team", event)
    for plural, counters in jobs.children.items():
        for event in counters:
            kind.count_child("team", plural, event)
    for histogram in (jobs.pods_created_seconds, jobs.gang_wait_seconds, jobs.all_running_seconds):
        histogram.labels("team", "tensorflow").observe(1)
    jobs.replica_seconds.labels("team", "tensorflow", "", "working").inc()
    metrics.observe_request("GET", "host", "200", 0.1)
    metrics.leader_gauge("lease")
    metrics.queue_metrics("tfjob-controller")
    metrics.controller_metrics("tfjob-controller", 4)
    return metrics


def scheduler_metrics() -> PrometheusMetrics:
    metrics = PrometheusMetrics()
    metrics.set_build_info("scheduler", "0")
    PrometheusSchedulerMetrics(metrics.registry)
    return metrics


def served_names() -> set[str]:
    names = set()
    for metrics in (operator_metrics(), scheduler_metrics()):
        for family in metrics.registry.collect():
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            names |= {family.name + suffix for suffix in suffixes}
    return names


def board_expressions() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


EXPRESSIONS = [*((alert["alert"], alert["expr"]) for alert in ALERTS), *board_expressions()]


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_every_metric_of_an_expression_is_served(name: str, expression: str) -> None:
    wanted = set(re.findall(rf"\b(?:{PREFIXES})_\w+", expression))
    assert wanted, name
    assert wanted <= served_names()


def test_the_tables_of_metrics_are_current() -> None:
    ended = subprocess.run([sys.executable, ROOT / "hack" / "metrics.py", "--check"], check=False)
    assert ended.returncode == 0, "run: python hack/metrics.py"


# Alerts


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_has_a_runbook_with_all_its_parts(alert: dict[str, Any]) -> None:
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    text = (ROOT / alert["annotations"]["runbook_url"]).read_text()
    assert text.startswith(f"# {alert['alert']}\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Why it matters", "How to check", "How to mend"]


def test_every_runbook_has_an_alert() -> None:
    written = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")}
    assert written == {alert["alert"] for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alert_is_tested_to_fire_and_not_to_fire_and_its_texts_use_labels_that_it_has(
    alert: dict[str, Any],
) -> None:
    cases = [case for test in yaml.safe_load(RULE_TESTS.read_text())["tests"] for case in test["alert_rule_test"]]
    outcomes = [case["exp_alerts"] for case in cases if case["alertname"] == alert["alert"]]
    assert any(outcomes)
    assert [] in outcomes
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    assert all(used <= set(firing["exp_labels"]) for outcome in outcomes for firing in outcome)


def test_promtool_accepts_the_rules() -> None:
    ended = subprocess.run([promtool(), "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_promtool_finds_every_alert_fire_as_its_tests_say(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    tests = tmp_path / "rules_test.yaml"
    tests.write_text(RULE_TESTS.read_text())
    ended = subprocess.run([promtool(), "test", "rules", tests], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("metrics", [operator_metrics, scheduler_metrics])
def test_promtool_has_no_complaint_about_the_metrics(metrics: Any) -> None:
    text, _ = metrics().render()
    assert metric_complaints(text.decode()) <= KNOWN_COMPLAINTS


# The board


def test_promtool_can_read_every_expression_of_the_board(tmp_path: Path) -> None:
    """Each as a recording rule, with values in the place of Grafana's variables."""
    variables = {"$__rate_interval": "5m", "$namespace": ".*", "$framework": ".*"}
    rules = []
    for number, (_, expression) in enumerate(board_expressions()):
        if expression.startswith("label_values("):
            continue
        for variable, value in variables.items():
            expression = expression.replace(variable, value)
        assert "$" not in expression
        rules.append({"record": f"board:panel:{number}", "expr": expression})
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    ended = subprocess.run([promtool(), "check", "rules", file], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(rules)} rules found" in ended.stdout


def test_the_panels_do_not_overlap_and_every_one_says_what_it_shows() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not own & cells, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= own
        assert panel["type"] == "row" or panel["description"]
    identities = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(identities)) == len(identities)


def test_every_metric_of_jobs_and_of_the_scheduler_is_on_the_board() -> None:
    """Those with kube-batch's units are there under their new names."""
    shown = " ".join(expression for _, expression in board_expressions())
    names = {name for name in served_names() if name.startswith(("gangline_", "training_operator_jobs", "kube_batch"))}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) if "seconds" in name else name for name in names}
    missing = {name for name in families if name not in shown}
    assert {name for name in missing if "latency" not in name} == set()

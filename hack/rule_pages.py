"""Write docs/why: a page for each rule of `gangline why`, and docs/troubleshooting.md. A test finds drift.

Screens come from the cases of the tests: what clusters reported, word for word, and jobs that tests run on the embedded
node to provoke the fault.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from gangline.base.invocation import COMMAND, own_command
from gangline.cli.jobs.why import DOCS_URL_VARIABLE, report_text
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import DiagnosisRule
from gangline.why.diagnosis.rules import (
    container_exits,
    job_state,
    log_patterns,
    no_progress,
    not_created,
    not_started,
    unscheduled,
)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.cases.why import DOCS_EXAMPLE, RECORDED_SNAPSHOTS  # noqa: E402
from support.cases.why_faults import FAULTS_BY_NAME, PYTHON_PATH  # noqa: E402

NOTE = "<!-- Written by hack/rule_pages.py: make reference. Do not edit. -->\n"
AGAIN = "then run the replica again: `gangline restart JOB --replica TYPE/INDEX`"


class Symptom(NamedTuple):
    """A group of rules as a person meets it: what is seen, and the first thing to do."""

    title: str
    first_step: str
    rules: Sequence[DiagnosisRule]


SYMPTOMS = (
    Symptom(
        "The job has no status, or waits before it has pods",
        "`gangline describe JOB` shows its conditions and events.",
        job_state.JOB_RULES,
    ),
    Symptom(
        "The server refuses the pods",
        "`gangline events JOB` has the words of the server.",
        not_created.CREATION_RULES,
    ),
    Symptom(
        "Pods wait for a node",
        "`gangline get nodes` shows what is free.",
        unscheduled.SCHEDULING_RULES,
    ),
    Symptom(
        "Pods have a node and do not start",
        "`gangline get pods` shows what each one waits for.",
        (*not_started.STARTUP_RULES, *not_started.SLOW_START_RULES),
    ),
    Symptom(
        "A container was ended from outside",
        "`gangline describe JOB` names the replica that failed first.",
        container_exits.TERMINATION_RULES,
    ),
    Symptom(
        "The program failed, and its log says why",
        "`gangline logs JOB` shows the last lines of each replica.",
        log_patterns.LOG_RULES,
    ),
    Symptom(
        "A replica lost its peers",
        "Look for the replica that failed first. The others only lost it.",
        log_patterns.PEER_RULES,
    ),
    Symptom(
        "The program failed with an exit code and few words",
        "`gangline logs JOB --previous` shows the run before a restart.",
        (*container_exits.EXIT_CODE_RULES, *container_exits.LOOP_RULES),
    ),
    Symptom(
        "The job runs and makes no progress",
        "`gangline stacks JOB` shows where each rank stands.",
        no_progress.RUNNING_RULES,
    ),
    Symptom(
        "The job failed, and its pods are gone",
        "Keep ended pods: set `runPolicy.cleanPodPolicy: None`.",
        job_state.FALLBACK_RULES,
    ),
)


def pages() -> dict[str, str]:
    """The name of each page below docs/, and its text."""
    os.environ.pop(DOCS_URL_VARIABLE, None)
    written = {
        f"why/{rule.id}.md": NOTE + "\n".join(rule_page(rule, symptom)) + "\n"
        for symptom in SYMPTOMS
        for rule in symptom.rules
    }
    return {"troubleshooting.md": NOTE + "\n".join(index()) + "\n", **written}


def index() -> Iterator[str]:
    """The way from a symptom to a rule."""
    yield "# Troubleshooting by symptom\n"
    yield "Type `gangline why JOB` first. It finds the cause, shows the evidence, and prints the name of one of these pages."
    yield "No job at hand? Look for what you see.\n"
    for symptom in SYMPTOMS:
        yield f"## {symptom.title}\n"
        yield f"{symptom.first_step}\n"
        yield "| what is seen | page |"
        yield "| --- | --- |"
        for rule in symptom.rules:
            yield f"| {_sentence(rule.symptom)} | [{rule.id}](why/{rule.id}.md) |"
        yield ""
    yield "More: [how `why` decides](why.md), [hangs](hangs.md), [stacks](stacks.md)."


def rule_page(rule: DiagnosisRule, symptom: Symptom) -> Iterator[str]:
    """Cause, evidence, remedy and an example of one rule."""
    yield f"# {rule.id}\n"
    yield f"{_sentence(_with_words(rule.cause))}\n"
    yield "## How it is recognized\n"
    yield f"{_sentence(rule.symptom)}\n"
    yield f"It belongs to: [{symptom.title}](../troubleshooting.md#{_anchor(symptom.title)}). {symptom.first_step}\n"
    yield "## What to do\n"
    for step in rule.next:
        if re.fullmatch(r"\{\w+\}", step) and step != "{again}":
            continue  # made from the case as a whole: the example shows it
        yield f"- {_sentence(_with_words(step))}"
    yield "\nWords in *italics* stand for what `why` fills in. A step that does not apply is left out.\n"
    yield from _example(rule.id)


def _example(rule: str) -> Iterator[str]:
    snapshot = (
        DOCS_EXAMPLE if rule == "oom-killed" else RECORDED_SNAPSHOTS[rule][0] if rule in RECORDED_SNAPSHOTS else None
    )
    if snapshot is not None:
        yield "## An example\n"
        yield "From the words that a cluster reported:\n"
        # A page names the command as people type it, wherever it is installed on the machine that writes the page.
        report = report_text(diagnose(snapshot), width=0).replace(f"{own_command()} ", f"{COMMAND} ")
        yield f"```text\n$ gangline why bert -n team-a\n{report.rstrip()}\n```"
        return
    fault = next((fault for fault in FAULTS_BY_NAME.values() if fault.rule == rule), None)
    if fault is None:
        yield "Tests provoke this on the embedded node (tests/e2e/test_why.py)."
        return
    yield "## An example\n"
    yield "A test runs this job on the embedded node, and `why` must name this rule:\n"
    body = yaml.safe_dump(fault.body, sort_keys=False, width=100).replace(PYTHON_PATH, "python")
    # A port that was free when this was written.
    yield f"```yaml\n{re.sub(r'(?<![0-9])[0-9]{5}(?![0-9])', '29500', body).rstrip()}\n```"
    if fault.expected_words:
        yield "\nIts answer has these words:\n"
        yield from (f"- `{words.replace(PYTHON_PATH, 'python')}`" for words in fault.expected_words if "`" not in words)


def _with_words(template: str) -> str:
    """A template with words for its placeholders. One that follows a word directly adds a detail, and is left out."""
    text = re.sub(r"(?<=[\w)])\{\w+\}", "", template).replace("{who}", "a replica").replace("{again}", AGAIN)
    return re.sub(r"\{(\w+)\}", lambda found: f"*{found[1].replace('_', ' ')}*", text)


def _sentence(text: str) -> str:
    text = text.strip().replace("|", "\\|").replace("<", "&lt;")
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", ":")) else ".")


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    (ROOT / "docs" / "why").mkdir(exist_ok=True)
    written = pages()
    for old in (ROOT / "docs" / "why").glob("*.md"):
        if f"why/{old.name}" not in written:
            old.unlink()
    for page, text in written.items():
        (ROOT / "docs" / page).write_text(text)

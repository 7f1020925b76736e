"""The order on a pod and its answer, as docs/drill.md has them; and the annotation of docs/progress.md."""

import re
import shlex
from pathlib import Path

import pytest

from gangline.api.drill import Answer, Fault, Order, answered, ordered
from gangline.api.kubeflow.training import DRILL, DRILLED, PROGRESS
from gangline.progress.line import Progress, progress

DOCS = Path(__file__).parents[3] / "docs"


def block(page: str, info: str) -> str:
    found = re.search(rf"```{info}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_order_in_the_docs_is_one() -> None:
    order = ordered({DRILL: block("drill.md", "json")})
    assert order == Order(id="any text, another one each time", fault=Fault.SLOW, seconds=10, pause=0.2)


def test_every_fault_is_in_the_docs() -> None:
    page = (DOCS / "drill.md").read_text()
    assert all(f"| `--{fault}" in page for fault in Fault)
    assert f"`{DRILL}`" in page
    assert f"`{DRILLED}`" in page


def test_the_annotation_in_the_docs_is_a_report() -> None:
    name, _, value = shlex.split(block("progress.md", "sh"))[-1].partition("=")
    assert name == PROGRESS
    assert progress(value) == Progress(120, 500)


@pytest.mark.parametrize("text", ["", "x", "{}", '{"id": "a"}', '{"id": "a", "fault": "flood"}', '{"id": 1}'])
def test_what_is_no_order_is_none(text: str) -> None:
    assert ordered({DRILL: text}) is None
    assert ordered({}) is None


def test_an_answer_is_read_and_nonsense_is_not() -> None:
    assert answered({DRILLED: '{"id": "a", "refuses": "no"}'}) == Answer(id="a", refuses="no")
    assert answered({DRILLED: "no"}) is None
    assert answered({}) is None

"""The order on a pod and its answer, as docs/drill.md has them; and the annotation of docs/progress.md."""

import re
import shlex
from pathlib import Path

import pytest

from gangline.api.drill import FaultKind, FaultRequest, FaultResponse, fault_request, fault_response
from gangline.api.kubeflow.training import DRILL_ANNOTATION, DRILL_RESULT_ANNOTATION, PROGRESS_ANNOTATION
from gangline.progress.line import Progress, parse_progress

DOCS = Path(__file__).parents[3] / "docs"


def block(page: str, info: str) -> str:
    found = re.search(rf"```{info}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_order_in_the_docs_is_one() -> None:
    order = fault_request({DRILL_ANNOTATION: block("drill.md", "json")})
    assert order == FaultRequest(id="any text, another one each time", fault=FaultKind.SLOW, seconds=10, pause=0.2)


def test_every_fault_is_in_the_docs() -> None:
    page = (DOCS / "drill.md").read_text()
    # An exit is for replays only: no program that runs can be made to choose an exit code.
    assert all(f"| `--{fault}" in page for fault in FaultKind if fault is not FaultKind.EXIT)
    assert f"`{DRILL_ANNOTATION}`" in page
    assert f"`{DRILL_RESULT_ANNOTATION}`" in page


def test_the_annotation_in_the_docs_is_a_report() -> None:
    name, _, value = shlex.split(block("progress.md", "sh"))[-1].partition("=")
    assert name == PROGRESS_ANNOTATION
    assert parse_progress(value) == Progress(120, 500)


@pytest.mark.parametrize("text", ["", "x", "{}", '{"id": "a"}', '{"id": "a", "fault": "flood"}', '{"id": 1}'])
def test_what_is_no_order_is_none(text: str) -> None:
    assert fault_request({DRILL_ANNOTATION: text}) is None
    assert fault_request({}) is None


def test_an_answer_is_read_and_nonsense_is_not() -> None:
    assert fault_response({DRILL_RESULT_ANNOTATION: '{"id": "a", "refuses": "no"}'}) == FaultResponse(
        id="a", refuses="no"
    )
    assert fault_response({DRILL_RESULT_ANNOTATION: "no"}) is None
    assert fault_response({}) is None

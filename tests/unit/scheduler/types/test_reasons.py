"""Reasons in words."""

import re
from pathlib import Path

from gangline.scheduler.types.reasons import REASON_TEXTS, FilterReason, nodes_message, resource_text

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "gangs.md").read_text()


def test_the_commonest_reason_comes_first() -> None:
    assert (
        nodes_message({"tainted": 4, "lack cpu": 8, "cordoned": 4}, 16)
        == "0/16 nodes: 8 lack cpu, 4 cordoned, 4 tainted"
    )


def test_every_reason_has_words() -> None:
    assert set(REASON_TEXTS) == set(FilterReason) - {FilterReason.FITS, FilterReason.RESOURCE}
    assert resource_text("cpu") == "lack cpu"
    assert resource_text("pods") == "at their limit of pods"


def test_the_page_explains_every_reason() -> None:
    table = PAGE.split("| reason | |", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) == {
        *REASON_TEXTS.values(),
        resource_text("RESOURCE"),
        resource_text("pods"),
    }

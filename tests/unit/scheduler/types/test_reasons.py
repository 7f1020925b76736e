"""Reasons in words."""

import re
from pathlib import Path

from gangline.scheduler.types.reasons import WORDS, Reason, lack, told

PAGE = (Path(__file__).parents[4] / "docs" / "scheduling.md").read_text()


def test_the_commonest_reason_comes_first() -> None:
    assert (
        told({"tainted": 4, "lack cpu": 8, "cordoned": 4}, 16)
        == "0/16 nodes: 8 lack cpu, 4 cordoned, 4 tainted"
    )


def test_every_reason_has_words() -> None:
    assert set(WORDS) == set(Reason) - {Reason.FITS, Reason.LACK}
    assert lack("cpu") == "lack cpu"
    assert lack("pods") == "at their limit of pods"


def test_the_page_explains_every_reason() -> None:
    table = PAGE.split("| reason | |", 1)[1].split("\n\n", 1)[0]
    assert set(re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)) == {
        *WORDS.values(),
        lack("RESOURCE"),
        lack("pods"),
    }

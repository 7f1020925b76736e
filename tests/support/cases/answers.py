"""Requests of our own, and what a real kube-apiserver 1.34.4 answered, beside the cases of the API oracle.

The requests are in `tests/data/answers/*.yaml`, in the oracle's format. `answers.json.xz` has the answers by case and step,
null for a step that is not compared: its answer differs from one recording to the next, or ours is known to differ.
`hack/answers.py` records them.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from support.yaml_files import load_yaml

FOLDER = Path(__file__).parents[2] / "data" / "answers"
RECORDED = FOLDER / "answers.json.xz"


class RecordedAnswers:
    """Cases and answers of this repository, compared by the rules of the oracle."""

    def __init__(self, rules: ModuleType) -> None:
        self.rules = rules
        self._answers: dict[str, list[Any]] = json.loads(lzma.decompress(RECORDED.read_bytes()))

    def cases(self) -> Iterator[tuple[str, Any]]:
        """All cases, by `area/name`."""
        return recorded_cases()

    def differences(self, name: str, answers: Any) -> list[str]:
        """The differences between our answers and the recorded ones."""
        ours = json.loads(json.dumps(answers))
        return [
            f"{name}[{index}]{where}: {json.dumps(theirs)[:200]} != {json.dumps(got)[:200]}"
            for index, (golden, shot) in enumerate(zip(self._answers[name], ours, strict=True))
            if golden is not None
            for where, theirs, got in self.rules.diff(golden, shot)
        ]


def recorded_cases() -> Iterator[tuple[str, Any]]:
    """All cases, by `area/name`."""
    for file in sorted(FOLDER.glob("*.yaml")):
        for case in load_yaml(file.read_text()):
            yield f"{file.stem}/{case['name']}", case

"""How-to pages: which blocks are typed where, and why others are not."""

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from support.tutorials import SavedFile, TypedCommand, tutorial_steps

CLUSTER = "cluster"
ELSEWHERE = (CLUSTER, "other-terminal")
"""Tags of blocks that nobody types in the shell in which the page is played."""
PAGE_NOT_PLAYED = re.compile(r"^<!-- not played: (.+) -->$", re.MULTILINE)
_BLOCK = re.compile(
    r"^(?:<!-- block not played: (?P<reason>.+) -->\n\n)?```console (?P<tag>[\w-]+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_TEST = re.compile(r"tests/[\w/.]+\w")


class SetAside(NamedTuple):
    """A block for another place than the shell of the page, and what the page says why nobody plays it."""

    tag: str
    code: str
    reason: str


def set_aside(page: str) -> list[SetAside]:
    """The blocks of a page that are left out where it is played."""
    return [
        SetAside(found["tag"], found["code"], found["reason"] or "")
        for found in _BLOCK.finditer(page)
        if found["tag"] in ELSEWHERE
    ]


def named_tests(reason: str) -> list[str]:
    """The paths of tests in a reason."""
    return _TEST.findall(reason)


def cluster_steps(page: str, also: Collection[str] = ()) -> Iterator[SavedFile | TypedCommand]:
    """What a reader with a cluster does: saves the files, types the blocks for a cluster that are played.

    Other commands of the page are typed if they begin like one of `also`.
    """
    not_played = "".join(block.code for block in set_aside(page) if block.reason)
    for step in tutorial_steps(page):
        if isinstance(step, SavedFile) or _is_typed(step, not_played, tuple(also)):
            yield step


def _is_typed(step: TypedCommand, not_played: str, also: tuple[str, ...]) -> bool:
    if step.tag == CLUSTER:
        return f"$ {step.command}\n" not in not_played
    return not step.tag and step.command.startswith(also)

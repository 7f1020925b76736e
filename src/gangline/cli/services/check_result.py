"""The result of one check of `gangline doctor`, and how results are printed."""

from collections.abc import Sequence

import msgspec

from gangline.base.invocation import with_own_command
from gangline.cli.output import tables

RESULT_OK, RESULT_WARNING, RESULT_ERROR = "ok", "warning", "error"
_COLOURS = {RESULT_OK: "32", RESULT_WARNING: "33", RESULT_ERROR: "31"}


class CheckResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check. `remedy` is what to type or do."""

    check: str
    result: str
    found: str
    remedy: str = ""


def results_text(results: Sequence[CheckResult], *, colour: bool = False) -> str:
    """A line for each result, with what to do below it."""
    width = max((len(result.check) for result in results), default=0)
    lines = []
    for result in results:
        verdict = f"{result.result:<7}"
        painted = tables.paint(verdict, _COLOURS[result.result]) if colour else verdict
        lines.append(f"{painted}  {result.check:<{width}}  {result.found}\n")
        lines += [f"{'':<9}{'':<{width}}  -> {result.remedy}\n"] if result.remedy else []
    return with_own_command("".join(lines))

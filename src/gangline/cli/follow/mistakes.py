"""Mistakes of a program that starting it again cannot mend: a missing package, a syntax error, wrong arguments. Pure.

They are found by the rules of `gangline why`.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from gangline.base.python_packages import distribution_of
from gangline.why.diagnosis.case import JobFacts, JobSnapshot
from gangline.why.diagnosis.failures import JobFailures, ReplicaFailure
from gangline.why.diagnosis.report import RuleInput, RuleMatch

FINAL_RULES = (
    "image-unmapped",
    "no-command",
    "command-not-found",
    "module-missing",
    "import-failed",
    "syntax-error",
    "file-missing",
    "usage",
)
"""The rules about a program that cannot start, in the order in which they are tried."""
SCRIPT_MISSING = "can't open file"
"""How Python begins its complaint about a missing script. A missing file of another kind may come later."""
_LOCAL_RANK = re.compile(r"--local[-_]rank\b")
"""The argument by which torch.distributed.launch gave the rank; torchrun gives it in a variable, too."""
USAGE_EXIT_CODE = 2
MAX_FIRST_RESTARTS = 2
"""A local node restarts a container at once, so a failure may be seen late."""


class ProgramMistake(msgspec.Struct, frozen=True):
    """Why the program of a replica cannot start."""

    replica: str
    rule: str
    # What the rule found: `module`, `file`, `what`, `at`.
    values: Mapping[str, str] = {}


class ProgramSite(NamedTuple):
    """Where a program runs, in words for the user. Everything may be unknown."""

    # The interpreter, and the command that installs a distribution for it, both to be copied.
    python: str = ""
    install: str = ""
    # The folder of the user that has the module that is missing.
    module_folder: str = ""
    folder: str = ""
    image: str = ""


def team_mistake(
    failures: Mapping[str, ReplicaFailure], restarts: Mapping[str, int], replicas: int
) -> ProgramMistake | None:
    """The mistake of a team whose every replica has failed by one, and was hardly restarted; else None.

    A single replica that fails is no such team: it may be its machine or its data.
    """
    if not failures or len(failures) < replicas or any(count > MAX_FIRST_RESTARTS for count in restarts.values()):
        return None
    mistakes = program_mistakes([failures[replica] for replica in sorted(failures)])
    return mistakes[0] if len(mistakes) == len(failures) else None


def program_mistakes(failures: Sequence[ReplicaFailure]) -> list[ProgramMistake]:
    """The mistakes among these failures."""
    # Imported here: rules load slowly, and most runs need none.
    from gangline.why.diagnosis.rules.table import RULES

    job = JobFacts(kind="", namespace="default", name="")
    scene = RuleInput(JobSnapshot(job, datetime.min.replace(tzinfo=UTC)), JobFailures(tuple(failures)))
    rules = {rule.id: rule for rule in RULES if rule.id in FINAL_RULES}
    mistakes: dict[int, ProgramMistake] = {}
    for name in FINAL_RULES:
        for match in rules[name].matches(scene):
            index = match.failure_index
            if index is not None and index not in mistakes and _is_final(name, match, failures[index]):
                mistakes[index] = ProgramMistake(failures[index].replica, name, dict(match.values))
    return [mistake for _, mistake in sorted(mistakes.items())]


def _is_final(rule: str, match: RuleMatch, failure: ReplicaFailure) -> bool:
    if rule == "file-missing":
        return any(SCRIPT_MISSING in line for line in match.evidence)
    return rule != "usage" or failure.exit_code == USAGE_EXIT_CODE


def mistake_text(mistake: ProgramMistake, site: ProgramSite) -> str:
    """The mistake in one line, with what to write or type."""
    values = mistake.values
    match mistake.rule:
        case "module-missing":
            return _missing_module_text(values["module"], site)
        case "import-failed":
            return f"an import fails{_where(site)}: {values['what']}"
        case "syntax-error":
            return f"the program is not valid Python: {values['what']}{values['at']}"
        case "file-missing":
            started = f"; processes start in {site.folder}" if site.folder else ""
            return f"{values['file']} does not exist{started}"
        case "usage":
            rank = "; every process has it in the variable LOCAL_RANK" if _LOCAL_RANK.search(values["what"]) else ""
            return f"the program refuses its arguments: {values['what']}{rank}"
        case "image-unmapped":
            return f"{values['file']} {values['wherever']}, and images are not pulled here: map {values['image']} in a file for --images"
        case "no-command":
            return f"image {values['image']} is not pulled here, so its command is not known: write one into the job"
    return f"the command{values['file']} cannot be started; is it installed, and executable?"


def _missing_module_text(module: str, site: ProgramSite) -> str:
    name, distribution = module.partition(".")[0], distribution_of(module)
    if site.module_folder:
        return f"{name} is in {site.module_folder}, where Python does not look; set PYTHONPATH={site.module_folder}"
    if not site.python:
        return f"{name} is not installed{_where(site)}; add {distribution} there"
    return f"{name} is not installed in this Python ({site.python}); install it: {site.install} {distribution}"


def _where(site: ProgramSite) -> str:
    if site.python:
        return f" in this Python ({site.python})"
    return f" in image {site.image}" if site.image else " where the program runs"

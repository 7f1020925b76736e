"""The job of one trial: a file with some values changed, or a command with some words changed. Pure but for the file."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import job_from_command
from gangline.cli.manifests.jobs import read_job
from gangline.cli.manifests.overrides import with_overrides
from gangline.cli.sweep.space import TrialValues

TRIAL_VARIABLE = "GANGLINE_TRIAL"
"""The variable with a trial's number: for the name of a checkpoint, say."""


class SweepSource(NamedTuple):
    """What is tried: the job in a file, or a command and how many processes."""

    file: Path | None = None
    command: tuple[str, ...] = ()
    nproc: int = 0
    kind: str = ""

    @property
    def folder(self) -> Path:
        """Where its processes start."""
        return self.file.parent.resolve() if self.file is not None else Path.cwd()


def trial_job(source: SweepSource, values: TrialValues, number: int) -> tuple[JobKind, JSON]:
    """The job of a trial. Raises `InputError`.

    A parameter with dots is a place in the job, set as `gangline run --set` does. Any other is a variable of every
    container, and so `$(lr)` in its command; in a COMMAND also `{lr}` is replaced. The job keeps its name, for its
    file may speak of it, and gets a namespace of its own.
    """
    paths = [f"{name}={value}" for name, value in values.items() if "." in name]
    variables = {name: value for name, value in values.items() if "." not in name}
    if source.file is not None:
        facts, body = read_job(source.file, paths)
    else:
        words = [_substituted(word, variables) for word in source.command]
        # Its name comes from the command as written, not from a value in it.
        facts, body = job_from_command(source.kind, words, source.nproc)
        body["metadata"]["name"] = job_from_command(source.kind, source.command, source.nproc)[1]["metadata"]["name"]
        body = with_overrides(body, paths)
    body = with_variables(facts, body, {**variables, TRIAL_VARIABLE: str(number)})
    body["metadata"]["namespace"] = f"trial-{number}"
    return facts, body


def with_variables(facts: JobKind, body: JSON, variables: Mapping[str, str]) -> JSON:
    """The job with these variables in every container: first, so that others may be made of them."""
    changed: JSON = copy.deepcopy(body)
    for replica in changed["spec"].get(facts.replicas, {}).values():
        spec = replica.get("template", {}).get("spec", {})
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            container["env"] = [
                *({"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()),
                *(each for each in container.get("env") or () if each.get("name") not in variables),
            ]
    return changed


def trial_jobs(source: SweepSource, found: Sequence[TrialValues]) -> tuple[JobKind, list[JSON]]:
    """The jobs of all trials, which are of one kind. Mistakes are found before anything starts: `InputError`."""
    made = [trial_job(source, values, number) for number, values in enumerate(found, 1)]
    kinds = {facts.kind for facts, _ in made}
    names = {body["metadata"]["name"] for _, body in made}
    if len(kinds) > 1 or len(names) > 1:
        raise InputError("--set: trials are the same job with other values; leave its kind and name as they are")
    return made[0][0], [body for _, body in made]


def _substituted(word: str, variables: Mapping[str, Any]) -> str:
    for name, value in variables.items():
        word = word.replace(f"{{{name}}}", value)
    return word

"""The job of each trial: a manifest with some values changed, or a command with placeholders filled in."""

import copy
import json
import os
from collections.abc import Mapping, Sequence

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import CommandJob, job_from_command, job_name, limits_with_gpu, process_env
from gangline.cli.manifests.jobs import read_job
from gangline.cli.manifests.overrides import with_overrides
from gangline.cli.manifests.processes import process_count, this_machine
from gangline.cli.sweep.leaderboard import Objective
from gangline.cli.sweep.request import SweepSource
from gangline.cli.sweep.space import TrialValues, is_path
from gangline.dashboard.rows.sweeps import TRIAL_ANNOTATION
from gangline.history.selection import SWEEP_LABEL

TRIAL_VARIABLE = "GANGLINE_TRIAL"
"""The environment variable with the trial's number, for example for the name of a checkpoint."""


def trial_job(source: SweepSource, values: TrialValues, number: int) -> tuple[JobKind, JSON]:
    """The job of a trial. Raises `InputError`.

    A parameter with dots is a path in the job, set as by `gangline run --set`. Any other is an environment variable of
    every container, and so `$(lr)` in its command; in a COMMAND `{lr}` is replaced too. The job keeps its name, because
    its manifest may refer to it, and gets a namespace of its own.
    """
    overrides = [f"{name}={value}" for name, value in values.items() if is_path(name)]
    variables = {name: value for name, value in values.items() if not is_path(name)}
    if source.file is not None:
        kind, body = read_job(source.file, overrides)
    else:
        words = [_substituted(word, variables) for word in source.command]
        # The name is derived from the command as written, so that all trials share it.
        kind, body = job_from_command(_command_job(source, words))
        body["metadata"]["name"] = job_name(source.command)
        body = with_overrides(body, overrides)
    body = with_variables(kind, body, {**variables, TRIAL_VARIABLE: str(number)})
    body["metadata"]["namespace"] = f"trial-{number}"
    return kind, body


def _command_job(source: SweepSource, words: Sequence[str]) -> CommandJob:
    machine = this_machine()
    processes = process_count(source.nproc, machine)
    limits = limits_with_gpu({}, processes.most, machine)
    env = process_env(processes.most, machine, os.environ)
    return CommandJob(source.kind, tuple(words), processes, limits=limits, env=env)


def with_variables(kind: JobKind, body: JSON, variables: Mapping[str, str]) -> JSON:
    """The job with these variables in every container: before the others, so that others may refer to them."""
    changed: JSON = copy.deepcopy(body)
    for replica in changed["spec"].get(kind.replicas, {}).values():
        spec = replica.get("template", {}).get("spec", {})
        for container in (*spec.get("initContainers", ()), *spec.get("containers", ())):
            container["env"] = [
                *({"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()),
                *(entry for entry in container.get("env") or () if entry.get("name") not in variables),
            ]
    return changed


def with_trial_note(body: JSON, values: TrialValues, number: int, objective: Objective) -> JSON:
    """The job of a trial with what tells the dashboard its sweep, its values and what it is ranked by."""
    metadata = body["metadata"]
    note = {"trial": number, "parameters": dict(values), "metric": objective.metric, "maximize": objective.maximize}
    labels = {**(metadata.get("labels") or {}), SWEEP_LABEL: metadata["name"]}
    annotations = {**(metadata.get("annotations") or {}), TRIAL_ANNOTATION: json.dumps(note)}
    return {**body, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def trial_jobs(source: SweepSource, trials: Sequence[TrialValues]) -> tuple[JobKind, list[JSON]]:
    """The kind and the bodies of all trials' jobs. Raises `InputError` if their kinds or names differ."""
    jobs = [trial_job(source, values, number) for number, values in enumerate(trials, 1)]
    kinds = {kind.kind for kind, _ in jobs}
    names = {body["metadata"]["name"] for _, body in jobs}
    if len(kinds) > 1 or len(names) > 1:
        raise InputError("--set: trials are the same job with other values; leave its kind and name as they are")
    return jobs[0][0], [body for _, body in jobs]


def _substituted(word: str, variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        word = word.replace(f"{{{name}}}", value)
    return word

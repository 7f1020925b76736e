"""What is wrong with a file, found without a server: file, line, path, and what to write."""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document, documents
from gangline.api.codec.errors import DecodeError, path_text
from gangline.api.codec.errors import FieldPath as Steps
from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import GROUP, VERSION, JobKind, TrainingJob
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.files import NO_OBJECTS, path_steps, value_at
from gangline.cli.manifests.lint_pods import pod_problems
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Framework
from gangline.operator.settings import OperatorSettings
from gangline.schema.crds.job_crds import crd_schema
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.structural.embedded_objects import MetadataError
from gangline.schema.structural.schema import StructuralSchema

_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MAX_VALIDATION_PASSES = 3
_QUANTITY_PATTERN = "in body should match '^[+-]?([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)(([KMGTPE]i)|"
_QUANTITY_WITH_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]i?)[bB]?")
"""What people write for an amount: `16 GiB`, `16Gib`, `16GB`."""
_RULES_SKIPPED = "some validation rules were not checked"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One mistake."""

    file: str
    message: str
    line: int | None = None
    path: str = ""
    # What to write instead, where that is known.
    write: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        text = f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"
        return f"{text}\n  write:   {self.write}" if self.write else text


class LintError(InputError):
    """All that is wrong with jobs in files."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        # Whoever tells it puts `error: ` before the first.
        super().__init__(_error_lines(findings).removeprefix("error: "))
        self.findings = tuple(findings)


def _error_lines(findings: Sequence[Finding]) -> str:
    """For people: a line for each, and below it what to write."""
    return "\n".join(f"error: {finding}".replace("\n  write:", "\n       write:") for finding in findings)


class LintResult(msgspec.Struct, frozen=True):
    """What a file holds: how many training jobs, how many other objects, and every mistake."""

    file: str
    findings: tuple[Finding, ...] = ()
    jobs: int = 0
    other_objects: int = 0

    @property
    def has_content(self) -> bool:
        """Whether there is anything in it, right or wrong."""
        return bool(self.findings or self.jobs or self.other_objects)

    def with_empty_finding(self) -> "LintResult":
        """The same, where it is a mistake to hold nothing."""
        nothing = Finding(self.file, f"{NO_OBJECTS}; write a job into it")
        return self if self.has_content else msgspec.structs.replace(self, findings=(nothing,))


def check_text(text: str, file: str) -> LintResult:
    """Everything that is wrong with a text. Never raises for that."""
    try:
        found = documents(text, file=file)
    except DecodeError as error:
        return LintResult(file, (_decode_finding(error, file),))
    findings: list[Finding] = []
    jobs = 0
    for document in found:
        facts = kind_of(document)
        if isinstance(facts, JobKind):
            jobs += 1
            findings += check_job(document, facts)
        elif isinstance(facts, Finding):
            findings.append(facts)
    return LintResult(file, tuple(findings), jobs, len(found) - jobs)


def kind_of(document: Document) -> JobKind | Finding | None:
    """The kind of a training job; what is wrong with it if it nearly is one; None for any other object."""
    version, kind = document.body.get("apiVersion"), document.body.get("kind")
    known = {facts.kind: facts for facts in TRAINING_KINDS}
    ours = f"{GROUP}/{VERSION}"
    for field, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str) or not value:
            write = f"apiVersion: {ours}" if field == "apiVersion" and kind in known else ""
            return _finding(document, field, "required field is missing", write)
    if kind in known:
        if version == ours:
            return known[kind]
        return _finding(document, "apiVersion", f'is "{version}", but a {kind} is of {ours}', f"apiVersion: {ours}")
    if str(version).startswith(f"{GROUP}/"):
        # As people call them, too.
        folded = {name.lower(): name for name in known} | {"tensorflowjob": "TFJob", "torchjob": "PyTorchJob"}
        close = get_close_matches(str(kind).lower(), folded, 1, 0.6)
        write = f"kind: {folded[close[0]]}" if close else ""
        return _finding(document, "kind", f'is "{kind}"; write one of {", ".join(known)}', write)
    return None


def lint_error(*found: Document) -> LintError:
    """What is wrong with documents of which each should hold a training job."""
    findings: list[Finding] = []
    for document in found:
        facts = kind_of(document)
        if isinstance(facts, JobKind):
            findings += check_job(document, facts)
        else:
            findings.append(facts or _unsupported_kind(document))
    return LintError(findings)


def _unsupported_kind(document: Document) -> Finding:
    kinds = ", ".join(facts.kind for facts in TRAINING_KINDS)
    return _finding(document, "kind", f'is "{document.body["kind"]}"; a run takes {kinds}')


def check_job(document: Document, facts: JobKind) -> list[Finding]:
    """All that is wrong with one job: its types, its schema and rules, what its framework cannot run. Each once."""
    found: dict[str, Finding] = {}
    # What is told is left out of it.
    body = deepcopy(document.body)
    for finding in (
        *_type_findings(document, facts),
        *_schema_findings(document, facts, body),
        *_name_findings(document),
    ):
        found.setdefault(finding.path, finding)
    for finding in _framework_findings(document, facts):
        if finding.path in found:
            continue
        # A rule of the schema speaks of the whole map; the framework knows the very field.
        found.pop(f"spec.{facts.replicas}", None)
        found[finding.path] = finding
    for finding in _pod_findings(document, facts, body, sound=not found):
        if not any(_is_covered_by(finding, other) for other in found.values()):
            found[finding.path] = finding
    return sorted(found.values(), key=lambda finding: finding.line or 0)


def _is_covered_by(finding: Finding, other: Finding) -> bool:
    """Whether another one says it, too: of the same field, of something inside it, or that the whole is there twice."""
    if other.path == finding.path or other.path.startswith((f"{finding.path}.", f"{finding.path}[")):
        return True
    return other.message.startswith("Duplicate value") and finding.path.startswith(f"{other.path}.")


def _type_findings(document: Document, facts: JobKind) -> Iterator[Finding]:
    try:
        decode_document(document, facts.model)
    except DecodeError as error:
        yield _decode_finding(error, document.file or "")


def _schema_findings(document: Document, facts: JobKind, body: JSON) -> Iterator[Finding]:
    """What is wrong by its schema. The body loses fields that nobody knows, and values that cannot be."""
    structural = _structural_schema(facts.kind)
    try:
        for field in structural.prepare(body):
            yield _unknown_field(document, field, structural)
    except MetadataError as error:
        yield _finding(document, "metadata", str(error))
        return
    # Some mistakes keep the rules from being looked at. Once told, they are left out, to see what else there is.
    if isinstance(body.setdefault("metadata", {}), dict):
        body["metadata"].setdefault("name", "x")  # that it is missing is told elsewhere
    judged = deepcopy(body)
    for _ in range(_MAX_VALIDATION_PASSES):
        structural.default(judged)
        wrong = structural.validate(judged).problems
        for problem in wrong:
            if not problem.detail.startswith(_RULES_SKIPPED):
                field = "" if problem.field == "<nil>" else problem.field
                # A rule shows no value of its own, only what kind of thing it is about.
                ruled = problem.kind is ProblemKind.INVALID and problem.value in ("object", "array")
                path = path_steps(field, judged)
                yield _finding(document, field, *_problem_text(problem, path, ruled=ruled))
                _remove_value(judged, path)
                if not ruled:
                    _remove_value(body, path)
        if not any(problem.detail.startswith(_RULES_SKIPPED) for problem in wrong):
            return


def _problem_text(problem: FieldProblem, path: Steps, *, ruled: bool) -> tuple[str, str]:
    """What is wrong, and what to write. The pattern of a quantity is nothing for people."""
    if _QUANTITY_PATTERN not in problem.detail or not isinstance(problem.value, str):
        return problem.detail if ruled else problem.message, ""
    meant = _QUANTITY_WITH_UNIT.fullmatch(problem.value)
    field = path[-1] if path else ""
    # A thousand is written small, alone of all.
    unit = "" if meant is None else "k" if meant[2] == "K" else meant[2]
    write = f"{field}: {meant[1]}{unit}" if meant else ""
    return f'"{problem.value}" is no quantity; write a number, with a unit or without: 500m, 2, 16Gi', write


def _remove_value(body: Any, path: tuple[str | int, ...]) -> None:
    around = value_at(body, path[:-1]) if path else None
    if isinstance(around, dict):
        around.pop(path[-1], None)


@cache
def _structural_schema(kind: str) -> StructuralSchema:
    facts = next(facts for facts in TRAINING_KINDS if facts.kind == kind)
    return StructuralSchema.from_schema(crd_schema(facts))


def _unknown_field(document: Document, field: str, structural: StructuralSchema) -> Finding:
    path = path_steps(field)
    close = get_close_matches(str(path[-1]), _known_fields(structural, path[:-1]), 1, 0.6) if path else []
    value = value_at(document.body, path)
    write = f"{close[0]}: {value}" if close and isinstance(value, str | int) else f"{close[0]}: …" if close else ""
    return _finding(document, field, "unknown field", write)


def _known_fields(structural: StructuralSchema, path: tuple[str | int, ...]) -> list[str]:
    node: Any = structural.node
    for step in path:
        below = node.items if isinstance(step, int) else node.properties.get(step) or node.additional_properties
        if below is None:
            return []
        node = below
    return list(node.properties)


def _name_findings(document: Document) -> Iterator[Finding]:
    metadata = document.body.get("metadata")
    named = isinstance(metadata, dict) and (metadata.get("name") or metadata.get("generateName"))
    if not named:
        yield _finding(document, "metadata.name", "required field is missing", "name: my-job")


def _framework_findings(document: Document, facts: JobKind) -> Iterator[Finding]:
    framework = framework_of(facts.kind)
    try:
        job: TrainingJob = framework.default(decode_document(document, facts.model))
        wrong = problems(framework, job)
    except (DecodeError, AttributeError, TypeError):
        # Told by its types and its schema.
        return
    for problem in wrong:
        yield _finding(document, problem.path, problem.message)


def _pod_findings(document: Document, facts: JobKind, body: JSON, *, sound: bool) -> Iterator[Finding]:
    try:
        wrong = list(pod_problems(framework_of(facts.kind), body, sound=sound))
    except (DecodeError, AttributeError, KeyError, TypeError, ValueError):
        # A template that has not even the right types: told by its schema.
        return
    for path, message, write in wrong:
        yield Finding(document.file or "", message, document.line(path), path_text(path), write)


def framework_of(kind: str, settings: OperatorSettings = OperatorSettings()) -> Framework[Any]:  # noqa: B008 - frozen
    """The framework of a kind; by default as it is in a cluster."""
    from gangline.operator.engine import enabled_frameworks

    (found,) = enabled_frameworks(msgspec.structs.replace(settings, kinds=(kind,)))
    return found


def _finding(document: Document, field: str, message: str, write: str = "") -> Finding:
    path = path_steps(field, document.body)
    return Finding(document.file or "", message, document.line(path), path_text(path), write)


def _decode_finding(error: DecodeError, file: str) -> Finding:
    return Finding(error.file or file, error.problem, error.line, error.path, _number_remedy(error))


def _number_remedy(error: DecodeError) -> str:
    """A number that was quoted, or spelled out."""
    if error.expected not in ("integer", "int", "number") or not error.path:
        return ""
    field, text = error.path.rpartition(".")[2], error.actual.strip('"')
    if text.lower() in _NUMBER_WORDS:
        return f"{field}: {_NUMBER_WORDS.index(text.lower())}"
    return f"{field}: {text}" if text.lstrip("-").isdigit() else ""


def findings_json(findings: tuple[Finding, ...]) -> list[JSON]:
    """For programs."""
    found: list[JSON] = msgspec.to_builtins(findings)
    return found

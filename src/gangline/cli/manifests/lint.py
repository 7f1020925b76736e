"""Find mistakes in manifests without a server: each with file, line, path, and what to write."""

import re
import shlex
from collections.abc import Iterator, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from math import ceil
from typing import Any

import msgspec

from gangline.api.codec.codec import decode_document
from gangline.api.codec.documents import Document, documents
from gangline.api.codec.errors import DecodeError, path_text, value_text
from gangline.api.codec.errors import FieldPath as Steps
from gangline.api.kubeflow.kinds import JOB_APIS, TRAINING_KINDS, find_job_api
from gangline.api.kubeflow.training import GROUP, VERSION, JobKind, TrainingJob
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, QuantityError, meant_memory, similar_quantity
from gangline.base.errors import InputError
from gangline.cli.flags.durations import parse_duration
from gangline.cli.manifests.files import NO_OBJECTS, path_steps, value_at
from gangline.cli.manifests.lint_pods import pod_problems
from gangline.jobs.defaults import ignored_fields, problems
from gangline.jobs.framework import Framework
from gangline.operator.settings import OperatorSettings
from gangline.schema.crds.job_crds import crd_schema
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.structural.embedded_objects import MetadataError
from gangline.schema.structural.schema import StructuralSchema, compiled_schema

NO_KUBERNETES_OBJECT = "is no job file: it has neither apiVersion nor kind, which every object of Kubernetes has"
_NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MAX_VALIDATION_PASSES = 3
_QUANTITY_PATTERN = "in body should match '^[+-]?([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)(([KMGTPE]i)|"
_MINIMUM = re.compile(r"in body should be greater than or equal to (\d+)")
_WRONG_TYPE = re.compile(r'in body must be of type ([\w,]+): "')
_TYPE_WORDS = {
    "array": "a list",
    "object": "an object",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}
_INT_OR_STRING = "integer,string"
_MUST_BE = ", and must be "
_MISSING = ("Required value", "required field is missing")
_RULE_ERROR = re.compile(r"^no such key: |must validate at least one schema \(anyOf\)$")
_RULES_SKIPPED = "some validation rules were not checked"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A mistake in a manifest."""

    file: str
    message: str
    line: int | None = None
    path: str = ""
    # What to write instead, if that is known.
    write: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        text = ": ".join(part for part in (where, self.path, self.message) if part)
        return f"{text}\n  write:   {self.write}" if self.write else text


class LintError(InputError):
    """All mistakes in the jobs of files."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        # The caller that prints an error puts `error: ` before it.
        super().__init__(_error_lines(findings).removeprefix("error: "))
        self.findings = tuple(findings)


def _error_lines(findings: Sequence[Finding]) -> str:
    """A line for each finding, and below it what to write."""
    return "\n".join(f"error: {finding}".replace("\n  write:", "\n       write:") for finding in findings)


class LintResult(msgspec.Struct, frozen=True):
    """The number of training jobs and of other objects in a file, and every mistake."""

    file: str
    findings: tuple[Finding, ...] = ()
    jobs: int = 0
    other_objects: int = 0

    @property
    def has_content(self) -> bool:
        """Whether the file holds any object, correct or not."""
        return bool(self.findings or self.jobs or self.other_objects)

    def with_empty_finding(self) -> "LintResult":
        """The same result, with a finding if the file holds no object."""
        empty = Finding(self.file, f"{NO_OBJECTS}; write a job into it")
        return self if self.has_content else msgspec.structs.replace(self, findings=(empty,))


def check_text(text: str, file: str) -> LintResult:
    """All mistakes in a manifest. Raises nothing for a malformed one: that is a finding."""
    try:
        parsed = documents(text, file=file)
    except DecodeError as error:
        return LintResult(file, (_decode_finding(error, file),))
    findings: list[Finding] = []
    jobs = 0
    for document in parsed:
        kind = kind_of(document)
        if isinstance(kind, JobKind):
            jobs += 1
            findings += check_job(document, kind)
        elif isinstance(kind, Finding):
            findings.append(kind)
    return LintResult(file, tuple(findings), jobs, len(parsed) - jobs)


def kind_of(document: Document) -> JobKind | Finding | None:
    """The kind of a training job; a finding for a wrong apiVersion or kind; None for an object of any other kind."""
    version, kind = document.body.get("apiVersion"), document.body.get("kind")
    kinds = {job_kind.kind: job_kind for job_kind in TRAINING_KINDS}
    api_version = f"{GROUP}/{VERSION}"
    if version is None and kind is None:
        return Finding(document.file or "", NO_KUBERNETES_OBJECT, document.line())
    for field, value in (("apiVersion", version), ("kind", kind)):
        if not isinstance(value, str) or not value:
            write = f"apiVersion: {api_version}" if field == "apiVersion" and kind in kinds else ""
            return _finding(document, field, "required field is missing", write)
    if kind in kinds:
        if job_kind := find_job_api(version, kind):
            return job_kind
        versions = " or ".join(one.model.API_VERSION for one in JOB_APIS if one.kind == kind)
        return _finding(
            document, "apiVersion", f'is "{version}", but a {kind} is of {versions}', f"apiVersion: {api_version}"
        )
    if str(version).startswith(f"{GROUP}/"):
        # Also the names by which people call the kinds.
        folded = {name.lower(): name for name in kinds} | {"tensorflowjob": "TFJob", "torchjob": "PyTorchJob"}
        # What a job has in its spec says more than a name that is like another one.
        by_replicas = [one.kind for one in TRAINING_KINDS if value_at(document.body, ("spec", one.replicas))]
        close = [folded[name] for name in get_close_matches(str(kind).lower(), folded, 1, 0.6)]
        similar = [folded[str(kind).lower()]] if str(kind).lower() in folded else by_replicas or close
        write = f"kind: {similar[0]}" if similar else ""
        return _finding(document, "kind", f'is "{kind}"; write one of {", ".join(kinds)}', write)
    return None


def lint_error(*parsed: Document) -> LintError:
    """The error for documents of which each should hold a correct training job."""
    findings: list[Finding] = []
    for document in parsed:
        kind = kind_of(document)
        if isinstance(kind, JobKind):
            findings += check_job(document, kind)
        else:
            findings.append(kind or _unsupported_kind(document))
    return LintError(findings)


def _unsupported_kind(document: Document) -> Finding:
    kinds = ", ".join(kind.kind for kind in TRAINING_KINDS)
    return _finding(document, "kind", f'is "{document.body["kind"]}"; a run takes {kinds}')


def check_job(document: Document, kind: JobKind) -> list[Finding]:
    """All mistakes in a job: its types, its schema and rules, its framework, its pods. One finding for each field."""
    if other := _other_kind(document, kind):
        message = f'is "{kind.kind}", but spec.{other.replicas} is of a {other.kind}'
        return [_finding(document, "kind", message, f"kind: {other.kind}")]
    if twice := _replica_type_twice(document, kind):
        return [twice]
    findings: dict[str, Finding] = {}
    # The schema check removes from this copy what it reported, so that the pod check does not report it again.
    body = deepcopy(document.body)
    for finding in (
        *_type_findings(document, kind),
        *_schema_findings(document, kind, body),
        *_name_findings(document),
        *_memory_findings(document, kind, body),
    ):
        findings.setdefault(finding.path, finding)
    for finding in _framework_findings(document, kind):
        if finding.path != f"spec.{kind.replicas}":
            # A rule of the schema names the whole map; the framework names the field itself.
            findings.pop(f"spec.{kind.replicas}", None)
        findings.setdefault(finding.path, finding)
    for finding in _pod_findings(document, kind, body, sound=not findings):
        if not any(_is_covered_by(finding, other) for other in findings.values()):
            findings[finding.path] = finding
    if len(findings) > 1:
        # A rule that could not be evaluated says nothing that the others do not.
        findings = {path: one for path, one in findings.items() if not _RULE_ERROR.search(one.message)}
    distinct = [
        one
        for one in findings.values()
        if not any(
            _is_misspelt_by(one, other) or _is_inside(one, other) or _is_about_type(one, other)
            for other in findings.values()
        )
    ]
    return sorted(distinct, key=lambda finding: finding.line or 0)


def _is_about_type(finding: Finding, other: Finding) -> bool:
    """Whether a rule about all replicas names a replica type (`Chief must ...`) that the other finding is about."""
    return other.path.startswith(f"{finding.path}.{finding.message.partition(' ')[0]}.")


def _is_inside(finding: Finding, other: Finding) -> bool:
    """Whether the other finding is about a value around this one that is missing, or that has a wrong type."""
    is_whole = other.message in _MISSING or _MUST_BE in other.message
    return is_whole and finding.path.startswith((f"{other.path}.", f"{other.path}["))


def _other_kind(document: Document, kind: JobKind) -> JobKind | None:
    """The kind whose replicas a job has instead of its own, unless its containers are named as in its own."""
    if value_at(document.body, ("spec", kind.replicas)) is not None:
        return None
    for other in TRAINING_KINDS:
        for spec in (value_at(document.body, ("spec", other.replicas)) or {}).values():
            containers = value_at(spec, ("template", "spec", "containers")) or ()
            return other if all(value_at(one, ("name",)) != kind.container for one in containers) else None
    return None


def _replica_type_twice(document: Document, kind: JobKind) -> Finding | None:
    """A replica type that a job has in two spellings, as after `--set spec.tfReplicaSpecs.worker.replicas=2`."""
    names = value_at(document.body, ("spec", kind.replicas))
    spellings = {name.lower(): name for name in kind.types}
    for name in names if isinstance(names, dict) else ():
        proper = spellings.get(str(name).lower(), name)
        if proper != name and proper in names:
            return _finding(document, f"spec.{kind.replicas}.{name}", f"is there as {proper}, too; write {proper}")
    return None


def _is_misspelt_by(finding: Finding, other: Finding) -> bool:
    """Whether a field is missing because the other finding is its misspelt name."""
    parent, _, field = finding.path.rpartition(".")
    return (
        other.path.rpartition(".")[0] == parent and other.path != finding.path and other.write.startswith(f"{field}:")
    )


def _is_covered_by(finding: Finding, other: Finding) -> bool:
    """Whether another finding covers this one: of the same field, of a field inside it, or a duplicate around it."""
    if other.path == finding.path or other.path.startswith((f"{finding.path}.", f"{finding.path}[")):
        return True
    return other.message.startswith("Duplicate value") and finding.path.startswith(f"{other.path}.")


def _type_findings(document: Document, kind: JobKind) -> Iterator[Finding]:
    try:
        decode_document(document, kind.model)
    except DecodeError as error:
        yield _decode_finding(error, document.file or "")


def _schema_findings(document: Document, kind: JobKind, body: JSON) -> Iterator[Finding]:
    """The mistakes by the CRD's schema and rules. Removes unknown fields and invalid values from the body."""
    schema = _structural_schema(kind.scheme)
    try:
        for field in schema.prepare(body):
            yield _unknown_field(document, field, schema)
    except MetadataError as error:
        yield _finding(document, "metadata", str(error))
        return
    # Rules are skipped while there are other mistakes: remove the reported values and validate again.
    if isinstance(body.setdefault("metadata", {}), dict):
        body["metadata"].setdefault("name", "x")  # `_name_findings` reports a missing name
    validated = deepcopy(body)
    for _ in range(_MAX_VALIDATION_PASSES):
        schema.default(validated)
        problems = schema.validate(validated).problems
        for problem in problems:
            if not problem.detail.startswith(_RULES_SKIPPED):
                field = "" if problem.field == "<nil>" else problem.field
                # A problem of a CEL rule has no value, only the type of what it is about.
                from_rule = problem.kind is ProblemKind.INVALID and problem.value in ("object", "array")
                path = path_steps(field, validated)
                text = _type_text(problem, path, document.body) or _problem_text(problem, path, from_rule=from_rule)
                yield _named_container(_finding(document, field, *text), document, kind)
                _remove_value(validated, path)
                if not from_rule:
                    _remove_value(body, path)
        if not any(problem.detail.startswith(_RULES_SKIPPED) for problem in problems):
            return


def _problem_text(problem: FieldProblem, path: Steps, *, from_rule: bool) -> tuple[str, str]:
    """The message of a problem, and what to write. The pattern of a quantity is replaced by plain words."""
    minimum = _MINIMUM.search(problem.detail)
    if minimum and path:
        return f"is {problem.value}; write {minimum[1]} or more", f"{path[-1]}: {minimum[1]}"
    if _QUANTITY_PATTERN not in problem.detail or not isinstance(problem.value, str):
        return problem.detail if from_rule else problem.message, ""
    meant = similar_quantity(problem.value)
    write = f"{path[-1]}: {meant}" if meant and path else ""
    return f'"{problem.value}" is no quantity; write a number, with a unit or without: 500m, 2, 16Gi', write


def _type_text(problem: FieldProblem, path: Steps, body: JSON) -> tuple[str, str] | None:
    """The message and what to write, for a value of a wrong type; None for any other problem."""
    wrong_type = _WRONG_TYPE.search(problem.detail)
    if wrong_type is None or wrong_type[1] not in (*_TYPE_WORDS, _INT_OR_STRING) or not path:
        return None
    value = value_at(body, path)
    if wrong_type[1] == _INT_OR_STRING:
        return _fraction_text(value, path)
    shown = "is empty" if value is None else f"is {value_text(value)}"
    return f"{shown}{_MUST_BE}{_TYPE_WORDS[wrong_type[1]]}", _type_remedy(value, path, wrong_type[1])


def _fraction_text(value: Any, path: Steps) -> tuple[str, str] | None:
    """The same for a fraction as a quantity, which is text in JSON."""
    if not isinstance(value, float):
        return None
    if "/" in str(path[-1]):
        return f"is {value}, and there is no part of a device; write a whole number", f"{path[-1]}: {ceil(value)}"
    return f"is {value}{_MUST_BE}text", f'{path[-1]}: "{value}"'


def _memory_findings(document: Document, kind: JobKind, body: JSON) -> Iterator[Finding]:
    """Amounts of memory whose unit was forgotten."""
    replicas = value_at(body, ("spec", kind.replicas))
    for replica_type, spec in (replicas if isinstance(replicas, dict) else {}).items():
        containers = value_at(spec, ("template", "spec", "containers"))
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            for field in ("requests", "limits"):
                amount = value_at(container, ("resources", field, "memory"))
                try:
                    meant = meant_memory(Quantity.of(amount)) if amount is not None else ""
                except QuantityError:
                    continue
                if meant:
                    path = f"spec.{kind.replicas}.{replica_type}.template.spec.containers[{index}].resources.{field}.memory"
                    yield _finding(document, path, f"is {amount}, which is a number of bytes", f"memory: {meant}")


def _type_remedy(value: Any, path: Steps, expected: str) -> str:
    """The value as it was meant, in the type that is expected; empty if that is not clear."""
    before = f"{path[-1]}: " if isinstance(path[-1], str) else ""
    match expected, value:
        case "string", bool() | int() | float():
            return f'{before}"{value_text(value)}"'
        case "array", str() if path[-1] in ("command", "args"):
            return before + _json_list(_words(value))
        case "array", dict() if path[-1] == "env" and all(not isinstance(item, dict | list) for item in value.values()):
            return before + f"[{', '.join(_variable(name, item) for name, item in value.items())}]"
        case "object", str() if path[-2:-1] == ("env",) and "=" in value:
            name, _, text = value.partition("=")
            return before + _variable(name, text)
    return ""


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _json_list(words: Sequence[str]) -> str:
    return f"[{', '.join(value_text(word) for word in words)}]"


def _variable(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else value_text(value)
    return f"{{name: {name}, value: {value_text(text)}}}"


def _named_container(finding: Finding, document: Document, kind: JobKind) -> Finding:
    """The finding that no container has the name by which a kind trains, at the name of the one that is meant."""
    if f'named "{kind.container}"' not in finding.message or not finding.path.endswith(".containers"):
        return finding
    path = path_steps(finding.path, document.body)
    names = [str(container.get("name", "")) for container in value_at(document.body, path) or ()]
    similar = get_close_matches(kind.container, names, 1, 0.6) or (names if len(names) == 1 else [])
    if not similar:
        return finding
    field = f"{finding.path}[{names.index(similar[0])}].name"
    return _finding(document, field, finding.message, f"name: {kind.container}")


def _remove_value(body: Any, path: tuple[str | int, ...]) -> None:
    parent = value_at(body, path[:-1]) if path else None
    if isinstance(parent, dict):
        parent.pop(path[-1], None)


@cache
def _structural_schema(scheme: str) -> StructuralSchema:
    job_kind = next(job_kind for job_kind in JOB_APIS if job_kind.scheme == scheme)
    return compiled_schema(crd_schema(job_kind))


def _unknown_field(document: Document, field: str, schema: StructuralSchema) -> Finding:
    path = path_steps(field, document.body)
    value = value_at(document.body, path)
    siblings = _known_fields(schema, path[:-1]) if path else []
    # A field that belongs one level deeper, such as `cleanPodPolicy`, which earlier versions had in the spec.
    owner = next((name for name in siblings if path[-1] in _known_fields(schema, (*path[:-1], name))), "")
    if owner and isinstance(value, str | int):
        return _finding(document, field, "unknown field", f"{owner}: {{{path[-1]}: {value}}}")
    if path[-2:-1] == ("resources",) and "limits" in siblings:
        return _finding(document, field, "unknown field", f"limits: {{{path[-1]}: {value}}}")
    similar = get_close_matches(str(path[-1]), siblings, 1, 0.6) if path else []
    write = (
        f"{similar[0]}: {value}" if similar and isinstance(value, str | int) else f"{similar[0]}: …" if similar else ""
    )
    return _finding(document, field, "unknown field", write)


def _known_fields(schema: StructuralSchema, path: tuple[str | int, ...]) -> list[str]:
    node: Any = schema.node
    for step in path:
        child = node.items if isinstance(step, int) else node.properties.get(step) or node.additional_properties
        if child is None:
            return []
        node = child
    return list(node.properties)


def _name_findings(document: Document) -> Iterator[Finding]:
    metadata = document.body.get("metadata")
    has_name = isinstance(metadata, dict) and (metadata.get("name") or metadata.get("generateName"))
    if not has_name:
        yield _finding(document, "metadata.name", "required field is missing", "name: my-job")


def _framework_findings(document: Document, kind: JobKind) -> Iterator[Finding]:
    framework = framework_of(kind.scheme)
    try:
        job: TrainingJob = framework.default(decode_document(document, kind.model))
        field_problems = problems(framework, job)
    except (DecodeError, AttributeError, TypeError):
        # Types and schema report it.
        return
    for problem in field_problems:
        yield _named_container(_finding(document, problem.path, problem.message), document, kind)


def ignored_field_findings(document: Document) -> list[Finding]:
    """The fields of a correct training job that have no effect. Empty for any other object, and for a wrong job."""
    kind = kind_of(document)
    if not isinstance(kind, JobKind):
        return []
    framework = framework_of(kind.scheme)
    try:
        job: TrainingJob = framework.default(decode_document(document, kind.model))
        ignored = list(ignored_fields(framework, job))
    except (DecodeError, AttributeError, TypeError):
        return []
    return [_finding(document, problem.path, problem.message) for problem in ignored]


def _pod_findings(document: Document, kind: JobKind, body: JSON, *, sound: bool) -> Iterator[Finding]:
    try:
        refused = list(pod_problems(framework_of(kind.scheme), body, sound=sound))
    except (DecodeError, AttributeError, KeyError, TypeError, ValueError):
        # The template has wrong types: the schema reports it.
        return
    for path, message, write in refused:
        yield Finding(document.file or "", message, document.line(path), path_text(path), write)


def framework_of(kind: str, settings: OperatorSettings = OperatorSettings()) -> Framework[Any]:  # noqa: B008 - frozen
    """The framework of a kind, with the operator's settings; by default those of a cluster."""
    from gangline.operator.engine import enabled_frameworks

    (framework,) = enabled_frameworks(msgspec.structs.replace(settings, kinds=(kind,)))
    return framework


def _finding(document: Document, field: str, message: str, write: str = "") -> Finding:
    path = path_steps(field, document.body)
    return Finding(document.file or "", message, document.line(path), path_text(path), write)


def _decode_finding(error: DecodeError, file: str) -> Finding:
    return Finding(error.file or file, error.problem, error.line, error.path, _decode_remedy(error))


def _decode_remedy(error: DecodeError) -> str:
    """What to write instead of a value of a wrong type; empty if that is not clear.

    That is a number that was quoted, spelled out or has a unit (`"5"`, `five`, `1h`), or text that looks like one.
    """
    field, text = error.path.rpartition(".")[2], error.actual.strip('"')
    if not field or not text or text in ("object", "array", "null"):
        return ""
    if error.expected == "string" and error.path == "metadata.name":
        return f"name: job-{text}"
    if error.expected == "string":
        return f'{field}: "{text}"'
    if error.expected not in ("integer", "int", "number"):
        return ""
    if text.lower() in _NUMBER_WORDS:
        return f"{field}: {_NUMBER_WORDS.index(text.lower())}"
    if text.lstrip("-").isdigit():
        return f"{field}: {text}"
    return f"{field}: {seconds}" if "Seconds" in field and (seconds := _seconds(text)) else ""


def _seconds(text: str) -> int:
    """The seconds of a duration such as `1h`; 0 if it is none."""
    try:
        return int(parse_duration(text).total_seconds())
    except InputError:
        return 0


def findings_json(findings: tuple[Finding, ...]) -> list[JSON]:
    """Findings as JSON for programs."""
    items: list[JSON] = msgspec.to_builtins(findings)
    return items

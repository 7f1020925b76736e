"""What a dashboard does with files: checks, submits and fits the jobs in them, as the commands do."""

from typing import Any

from gangline.api.codec.documents import Document, documents
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.cli.manifests.files import NO_OBJECTS, ResourceFinder, field_line, resolve_manifest
from gangline.dashboard.tools import DashboardTools, FileProblem, FitView, SubmitResult, SubmittedObject
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import ApiError, Invalid, NotFound
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.summary.objects import resource_version

FIELD_MANAGER = "gangline-dashboard"
FILE = "job.yaml"


def dashboard_tools() -> DashboardTools:
    """The tools of a dashboard that the command line starts."""
    return DashboardTools(submit=submit_file, fit=fit_file)


async def submit_file(client: Client, text: str, namespace: str, dry_run: bool) -> SubmitResult:
    """Create or update the objects of a file. If lint or the server refuses one, none of them is stored."""
    problems = lint_problems(text)
    if problems:
        return SubmitResult(objects=[], problems=problems)
    parsed = documents(text, file=FILE)
    checked = await _write(client, parsed, namespace, dry_run=True)
    return checked if dry_run or checked.problems else await _write(client, parsed, namespace, dry_run=False)


def lint_problems(text: str) -> list[FileProblem]:
    """The mistakes in a file, each with its line."""
    # Imported here: schemas and their rules load slowly.
    from gangline.cli.manifests.lint import check_text

    try:
        findings = check_text(text, FILE).findings
    except InputError as error:
        return [FileProblem(line=0, text=str(error))]
    return [
        FileProblem(
            line=finding.line or 0,
            text=": ".join(filter(None, (finding.path, finding.message)))
            + (f"; write: {finding.write}" if finding.write else ""),
        )
        for finding in findings
    ]


async def _write(client: Client, parsed: list[Document], namespace: str, *, dry_run: bool) -> SubmitResult:
    options = WriteOptions(FIELD_MANAGER, dry_run=dry_run, field_validation=FieldValidation.STRICT)
    writer, finder = client.with_options(options), ResourceFinder(client)
    target = ServerTarget(Connection(server="", namespace=namespace), namespace)
    objects: list[SubmittedObject] = []
    problems: list[FileProblem] = []
    for document in parsed:
        try:
            objects.append(await _write_document(writer, finder, document, target))
        except (ApiError, InputError) as error:
            problems += _problems(document, error)
    if not parsed:
        problems.append(FileProblem(line=0, text=f"the file {NO_OBJECTS}"))
    return SubmitResult(objects=objects, problems=problems)


async def _write_document(
    writer: Client, finder: ResourceFinder, document: Document, target: ServerTarget
) -> SubmittedObject:
    resource, key, body = await resolve_manifest(finder, document, target)
    result: dict[str, Any]
    if not key.name:
        result, done = await writer.create(resource, body, namespace=key.namespace), "created"
    else:
        try:
            before = resource_version(await writer.get(resource, key))
        except NotFound:
            before = ""
        result = await writer.apply(resource, body, owner=FIELD_MANAGER)
        done = "created" if not before else "unchanged" if before == resource_version(result) else "configured"
    metadata = result["metadata"]
    return SubmittedObject(
        kind=resource.kind, name=metadata.get("name", key.name), namespace=metadata.get("namespace", ""), result=done
    )


def _problems(document: Document, error: ApiError | InputError) -> list[FileProblem]:
    if isinstance(error, Invalid) and error.causes:
        return [
            FileProblem(line=field_line(document, cause.field) or 0, text=f"{cause.field}: {cause.message}")
            for cause in error.causes
        ]
    return [FileProblem(line=document.line(()) or 0, text=" ".join(str(error).split()))]


async def fit_file(client: Client, text: str, namespace: str) -> FitView:
    """Whether the jobs of a file would fit now, all together. Raises `InputError`."""
    # Imported here: numpy takes a tenth of a second.
    from gangline.cli.plan.fit import fit_text, fit_to, read_cluster
    from gangline.cli.plan.objects import PlanTarget, job_documents

    jobs = job_documents(documents(text, file=FILE), FILE)
    cluster, notes = await read_cluster(client)
    results = fit_to(cluster, jobs, PlanTarget(default_namespace=namespace, bare=True))
    return FitView(text="\n".join(map(fit_text, results)), results=list(results), notes=notes)

"""Creates the objects of a run on a server: dependencies such as claims and config maps, then the jobs."""

from collections.abc import Sequence
from contextlib import suppress

from gangline.api.core import Namespace
from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.cli.manifests.files import ResourceFinder, resolve_manifest
from gangline.cli.manifests.server_errors import located_error
from gangline.cli.run.request import RunJob
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import AlreadyExists, ApiError, Invalid
from gangline.kube.options import FieldValidation, WriteOptions

# An unknown field is a mistake in the manifest: dropped silently, it would be searched for in the training.
STRICT = WriteOptions(field_validation=FieldValidation.STRICT)


async def submit_job(client: Client, kind: JobKind, body: JSON) -> TrainingJob:
    """Create a job, and its namespace where that does not exist: manifests for a cluster name one. Raises `ApiError`."""
    namespace = body["metadata"].get("namespace", "default")
    await _ensure_namespace(client, namespace)
    job: TrainingJob = await client.with_options(STRICT).create(kind.model, body, namespace=namespace)
    return job


async def create_dependencies(client: Client, jobs: Sequence[RunJob]) -> None:
    """Create the dependencies of the jobs, each in its own namespace or else in its job's.

    Raises `InputError` with file and line where the server refuses one.
    """
    strict, resources = client.with_options(STRICT), ResourceFinder(client)
    for job in jobs:
        target = ServerTarget(Connection(server=""), job.key().namespace)
        for document in job.dependencies:
            resource, key, body = await resolve_manifest(resources, document, target)
            if key.namespace:
                await _ensure_namespace(client, key.namespace)
            try:
                await strict.create(resource, body, namespace=key.namespace)
            except Invalid as error:
                raise InputError(located_error(document, error).removeprefix("error: ")) from error
            except ApiError as error:
                raise document.error(str(error)) from error


async def _ensure_namespace(client: Client, name: str) -> None:
    with suppress(AlreadyExists):
        await client.create(Namespace, {"metadata": {"name": name}})


def reject_dependencies(jobs: Sequence[RunJob], server_flags: str) -> None:
    """Raise `InputError` if a file holds dependencies: in a cluster they would stay behind after the run."""
    for document in (document for job in jobs for document in job.dependencies):
        kind = document.body["kind"]
        raise document.error(
            f'is "{kind}"; in a cluster a run makes jobs only: put it into a file of its own, and '
            f"gangline apply -f FILE {server_flags}",
            ("kind",),
        )

"""What the files of a run hold beside jobs: claims, config maps, secrets. Made before the jobs that need them."""

from collections.abc import Sequence
from contextlib import suppress

from gangline.api.core import Namespace
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.cli.manifests.files import ResourceFinder, resolve_manifest
from gangline.cli.manifests.server_errors import located_error
from gangline.cli.run.request import RunJob
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import AlreadyExists, ApiError, Invalid
from gangline.kube.options import FieldValidation, WriteOptions


async def create_dependencies(client: Client, jobs: Sequence[RunJob]) -> None:
    """Create them, each in its own namespace or in that of its job. Raises `InputError` with file and line."""
    strict = client.with_options(WriteOptions(field_validation=FieldValidation.STRICT))
    catalogue = ResourceFinder(client)
    for job in jobs:
        place = ServerTarget(Connection(server=""), job.key().namespace)
        for document in job.dependencies:
            resource, key, body = await resolve_manifest(catalogue, document, place)
            if key.namespace:
                with suppress(AlreadyExists):
                    await client.create(Namespace, {"metadata": {"name": key.namespace}})
            try:
                await strict.create(resource, body, namespace=key.namespace)
            except Invalid as error:
                raise InputError(located_error(document, error).removeprefix("error: ")) from error
            except ApiError as error:
                raise document.error(str(error)) from error


def reject_dependencies(jobs: Sequence[RunJob], where: str) -> None:
    """In a cluster they would stay when the run is over: whoever wants them there makes them. Raises `InputError`."""
    for document in (document for job in jobs for document in job.dependencies):
        kind = document.body["kind"]
        raise document.error(
            f'is "{kind}"; in a cluster a run makes jobs only: put it into a file of its own, and '
            f"gangline apply -f FILE {where}",
            ("kind",),
        )

"""What the files of a run hold beside jobs: claims, config maps, secrets. Made before the jobs that need them."""

from collections.abc import Sequence
from contextlib import suppress

from gangline.api.core import Namespace
from gangline.base.errors import InputError
from gangline.cli.connect.server import Place
from gangline.cli.manifests.files import Catalogue, placed
from gangline.cli.manifests.server_errors import located
from gangline.cli.run.request import Job
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import AlreadyExists, ApiError, Invalid
from gangline.kube.options import FieldValidation, WriteOptions


async def provide(client: Client, jobs: Sequence[Job]) -> None:
    """Create them, each in its own namespace or in that of its job. Raises `InputError` with file and line."""
    strict = client.writing(WriteOptions(field_validation=FieldValidation.STRICT))
    catalogue = Catalogue(client)
    for job in jobs:
        place = Place(Connection(server=""), job.key().namespace)
        for document in job.needs:
            resource, key, body = await placed(catalogue, document, place)
            if key.namespace:
                with suppress(AlreadyExists):
                    await client.create(Namespace, {"metadata": {"name": key.namespace}})
            try:
                await strict.create(resource, body, namespace=key.namespace)
            except Invalid as error:
                raise InputError(located(document, error).removeprefix("error: ")) from error
            except ApiError as error:
                raise document.error(str(error)) from error


def refuse(jobs: Sequence[Job], where: str) -> None:
    """In a cluster they would stay when the run is over: whoever wants them there makes them. Raises `InputError`."""
    for document in (document for job in jobs for document in job.needs):
        kind = document.body["kind"]
        raise document.error(
            f'is "{kind}"; in a cluster a run makes jobs only: put it into a file of its own, and '
            f"gangline apply -f FILE {where}",
            ("kind",),
        )

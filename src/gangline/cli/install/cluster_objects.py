"""Reads and writes the objects of an installation: server-side apply, deletion, dry runs. Decides nothing."""

from collections.abc import Sequence
from typing import Any

from gangline.api.meta import JSON, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.server import FIELD_MANAGER
from gangline.cli.install.missing_rights import MissingRight, missing_right_text
from gangline.cli.install.plan import CRD_KIND, InstallConflict, ObservedObject, field_managers, helm_release
from gangline.cli.install.record import (
    HANDOVER_NAME,
    RECORD_NAME,
    RECORD_SELECTOR,
    InstallationRecord,
    ObjectRef,
    object_ref,
    read_record,
    record_ref,
)
from gangline.cli.manifests.files import ResourceFinder
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.kube.errors import Conflict, Forbidden, Invalid, NotFound
from gangline.kube.options import DeletionPropagation, WriteOptions

INHERITED_MANAGERS = ("gangline", "helm", FIELD_MANAGER)
"""Managers whose fields of a CRD are taken over: the operator's --install-crds, a Helm release that has gone, this tool."""
OWN_RECORDS = (RECORD_NAME, HANDOVER_NAME)
"""Names of ConfigMaps that only this tool writes, whoever edited them."""
DEFAULT_NAMESPACE = "gangline"


class ClusterObjects:
    """The objects of installations on one server."""

    def __init__(self, client: Client, *, force: bool = False, force_crds: bool = False) -> None:
        """`force`: fields that another manager has set are taken over; `force_crds`: those of CRDs are."""
        self.client, self._force, self._force_crds = client, force, force_crds
        self._finder = ResourceFinder(client)
        self._dry_client = client.with_options(WriteOptions(FIELD_MANAGER, dry_run=True))

    async def resource(self, ref: ObjectRef) -> Resource[JSON]:
        """Where an object is served. Raises `InputError` if the server has no such kind."""
        resource = await self._finder.find(ref.api_version, ref.kind)
        if resource is None:
            raise InputError(
                f'{ref.display_name}: the server has no kind "{ref.kind}" in "{ref.api_version}"; install what defines'
                " it first, or leave this object out of the values"
            )
        return resource

    async def read(self, ref: ObjectRef) -> JSON | None:
        """The object with its kind; None if there is none, or no such kind."""
        resource = await self._finder.find(ref.api_version, ref.kind)
        if resource is None:
            return None
        try:
            body = await self.client.get(resource, ref.key)
        except NotFound:
            return None
        return {"apiVersion": ref.api_version, "kind": ref.kind, **body}

    async def read_record(self, namespace: str) -> InstallationRecord | None:
        """What is installed in a namespace; None if nothing is. Raises `MissingRight`."""
        ref = record_ref(namespace)
        try:
            body = await self.read(ref)
        except Forbidden as error:
            raise MissingRight(missing_right_text(ref, str(error))) from error
        return read_record(body) if body is not None else None

    async def installed_namespaces(self, *likely: str) -> list[str]:
        """The namespaces with an installation; without the right to list them all, those of the likely ones."""
        resource = await self.resource(record_ref(""))
        try:
            selector = Selector(labels=RECORD_SELECTOR)
            return sorted([body["metadata"]["namespace"] async for body in self.client.iterate(resource, selector)])
        except Forbidden:
            namespaces = dict.fromkeys((DEFAULT_NAMESPACE, *likely))
            return [namespace for namespace in namespaces if await self._has_record(namespace)]

    async def _has_record(self, namespace: str) -> bool:
        try:
            return await self.read(record_ref(namespace)) is not None
        except Forbidden:
            return False

    async def observe(self, bodies: Sequence[JSON], *, needs_cluster: bool) -> list[ObservedObject]:
        """What the server has of these objects, and what it would make of them. Changes nothing.

        Without `needs_cluster`, namespaces and CRDs that the user may not change are left alone if they exist.
        Raises `MissingRight` and `InstallConflict`.
        """
        return [await self._observe(body, needs_cluster=needs_cluster) for body in bodies]

    async def _observe(self, body: JSON, *, needs_cluster: bool) -> ObservedObject:
        ref = object_ref(body)
        resource = await self.resource(ref)
        try:
            existing = await self.read(ref)
            if helm_release(existing) and ref.kind != CRD_KIND:
                # The plan refuses it by the release's name. A try would only name the fields.
                return ObservedObject(body, existing)
            result = await self._apply(self._dry_client, resource, body)
        except NotFound:
            # Its namespace, or the role that it binds, does not exist yet.
            return ObservedObject(body)
        except Forbidden as error:
            if not needs_cluster and await self._exists_for_all(ref, body):
                return ObservedObject(body, is_left_alone=True)
            raise MissingRight(missing_right_text(ref, str(error))) from error
        except Invalid as error:
            if "field is immutable" not in str(error):
                raise
            delete = f"kubectl delete {resource.name} {ref.name}" + (f" -n {ref.namespace}" if ref.namespace else "")
            raise InstallConflict(
                f"{ref.display_name} was installed by other means, and cannot be changed into ours; delete it first (jobs"
                f" run on): {delete}"
            ) from error
        return ObservedObject(body, existing, {"apiVersion": ref.api_version, "kind": ref.kind, **result})

    async def _exists_for_all(self, ref: ObjectRef, body: JSON) -> bool:
        """Whether an object of the whole cluster exists that the user need not change."""
        if ref.kind == CRD_KIND:
            spec = body["spec"]
            version = spec["versions"][0]["name"]
            served: Resource[Any] = Resource(spec["group"], version, "", spec["names"]["plural"], dict)
            return await is_served(self.client, served)
        if ref.kind != "Namespace":
            return False
        try:
            await self.client.get(await self.resource(ref), ref.key)
        except Forbidden:
            # Whoever may write objects in it need not see the namespace itself.
            return True
        except NotFound:
            return False
        return True

    async def apply(self, body: JSON) -> JSON:
        """Apply one object. Raises `MissingRight` and `InstallConflict`."""
        ref = object_ref(body)
        try:
            return await self._apply(self.client, await self.resource(ref), body)
        except Forbidden as error:
            raise MissingRight(missing_right_text(ref, str(error))) from error

    async def _apply(self, client: Client, resource: Resource[JSON], body: JSON) -> JSON:
        force = self._force or (self._force_crds and resource.kind == CRD_KIND)
        try:
            return await client.apply(resource, body, owner=FIELD_MANAGER, force=force)
        except Conflict as error:
            managers = field_managers(cause.message for cause in error.causes)
            inherited = INHERITED_MANAGERS if resource.kind == CRD_KIND else (FIELD_MANAGER,)
            is_own = object_ref(body).name.startswith(OWN_RECORDS) or set(managers) <= set(inherited)
            if managers and is_own:
                return await client.apply(resource, body, owner=FIELD_MANAGER, force=True)
            if not managers:
                raise
            fields = ", ".join(dict.fromkeys(cause.field for cause in error.causes if cause.field))
            raise InstallConflict(
                f"{object_ref(body).display_name}: {', '.join(managers)} has set other values of {fields}; change them"
                " there, or take them over with --force-conflicts"
            ) from error

    async def delete(self, ref: ObjectRef, *, uid: str | None = None) -> bool:
        """Delete an object; False if there is none. Raises `MissingRight`."""
        resource = await self._finder.find(ref.api_version, ref.kind)
        if resource is None:
            return False
        try:
            await self.client.delete(resource, ref.key, uid=uid, propagation=DeletionPropagation.BACKGROUND)
        except NotFound:
            return False
        except Forbidden as error:
            raise MissingRight(missing_right_text(ref, str(error))) from error
        return True

    async def list_readable(self, resource: Resource[JSON], selector: Selector) -> list[JSON]:
        """The selected objects; none if the user may not list them, or the server has no such kind."""
        try:
            return [body async for body in self.client.iterate(resource, selector)]
        except (Forbidden, NotFound):
            return []

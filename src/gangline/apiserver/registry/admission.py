"""Admission: checks and defaults of writes that depend on other objects or on the user. Plugins are in `admission/`.

As in kube-apiserver, a write is first admitted by all plugins, which may change it, then validated by its strategy, and
last validated by all plugins, which may only refuse it. Where a webhook changes an object, the plugins admit it again.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.records import StoreWrite

GroupResource = tuple[str, str]


class WriteOperation(StrEnum):
    """The operations that admission distinguishes."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


OBJECT_WRITES = frozenset({WriteOperation.CREATE, WriteOperation.UPDATE})
"""The operations that have a new object."""


class AdmissionRequest(msgspec.Struct, frozen=True):
    """A write that is to be admitted."""

    operation: WriteOperation
    served_kind: ServedKind
    key: Key
    obj: JSON
    """The new object; empty for a deletion. Plugins change it in place, in `admit` and `mutate` only."""
    old: JSON | None
    """The stored object of an update or a deletion."""
    context: WriteContext
    warnings: list[str]
    """Warnings for the client; plugins append to it."""
    name_prefix: str = ""
    """The generateName of a new object that the client did not name."""

    @property
    def sent_name(self) -> str:
        """The name in errors of `admit`: kube-apiserver generates names after it."""
        return self.name_prefix or self.key.name

    @property
    def has_name_in_path(self) -> bool:
        """Whether the client named the object in the URL. A POST does not."""
        return self.operation is WriteOperation.UPDATE or self.context.check_create is not None

    @contextmanager
    def errors_with_warnings(self) -> Iterator[None]:
        """A `StatusError` in the block gets the warnings so far: the client sees them with the error."""
        try:
            yield
        except StatusError as error:
            error.warnings = tuple(self.warnings)
            raise

    def add_audit_annotation(self, key: str, value: str) -> None:
        """Annotate the audit event of the request, where one is recorded."""
        if self.context.audit_annotations is not None:
            self.context.audit_annotations[key] = value


class AdmissionPlugin:
    """One check or default. A plugin is asked about the operations and resources that it names."""

    name: ClassVar[str]
    """The plugin's name in kube-apiserver."""
    operations: ClassVar[frozenset[WriteOperation]] = frozenset({WriteOperation.CREATE})
    resources: ClassVar[frozenset[GroupResource] | None] = None
    """Group and plural. None: all."""
    subresources: ClassVar[frozenset[str] | None] = frozenset({""})
    """None: all."""

    async def prepare(self, request: AdmissionRequest) -> None:
        """Wait for what `admit` needs to know about an object that is created."""

    def admit(self, request: AdmissionRequest) -> None:
        """Change the new object. Raises `StatusError` to refuse it."""

    async def mutate(self, request: AdmissionRequest) -> Callable[[], Awaitable[None]] | None:
        """Ask others to change the object, which all plugins have admitted. Raises `StatusError` to refuse it.

        If it changed, the plugins admit it again, and then the returned function is called, once.
        """
        return None

    async def validate(self, request: AdmissionRequest) -> None:
        """Refuse the new object, which is complete and valid by now. Raises `StatusError`."""

    def joint_writes(self, request: AdmissionRequest) -> tuple[StoreWrite, ...] | None:
        """Writes to be committed together with the object, while no other object of the namespace has any.

        None: the object may be committed at any time. Raises `StatusError`.
        """
        return None


class _SelectedPlugins:
    """The plugins that are asked about one kind of write, by the methods that they implement."""

    def __init__(self, plugins: Iterable[AdmissionPlugin]) -> None:
        selected = tuple(plugins)

        def implementing(*methods: str) -> tuple[AdmissionPlugin, ...]:
            return tuple(
                plugin
                for plugin in selected
                if any(getattr(type(plugin), method) is not getattr(AdmissionPlugin, method) for method in methods)
            )

        self.preparing = frozenset(implementing("prepare"))
        self.admitting = implementing("prepare", "admit")
        self.mutating = implementing("mutate")
        self.validating = implementing("validate")
        self.joining = implementing("joint_writes")


class AdmissionChain:
    """The plugins of a server, in their order."""

    def __init__(self, plugins: Iterable[AdmissionPlugin] = ()) -> None:
        self._plugins = tuple(plugins)
        self._selected: dict[tuple[WriteOperation, GroupResource, str], _SelectedPlugins] = {}

    async def admit_new(self, request: AdmissionRequest) -> None:
        """Let all plugins change an object that is created; each may wait before. Raises `StatusError`."""
        selected = self._plugins_for(request)
        for plugin in selected.admitting:
            if plugin in selected.preparing:
                await plugin.prepare(request)
            plugin.admit(request)
        if selected.mutating:
            await self._mutate(request, selected)

    async def admit(self, request: AdmissionRequest) -> None:
        """Let all plugins change an object that is updated, or refuse a deletion. Raises `StatusError`."""
        selected = self._plugins_for(request)
        for plugin in selected.admitting:
            plugin.admit(request)
        if selected.mutating:
            await self._mutate(request, selected)

    async def _mutate(self, request: AdmissionRequest, selected: _SelectedPlugins) -> None:
        for plugin in selected.mutating:
            again = await plugin.mutate(request)
            if again is not None:
                for other in selected.admitting:
                    other.admit(request)
                await again()

    async def validate(self, request: AdmissionRequest) -> None:
        """Let all plugins check the complete object. Raises `StatusError`."""
        for plugin in self._plugins_for(request).validating:
            await plugin.validate(request)

    def joint_writes(self, request: AdmissionRequest) -> tuple[StoreWrite, ...] | None:
        """Writes to be committed together with the object; None if no plugin has any. Raises `StatusError`."""
        joined: tuple[StoreWrite, ...] | None = None
        for plugin in self._plugins_for(request).joining:
            writes = plugin.joint_writes(request)
            if writes is not None:
                joined = (joined or ()) + writes
        return joined

    def _plugins_for(self, request: AdmissionRequest) -> _SelectedPlugins:
        key = (request.operation, request.served_kind.resource.group_resource, request.context.subresource)
        selected = self._selected.get(key)
        if selected is None:
            operation, resource, subresource = key
            selected = self._selected[key] = _SelectedPlugins(
                plugin
                for plugin in self._plugins
                if operation in plugin.operations
                and (plugin.subresources is None or subresource in plugin.subresources)
                and (plugin.resources is None or resource in plugin.resources)
            )
        return selected


NO_ADMISSION = AdmissionChain()

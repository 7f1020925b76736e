"""Everything the server knows about a kind, in one place: where it lives, its types, its rules."""

from collections.abc import Callable, Iterator

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import SelectableFields
from gangline.apiserver.apply.tracked import Tracked, tracked
from gangline.apiserver.http.negotiation import ObjectKind
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.apiserver.registry.resources import Served
from gangline.schema.typed.strict_decoding import Decoder
from gangline.schema.typed.types import Type

Convert = Callable[[JSON], JSON]
Steps = tuple[str, ...]
"""The way to a field, from the object down."""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where the replicas of an object are."""

    spec: Steps = ("spec", "replicas")
    status: Steps = ("status", "replicas")
    selector: Steps = ("spec", "selector")
    """A selector, or the text of one. Empty where there is none."""


class Entry(msgspec.Struct, frozen=True):
    """One served version of one kind."""

    served: Served
    type: Type
    rules: Kind
    shown: ObjectKind
    fields: SelectableFields
    decoder: Decoder | None = None
    """Finds what a built-in kind's JSON has wrong; custom resources have their schema for that."""
    home: str | None = None
    """The group its objects are kept under, where that is another one."""
    read: Convert | None = None
    """Makes what is stored what this version shows. None: they are the same."""
    write: Convert | None = None
    """The other way round."""
    scale: ScalePaths = ScalePaths()
    """Meaningful where `scale` is a subresource."""
    deprecation: str = ""
    """What everybody who uses this version is told."""
    _tracked: dict[str, Tracked] = {}
    custom: bool = False
    """Defined by a CRD: list items carry their kind, strategic patch is refused, and lists say `continue: ""`."""

    def owned(self, subresource: str = "") -> Tracked:
        """How ownership is tracked for writes of the object, or of one of its subresources."""
        found = self._tracked.get(subresource)
        if found is None:
            found = self._tracked[subresource] = tracked(
                self.api_version,
                self.kind,
                self.type,
                subresource=subresource,
                custom=self.custom,
                status=self.has_status,
            )
        return found

    def show(self, data: bytes) -> bytes:
        """A stored object as this version shows it."""
        if self.read is None:
            return data
        return msgspec.json.encode(self.read(msgspec.json.decode(data)))

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource. A few kinds take it on creation all the same."""
        return self.served.subresource("status") is not None

    @property
    def stored_group(self) -> str:
        return self.group if self.home is None else self.home

    @property
    def group(self) -> str:
        return self.served.group

    @property
    def kind(self) -> str:
        return self.served.kind

    @property
    def plural(self) -> str:
        return self.served.plural

    @property
    def api_version(self) -> str:
        return f"{self.served.group}/{self.served.version}" if self.served.group else self.served.version


class Catalog:
    """Entries by where they live. Changes when CRDs come and go; readers always see a whole entry or none."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], Entry] = {}
        self._stored: dict[tuple[str, str], Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def add(self, entry: Entry, *, storage: bool = True) -> None:
        """Serve an entry. With `storage` it is the one whose version objects are kept in."""
        self._entries[entry.group, entry.served.version, entry.plural] = entry
        if storage:
            self._stored[entry.group, entry.plural] = entry

    def drop(self, group: str, plural: str) -> None:
        """Serve no version of a resource any more."""
        for where in [where for where in self._entries if where[0] == group and where[2] == plural]:
            del self._entries[where]
        self._stored.pop((group, plural), None)

    def find(self, group: str, version: str, plural: str) -> Entry | None:
        return self._entries.get((group, version, plural))

    def stored(self, group: str, plural: str) -> Entry | None:
        """The entry of the version that objects are kept in."""
        return self._stored.get((group, plural))

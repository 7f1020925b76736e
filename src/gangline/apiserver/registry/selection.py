"""Which objects of a kind a request means, and whether a stored one is among them."""

from collections.abc import Mapping

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import FieldSelector, LabelSelector, SelectableFields, SelectorError
from gangline.apiserver import refusals
from gangline.apiserver.store.records import Event, Record


class _Meta(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Meta


_labelled = msgspec.json.Decoder(_Labelled).decode


class Selection:
    """Labels and fields asked for. Empty: everything."""

    def __init__(self, labels: LabelSelector, fields: FieldSelector) -> None:
        self._labels, self._fields = labels, fields

    @classmethod
    def of(cls, query: Mapping[str, str], fields: SelectableFields) -> "Selection":
        """From a query. Raises `Refused` (400)."""
        try:
            return cls(
                LabelSelector.parse(query.get("labelSelector", "")),
                FieldSelector.parse(query.get("fieldSelector", ""), fields),
            )
        except SelectorError as error:
            raise refusals.bad_request(str(error)) from error

    def __bool__(self) -> bool:
        return bool(self._labels) or bool(self._fields)

    def takes(self, record: Record) -> bool:
        """Whether an object is selected."""
        if self._labels and not self._labels.matches(_labelled(record.data).metadata.labels):
            return False
        if not self._fields:
            return True
        obj: JSON = msgspec.json.decode(record.data)
        return self._fields.matches(obj)

    def told(self, event: Event) -> str | None:
        """What a watcher of this selection is told of a change: ADDED, MODIFIED, DELETED, or nothing.

        An object that comes into the selection is added, one that leaves it deleted.
        """
        if not self:
            if event.deleted:
                return "DELETED"
            return "ADDED" if event.before is None else "MODIFIED"
        was = event.before is not None and self.takes(event.before)
        if event.deleted:
            return "DELETED" if was else None
        now = self.takes(event.record)
        if now:
            return "MODIFIED" if was else "ADDED"
        return "DELETED" if was else None


EVERYTHING = Selection(LabelSelector(), FieldSelector())

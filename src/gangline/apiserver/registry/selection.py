"""The label and field selectors of a request, matched against stored objects."""

from collections.abc import Mapping

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import FieldSelector, LabelSelector, SelectableFields, SelectorError
from gangline.apiserver import errors as apierrors
from gangline.apiserver.store.records import StoreEvent, StoreRecord


class _LabelledMetadata(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class _LabelledObject(msgspec.Struct, gc=False):
    metadata: _LabelledMetadata


_decode_labels = msgspec.json.Decoder(_LabelledObject).decode


class Selection:
    """A label selector and a field selector. An empty selection matches everything and is falsy."""

    def __init__(self, labels: LabelSelector, fields: FieldSelector) -> None:
        self._labels, self._fields = labels, fields

    @classmethod
    def from_query(cls, query: Mapping[str, str], fields: SelectableFields) -> "Selection":
        """The selection of `labelSelector` and `fieldSelector`. Raises `StatusError` (400)."""
        try:
            return cls(
                LabelSelector.parse(query.get("labelSelector", "")),
                FieldSelector.parse(query.get("fieldSelector", ""), fields),
            )
        except SelectorError as error:
            raise apierrors.bad_request(str(error)) from error

    def __bool__(self) -> bool:
        return bool(self._labels) or bool(self._fields)

    def matches(self, record: StoreRecord) -> bool:
        if self._labels and not self._labels.matches(_decode_labels(record.data).metadata.labels):
            return False
        if not self._fields:
            return True
        obj: JSON = msgspec.json.decode(record.data)
        return self._fields.matches(obj)

    def watch_event_type(self, event: StoreEvent) -> str | None:
        """The type of the watch event for a change: ADDED, MODIFIED, DELETED, or None for no event.

        An object that starts to match is ADDED, an object that no longer matches is DELETED.
        """
        if not self:
            if event.deleted:
                return "DELETED"
            return "ADDED" if event.previous is None else "MODIFIED"
        matched = event.previous is not None and self.matches(event.previous)
        if event.deleted:
            return "DELETED" if matched else None
        if self.matches(event.record):
            return "MODIFIED" if matched else "ADDED"
        return "DELETED" if matched else None


SELECT_ALL = Selection(LabelSelector(), FieldSelector())

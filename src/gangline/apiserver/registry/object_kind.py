"""What the encoding of objects needs to know about a kind."""

from typing import TypeAlias

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.tables.table import TablePrinter

ObjectBody: TypeAlias = bytes | JSON
"""An object as clients see it, with kind and apiVersion: encoded (the fast case), or still to be encoded."""


class ObjectKind:
    """The list head, the list items and the table printer of a kind. Made once per served kind and version."""

    def __init__(
        self, api_version: str, kind: str, printer: TablePrinter, *, list_kind: str = "", custom: bool = False
    ) -> None:
        self.api_version, self.kind, self.printer, self.custom = api_version, kind, printer, custom
        self.list_kind = list_kind or f"{kind}List"
        quoted_kind, quoted_version = msgspec.json.encode(kind), msgspec.json.encode(api_version)
        self._prefixes = (
            b'{"kind":%b,"apiVersion":%b,' % (quoted_kind, quoted_version),
            b'{"apiVersion":%b,"kind":%b,' % (quoted_version, quoted_kind),
        )
        list_kind_json = msgspec.json.encode(self.list_kind)
        self.list_head = b'{"kind":%b,"apiVersion":%b,"metadata":' % (list_kind_json, quoted_version)

    def list_item_tail(self, body: ObjectBody) -> bytes | memoryview:
        """The encoded list item after its opening brace. Items of built-in kinds do not repeat kind and apiVersion."""
        if isinstance(body, dict):
            return msgspec.json.encode(body if self.custom else _without_kind(body))[1:]
        if self.custom:
            return memoryview(body)[1:]
        for prefix in self._prefixes:
            if body.startswith(prefix):
                return memoryview(body)[len(prefix) :]
        return msgspec.json.encode(_without_kind(msgspec.json.decode(body)))[1:]

    @property
    def go_type(self) -> str:
        """The Go type of the kind, as some error messages of kube-apiserver name it."""
        if self.custom:
            return "*unstructured.Unstructured"
        group = self.api_version.rpartition("/")[0].partition(".")[0]
        return f"*{group or 'core'}.{self.kind}"


def _without_kind(obj: JSON) -> JSON:
    return {name: field for name, field in obj.items() if name not in ("kind", "apiVersion")}

"""How `get` prints: its flags, the kinds printed in one table, and the cells of a row. Without click, to start fast."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from gangline.api.meta import JSON, Key
from gangline.cli.get.query import ObjectQuery, ServerTable, TableRow
from gangline.cli.output import formats, tables
from gangline.summary import job_rows
from gangline.summary.objects import JOB_KINDS, object_key, resource_name

NO_PODS: Mapping[Key, job_rows.PodDetails] = {}


class GetFlags(NamedTuple):
    """Which objects to print, and how."""

    selector: str = ""
    field_selector: str = ""
    output_format: formats.OutputFormat = formats.OutputFormat()
    watch: bool = False
    managed: bool = False
    headers: bool = True
    labels: bool = False
    sort_by: str = ""
    ignore_not_found: bool = False

    @property
    def wide(self) -> bool:
        return self.output_format.name == formats.WIDE


class KindGroup(NamedTuple):
    """Kinds that are printed in one table, each queried for the same names."""

    queries: tuple[ObjectQuery, ...]
    # All job kinds at once: the kind is a column.
    all_job_kinds: bool = False

    @property
    def is_jobs(self) -> bool:
        return self.queries[0].resource in JOB_KINDS


class TableView(NamedTuple):
    """The table of one group: which columns it has, and the cells of its rows."""

    group: KindGroup
    flags: GetFlags
    # Empty: all namespaces, so the namespace is a column.
    namespace: str
    # Several tables are printed: each name has its kind before it, `pod/`.
    prefix_kind: bool = False

    @property
    def show_namespace(self) -> bool:
        return not self.namespace and self.group.queries[0].resource.namespaced

    def job_header(self) -> list[str]:
        """The titles of the table of jobs."""
        return self._framed(
            "NAMESPACE",
            [
                *(["KIND"] if self.group.all_job_kinds else []),
                *job_rows.HEADER,
                *(job_rows.WIDE_HEADER if self.flags.wide else ()),
            ],
            "LABELS",
        )

    def job_row(self, body: JSON, now: datetime, pods: Mapping[Key, job_rows.PodDetails] = NO_PODS) -> list[str]:
        """The cells of a job. `pods`: what the pods of jobs tell, where a job's own status does not."""
        details = pods.get(object_key(body), job_rows.NO_DETAILS)
        row = job_rows.job_cells(body, now, wide=self.flags.wide, pods=details)
        if self.prefix_kind and not self.group.all_job_kinds:
            row[0] = formats.object_name(body)
        kind = [body.get("kind", "")] if self.group.all_job_kinds else []
        return self._framed_cells(body["metadata"], [*kind, *row])

    def without_ages(self, row: Sequence[str]) -> list[str]:
        """The cells of a job that change only if something happens."""
        return [cell for name, cell in zip(self.job_header(), row, strict=True) if name not in ("AGE", "DURATION")]

    def server_header(self, table: ServerTable) -> list[str]:
        """The titles of a table that the server made."""
        columns = table.column_definitions or ()
        names = [column.name.upper() for column in columns if self.flags.wide or not column.priority]
        return self._framed("NAMESPACE", names, "LABELS")

    def server_row(self, row: TableRow, table: ServerTable) -> list[str]:
        """The cells of a row. `table` has the column definitions: of a watch only the first table has them."""
        cells = [
            tables.cell_text(value)
            for column, value in zip(table.column_definitions or (), row.cells, strict=False)
            if self.flags.wide or not column.priority
        ]
        if self.prefix_kind and cells:
            cells[0] = resource_name(self.group.queries[0].resource, cells[0])
        return self._framed_cells(row.object.get("metadata") or {}, cells)

    def _framed_cells(self, metadata: JSON, cells: list[str]) -> list[str]:
        labels = tables.labels_text(metadata.get("labels")) if self.flags.labels else ""
        return self._framed(metadata.get("namespace", ""), cells, labels)

    def _framed(self, namespace: str, cells: list[str], labels: str) -> list[str]:
        """A row with the namespace before it and the labels after it, where these are shown."""
        return [*([namespace] if self.show_namespace else []), *cells, *([labels] if self.flags.labels else [])]

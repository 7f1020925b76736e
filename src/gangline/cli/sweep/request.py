"""What a sweep is asked for: its job and its options. Values only."""

from pathlib import Path
from typing import NamedTuple

from gangline.cli.flags.dashboard_options import DashboardOptions
from gangline.cli.flags.node_options import NodeOptions


class SweepSource(NamedTuple):
    """The job that is tried: a manifest file, or a command and its number of processes."""

    file: Path | None = None
    command: tuple[str, ...] = ()
    nproc: str = ""
    kind: str = ""

    @property
    def folder(self) -> Path:
        """The working directory of its processes."""
        return self.file.parent.resolve() if self.file is not None else Path.cwd()


class SweepRequest(NamedTuple):
    """The options of one `gangline sweep`."""

    source: SweepSource
    metric: str
    maximize: bool
    parallel: int
    timeout: float | None
    runs: Path
    output: str
    node: NodeOptions
    dashboard: DashboardOptions = DashboardOptions(dashboard=False)

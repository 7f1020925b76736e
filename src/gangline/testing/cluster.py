"""An API server with a node, in milliseconds, for tests of controllers and operators."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gangline.api.scheme import CORE, Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.local import cluster
from gangline.local.cluster import LocalCluster, LocalSettings


@asynccontextmanager
async def local_cluster(*, scheme: Scheme = CORE, clock: Clock | None = None) -> AsyncIterator[LocalCluster]:
    """A running embedded plane: `.client` speaks to it over HTTP, `.url` is for other clients. Leaves nothing."""
    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        settings = LocalSettings(folder=Path(folder), logs=Path(folder) / "logs")
        async with cluster.local_cluster(settings, scheme, clock or SystemClock()) as plane:
            yield plane

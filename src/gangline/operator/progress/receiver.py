"""The parts by which an operator in a cluster receives progress: endpoint, log reader and writer."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JOB_NAME, JobKind
from gangline.api.meta import Selector
from gangline.base.certificates.serving import tls_from_folder
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.pods import PodSubresources
from gangline.operator.progress.log_reader import ProgressLogFollower, ProgressLogReader
from gangline.operator.progress.metrics import ProgressMetrics
from gangline.operator.progress.writer import ProgressWriter
from gangline.operator.settings import ProgressSettings
from gangline.runtime.health import BindAddress
from gangline.runtime.manager import Manager


class ProgressReceiver:
    """Receives progress as the settings say."""

    def __init__(
        self,
        settings: ProgressSettings,
        kinds: Sequence[JobKind],
        client: Client,
        metrics: ProgressMetrics,
        clock: Clock,
    ) -> None:
        """`client` may write although this process does not lead. Raises `InputError` for unusable settings."""
        self._settings, self._kinds, self._client, self._clock = settings, kinds, client, clock
        self._address, self._metrics = BindAddress.parse(settings.address, "--progress-bind-address"), metrics
        folder = settings.cert_path
        self._tls = tls_from_folder(Path(folder), "--progress-cert-path") if folder else None
        self._writer = ProgressWriter(client, clock, metrics.count_write)

    def read_logs(self, manager: Manager, namespaces: Sequence[str]) -> None:
        """Let the manager read logs for progress while it leads, if the settings say so."""
        if not self._settings.log_streams:
            return
        pods = manager.informer(Pod, Selector(labels=JOB_NAME), namespaces=namespaces)
        follower = ProgressLogFollower(PodSubresources(self._client), self._writer, self._kinds, self._clock)
        reader = ProgressLogReader(pods, follower, self._settings.log_streams, self._metrics.set_log_streams)
        manager.add_runnable(reader.run)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Receive and write until the block ends."""
        async with self._writer.running():
            if self._address is None:
                yield
                return
            # With it comes an HTTP server, which most operators do not need.
            from gangline.operator.progress.endpoint import listening_socket, progress_endpoint

            async with progress_endpoint(
                self._client,
                self._kinds,
                self._writer,
                listening_socket(self._address),
                self._clock,
                tls=self._tls,
                count=self._metrics.count_report,
            ):
                yield

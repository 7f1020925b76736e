"""Records a cluster beside its dashboard: with the rights of this process, which need only be to read."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Never

from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import unwrap_exception_group
from gangline.history.cluster import ClusterRecorder
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from gangline.why.verdicts import verdict_maker

log = logging.getLogger(__name__)

RETRY_DELAY = timedelta(seconds=30)


async def record_cluster(connection: Connection, folder: Path, clock: Clock, namespace: str = "") -> Never:
    """Record one namespace, or all if that is empty, until cancelled. While the server does not answer it is tried again."""
    namespaces = (namespace,) if namespace else ()
    while True:
        try:
            async with HttpTransport(connection, agent="gangline-history") as transport:
                client = Client(transport, clock=clock)
                recorder = ClusterRecorder(
                    client,
                    folder,
                    clock,
                    connection.server,
                    namespaces=namespaces,
                    diagnose=verdict_maker(client, clock),
                )
                with unwrap_exception_group():
                    await recorder.run()
        except GanglineError as error:
            fields = {"error": str(error), "delay": RETRY_DELAY.total_seconds()}
            log.warning("the cluster is not recorded, will retry", extra=fields)
        await clock.sleep(RETRY_DELAY)

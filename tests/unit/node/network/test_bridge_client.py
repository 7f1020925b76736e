"""The connection to the process that holds the pods' network."""

import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from gangline.node.network.bridge_client import BridgeClient, NetworkUnavailable


class AnnouncingLock:
    """A lock that tells when somebody wants it."""

    def __init__(self) -> None:
        self.inner, self.wanted = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        self.wanted.set()
        self.inner.acquire()

    def __exit__(self, *error: object) -> None:
        self.inner.release()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has networks for pods")
def test_a_pod_that_leaves_while_the_node_closes_opens_no_new_connection(tmp_path: Path) -> None:
    client, lock = BridgeClient(tmp_path), AnnouncingLock()
    try:
        client.open()
    except NetworkUnavailable as error:
        pytest.skip(str(error))
    others = BridgeClient(tmp_path)
    others.open()
    client._lock = cast(Any, lock)
    try:
        lock.inner.acquire()
        leaving = threading.Thread(target=client.leave, args=("pod",))
        leaving.start()
        assert lock.wanted.wait(10)
        assert client._socket is not None
        client._socket.close()
        client._socket = None  # as `close` leaves it
        lock.inner.release()
        leaving.join(10)
        assert client._socket is None
    finally:
        client._lock = threading.Lock()
        client.close()
        others.stop()

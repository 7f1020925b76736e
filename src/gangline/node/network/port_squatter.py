"""Listens on a pod's ports before the pod's next process can, for the fault `port` of a drill."""

import socket
from collections.abc import Iterable
from datetime import timedelta

from gangline.api.meta import Key
from gangline.base.clock import Clock, Timer
from gangline.node.ports import LOOPBACK


class PortSquatters:
    """Listeners by pod name: the next process may be that of a new pod of the same name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scheduled: dict[Key, timedelta] = {}
        self._occupied: dict[Key, tuple[list[socket.socket], Timer]] = {}

    def schedule(self, pod: Key, duration: timedelta) -> None:
        """Occupy the pod's ports for this long when its next process is about to start."""
        self._scheduled[pod] = duration

    def occupy(self, pod: Key, ports: Iterable[int]) -> None:
        """Occupy the ports of a pod whose process is about to start, if that was scheduled."""
        duration = self._scheduled.pop(pod, None)
        if duration is None:
            return
        self.release(pod)
        listeners = [listener for number in sorted(set(ports)) if (listener := _listen(number)) is not None]
        self._occupied[pod] = listeners, self._clock.call_later(duration, lambda: self.release(pod))

    def release(self, pod: Key) -> None:
        """Release the ports, if they were occupied."""
        listeners, timer = self._occupied.pop(pod, ([], None))
        if timer is not None:
            timer.cancel()
        for listener in listeners:
            listener.close()

    def close(self) -> None:
        for pod in list(self._occupied):
            self.release(pod)


def _listen(number: int) -> socket.socket | None:
    try:
        return socket.create_server((LOOPBACK, number))
    except OSError:
        return None

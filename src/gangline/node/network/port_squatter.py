"""Somebody else on a pod's ports, on purpose: who listens there before the pod's next process can."""

import socket
from collections.abc import Iterable
from datetime import timedelta

from gangline.api.meta import Key
from gangline.base.clock import Clock, Timer
from gangline.node.ports import LOOPBACK


class PortSquatters:
    """By pod name, for the next process may be that of a new pod of the same name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._scheduled: dict[Key, timedelta] = {}
        self._occupied: dict[Key, tuple[list[socket.socket], Timer]] = {}

    def schedule(self, pod: Key, stays: timedelta) -> None:
        """When the pod's next process is about to start, somebody takes its ports, and stays for so long."""
        self._scheduled[pod] = stays

    def occupy(self, pod: Key, ports: Iterable[int]) -> None:
        """The pod's process is about to start. Nothing happens unless somebody is expected."""
        stays = self._scheduled.pop(pod, None)
        if stays is None:
            return
        self.release(pod)
        held = [each for number in sorted(set(ports)) if (each := _listen(number)) is not None]
        self._occupied[pod] = held, self._clock.call_later(stays, lambda: self.release(pod))

    def release(self, pod: Key) -> None:
        """Let the ports go, if they were taken."""
        held, timer = self._occupied.pop(pod, ([], None))
        if timer is not None:
            timer.cancel()
        for each in held:
            each.close()

    def close(self) -> None:
        for pod in list(self._occupied):
            self.release(pod)


def _listen(number: int) -> socket.socket | None:
    try:
        return socket.create_server((LOOPBACK, number))
    except OSError:
        return None

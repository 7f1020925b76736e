"""Somebody else on a pod's ports, on purpose: who listens there before the pod's next process can."""

import socket
from collections.abc import Iterable
from datetime import timedelta

from gangline.api.meta import Key
from gangline.base.clock import Clock, Timer
from gangline.node.ports import HOST


class Intruders:
    """By pod name, for the next process may be that of a new pod of the same name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expected: dict[Key, timedelta] = {}
        self._inside: dict[Key, tuple[list[socket.socket], Timer]] = {}

    def expect(self, pod: Key, stays: timedelta) -> None:
        """When the pod's next process is about to start, somebody takes its ports, and stays for so long."""
        self._expected[pod] = stays

    def enter(self, pod: Key, ports: Iterable[int]) -> None:
        """The pod's process is about to start. Nothing happens unless somebody is expected."""
        stays = self._expected.pop(pod, None)
        if stays is None:
            return
        self.leave(pod)
        held = [each for number in sorted(set(ports)) if (each := _listening(number)) is not None]
        self._inside[pod] = held, self._clock.call_later(stays, lambda: self.leave(pod))

    def leave(self, pod: Key) -> None:
        """Let the ports go, if they were taken."""
        held, timer = self._inside.pop(pod, ([], None))
        if timer is not None:
            timer.cancel()
        for each in held:
            each.close()

    def close(self) -> None:
        for pod in list(self._inside):
            self.leave(pod)


def _listening(number: int) -> socket.socket | None:
    try:
        return socket.create_server((HOST, number))
    except OSError:
        return None

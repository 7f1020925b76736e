"""How many requests at once are of use to a server.

A server answers as many at a time as it has cores and disks for; more only wait there, each on a connection that costs
it a handshake. How long an answer takes tells: as long as it takes no longer than with little to do, there is room for
another. A server far away takes long whatever it has to do, and gets as many as are wanted.
"""

LEAST = 4
"""So many at once are always sent, and no more while nothing is known of the server: its first answers shall be quick."""
QUEUE = 16
"""So many may wait at the server: it shall never have to wait for us."""
FORGETS = 30.0
"""Seconds after which the quickest answer is looked for anew: the server may have moved."""
_WEIGHT = 0.1


class Crowd:
    """Watches how long answers take. No clock of its own."""

    def __init__(self) -> None:
        # Seconds. The usual answer, and the quickest of late: what it takes when nothing waits.
        self._usual = self._quickest = 0.0
        self._since = 0.0

    def answered(self, seconds: float, now: float) -> None:
        """An answer took so long."""
        if not self._usual or now - self._since > FORGETS:
            self._usual = self._usual or seconds
            self._quickest, self._since = seconds, now
        self._quickest = min(self._quickest, seconds)
        self._usual += _WEIGHT * (seconds - self._usual)

    def is_enough(self, under_way: int) -> bool:
        """Whether one more would only wait."""
        if under_way < LEAST:
            return False
        if not self._usual:
            return True
        return under_way * (1 - self._quickest / self._usual) >= QUEUE

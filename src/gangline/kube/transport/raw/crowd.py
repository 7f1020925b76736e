"""How many requests at once are of use to a server.

A server answers as many at a time as it has cores and disks for; more only wait there, each on a connection that costs
it a handshake. How long an answer takes tells: as long as it takes no longer than with little to do, there is room for
another. A server far away takes long whatever it has to do, and gets as many as are wanted.
"""

MIN_CONCURRENCY = 4
"""So many at once are always sent, and no more while nothing is known of the server: its first answers shall be quick."""
MAX_SERVER_QUEUE = 16
"""So many may wait at the server: it shall never have to wait for us."""
BASELINE_RESET_SECONDS = 30.0
"""Seconds after which the quickest answer is looked for anew: the server may have moved."""
_AVERAGE_WEIGHT = 0.1


class ConcurrencyEstimate:
    """Watches how long answers take. No clock of its own."""

    def __init__(self) -> None:
        # Seconds. The usual answer, and the quickest of late: what it takes when nothing waits.
        self._average = self._minimum = 0.0
        self._minimum_since = 0.0

    def observe(self, seconds: float, now: float) -> None:
        """An answer took so long."""
        if not self._average or now - self._minimum_since > BASELINE_RESET_SECONDS:
            self._average = self._average or seconds
            self._minimum, self._minimum_since = seconds, now
        self._minimum = min(self._minimum, seconds)
        self._average += _AVERAGE_WEIGHT * (seconds - self._average)

    def is_saturated(self, under_way: int) -> bool:
        """Whether one more would only wait."""
        if under_way < MIN_CONCURRENCY:
            return False
        if not self._average:
            return True
        return under_way * (1 - self._minimum / self._average) >= MAX_SERVER_QUEUE

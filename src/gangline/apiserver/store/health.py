"""Whether a store can write to its disk."""

import logging

from gangline.apiserver.store.errors import DiskFull, StoreFailed

log = logging.getLogger(__name__)


class StoreHealth:
    """The last known state of the disk. Changes are logged, repetitions are not."""

    def __init__(self) -> None:
        self._error: StoreFailed | None = None

    @property
    def problem(self) -> str:
        """Why the store cannot write; empty if it can."""
        return self._error.cause if self._error is not None else ""

    def report(self, error: StoreFailed | None) -> None:
        """Record the result of a write or of a check."""
        if error is None:
            if self._error is not None:
                log.warning("the store can write again")
        elif self._error is None or self._error.cause != error.cause:
            # In the message, because `gangline up` writes only messages to its log.
            log.error("the store cannot write: %s", error)
        self._error = error

    def check_writable(self) -> None:
        """Raise `DiskFull` while the disk is known to be full. Other errors may have passed: a write finds out."""
        if isinstance(self._error, DiskFull):
            raise self._error.copy()

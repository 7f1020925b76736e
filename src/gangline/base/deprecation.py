"""Public names on their way out: they still work, and say what to write instead."""

import warnings
from typing import NamedTuple


class Deprecation(NamedTuple):
    """What to write instead, since which version, and in which version the name is gone."""

    instead: str
    since: str
    gone: str

    def warn(self, package: str, name: str, *, stacklevel: int) -> None:
        """Warn whoever uses the name: Python shows it once for every place that does."""
        told = (
            f"{package}.{name} is deprecated since {self.since} and goes with {self.gone}; "
            f"write {self.instead} instead"
        )
        warnings.warn(told, DeprecationWarning, stacklevel=stacklevel + 1)

"""Public names on their way out: they still work, and say what to write instead."""

import warnings
from typing import NamedTuple


class Deprecation(NamedTuple):
    """What to write instead, since which version, and in which version the name is gone."""

    replacement: str
    since: str
    removed_in: str

    def warn(self, package: str, name: str, *, stacklevel: int) -> None:
        """Warn whoever uses the name: Python shows it once for every place that does."""
        told = (
            f"{package}.{name} is deprecated since {self.since} and goes with {self.removed_in}; "
            f"write {self.replacement} instead"
        )
        warnings.warn(told, DeprecationWarning, stacklevel=stacklevel + 1)

"""Public packages whose names are looked up when first used, so that importing one imports nothing else.

Type checkers read their stubs, which `hack/stubs.py` writes. `typing` is not imported here: it takes half the time.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

_NO_DEPRECATIONS: Mapping[str, tuple[str, str, str]] = {}


def lazy_exports(
    package: str,
    homes: Mapping[str, Sequence[str]],
    deprecated: Mapping[str, tuple[str, str, str]] = _NO_DEPRECATIONS,
) -> tuple[list[str], Callable[[str], object]]:
    """`__all__` and `__getattr__` of a package, given which of its names live in which module.

    `deprecated` has the names that are going: what to write instead, since which version, and in which one they are
    gone. Using one warns. One that lives in no module any more is what is written instead under its old name.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name in deprecated:
            from gangline.base.lazy_exports import Deprecation

            Deprecation(*deprecated[name]).warn(package, name, stacklevel=2)
            name = name if name in home else deprecated[name][0]
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(home[name]), name)
        return found

    return sorted(set(home) - set(deprecated)), find


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

"""Public packages that import the modules of their names only when a name is first used.

Type checkers read the stubs of these packages, which `hack/stubs.py` writes. This module does not import `typing`,
which would double the time it takes.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

_NO_DEPRECATIONS: Mapping[str, tuple[str, str, str]] = {}
_NO_HOOKS: Mapping[str, Sequence[str]] = {}


def lazy_exports(
    package: str,
    homes: Mapping[str, Sequence[str]],
    deprecated: Mapping[str, tuple[str, str, str]] = _NO_DEPRECATIONS,
    hooks: Mapping[str, Sequence[str]] = _NO_HOOKS,
) -> tuple[list[str], Callable[[str], object]]:
    """`__all__` and `__getattr__` of a package. `homes` has the names of the package by the module that defines them.

    `deprecated` has, by name, its replacement, since which version it is deprecated, and in which it is removed. Using
    such a name warns. One that no module defines any more is an alias of its replacement. `hooks` are names that other
    programs look up, such as IPython; they are not exported, for their modules may need packages that are not installed.
    """
    exported = {name: module for module, names in homes.items() for name in names}
    home = exported | {name: module for module, names in hooks.items() for name in names}

    def find(name: str) -> object:
        if name in deprecated:
            replacement, since, removed_in = deprecated[name]
            message = (
                f"{package}.{name} is deprecated since {since} and goes with {removed_in}; write {replacement} instead"
            )
            # The caller: Python shows the warning once for every place that uses the name.
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            name = name if name in home else replacement
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(home[name]), name)
        return value

    return sorted(set(exported) - set(deprecated)), find

"""`gangline get` without the command tree: importing that takes longer than the server's answer.

Plain command lines are understood here. Whatever is not plain (help, mistakes, rare options) is left to click, so
there is one place that explains and complains. A test holds both to the same meaning.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

_FLAG_OPTIONS = {"-A": "all_namespaces", "--all-namespaces": "all_namespaces", "--no-headers": "no_headers"}
_FLAG_OPTIONS |= {
    "--show-labels": "labels",
    "--show-managed-fields": "managed",
    "--ignore-not-found": "ignore_not_found",
}
_VALUE_OPTIONS = {"-n": "namespace", "--namespace": "namespace", "-o": "form", "--output": "form"}
_VALUE_OPTIONS |= {"-l": "selector", "--selector": "selector", "--field-selector": "field_selector"}
_VALUE_OPTIONS |= {"--sort-by": "sort_by", "--kubeconfig": "kubeconfig", "--context": "context"}
_SERVER_OPTIONS = ("namespace", "all_namespaces", "kubeconfig", "context")


class PlainCommandLine(NamedTuple):
    """A plain command line: its words, and its options by name."""

    words: tuple[str, ...]
    options: dict[str, str | bool]


def plain_command_line(arguments: Sequence[str]) -> PlainCommandLine | None:
    """What the arguments of `get` mean; None for those that click should look at."""
    words: list[str] = []
    given: dict[str, str | bool] = {}
    left = list(arguments)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
        if not word.startswith("-") or word == "-":
            words.append(word)
        elif word in _FLAG_OPTIONS:
            given[_FLAG_OPTIONS[word]] = True
        elif name in _VALUE_OPTIONS:
            if not value and (equals or not left):
                return None
            given[_VALUE_OPTIONS[name]] = value or left.pop(0)
        else:
            return None
    return PlainCommandLine(tuple(words or ("jobs",)), given)


def run(arguments: Sequence[str]) -> int | None:
    """Do it and give the exit code; None if the command line is not plain."""
    found = plain_command_line(arguments)
    if found is None:
        return None
    _import_msgspec()
    from gangline.base.errors import GanglineError
    from gangline.cli.connect.server import ServerOptions
    from gangline.cli.errors import print_os_error
    from gangline.cli.get.run import GetFlags, run_get
    from gangline.cli.output import formats

    server = {name: value for name, value in found.options.items() if name in _SERVER_OPTIONS}
    options = {name: value for name, value in found.options.items() if name not in _SERVER_OPTIONS}
    try:
        form = formats.parse_format(str(options.pop("form", "")))
        headers = not options.pop("no_headers", False)
        flags = GetFlags(output_format=form, headers=headers, **options)  # type: ignore[arg-type]
        return run_get(found.words, ServerOptions(**server), flags)  # type: ignore[arg-type]
    except GanglineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return print_os_error(error)


def _import_msgspec() -> None:
    """Without `typing_extensions`, which it would take before `typing` where it is there, and which takes long.

    Python's own has all that it needs since 3.11. Others who want the package find it as ever.
    """
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401 - for the side effect
    finally:
        del sys.modules["typing_extensions"]

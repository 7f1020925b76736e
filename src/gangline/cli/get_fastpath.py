"""`gangline get` without click: importing the command tree takes longer than the server's answer.

Plain command lines are parsed here. All others (help, mistakes, rare options) are left to click, so that only click
explains and complains. A test checks that both parsers give the same options.
"""

import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

_FLAG_OPTIONS = {
    **dict.fromkeys(("-A", "--all-namespaces"), "all_namespaces"),
    "--no-headers": "no_headers",
    "--show-labels": "labels",
    "--show-managed-fields": "managed",
    "--ignore-not-found": "ignore_not_found",
}
_VALUE_OPTIONS = {
    **dict.fromkeys(("-n", "--namespace"), "namespace"),
    **dict.fromkeys(("-o", "--output"), "form"),
    **dict.fromkeys(("-l", "--selector"), "selector"),
    "--field-selector": "field_selector",
    "--sort-by": "sort_by",
    "--kubeconfig": "kubeconfig",
    "--context": "context",
}


class PlainCommandLine(NamedTuple):
    """A parsed command line: its words, and its options by click parameter name."""

    words: tuple[str, ...]
    options: dict[str, str | bool]


def plain_command_line(arguments: Sequence[str]) -> PlainCommandLine | None:
    """The arguments of `get`, parsed; None if click should parse them."""
    words: list[str] = []
    options: dict[str, str | bool] = {}
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=") if word.startswith("--") else (word[:2], "", word[2:])
        if not word.startswith("-") or word == "-":
            words.append(word)
        elif word in _FLAG_OPTIONS:
            options[_FLAG_OPTIONS[word]] = True
        elif name in _VALUE_OPTIONS:
            if not value and (equals or not remaining):
                return None
            options[_VALUE_OPTIONS[name]] = value or remaining.pop(0)
        else:
            return None
    return PlainCommandLine(tuple(words or ("jobs",)), options)


def run(arguments: Sequence[str]) -> int | None:
    """Run `get` and return the exit code; None, and nothing done, if click should parse the command line."""
    command_line = plain_command_line(arguments)
    if command_line is None:
        return None
    _import_msgspec()
    from gangline.base.errors import GanglineError
    from gangline.cli.connect.server import ServerOptions
    from gangline.cli.errors import print_os_error
    from gangline.cli.exit_codes import ERROR, INTERRUPTED
    from gangline.cli.get.run import run_get
    from gangline.cli.get.view import GetFlags
    from gangline.cli.output import formats

    options = command_line.options
    server = {name: options.pop(name) for name in ServerOptions._fields if name in options}
    try:
        output_format = formats.parse_format(str(options.pop("form", "")))
        headers = not options.pop("no_headers", False)
        flags = GetFlags(output_format=output_format, headers=headers, **options)  # type: ignore[arg-type]
        return run_get(command_line.words, ServerOptions(**server), flags)  # type: ignore[arg-type]
    except GanglineError as error:
        from gangline.base.invocation import with_own_command

        print(with_own_command(f"error: {error}"), file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        return print_os_error(error)


def exit_at_once(code: int) -> NoReturn:
    """End the process after writing its output: the kernel frees its memory faster than the interpreter would."""
    try:
        sys.stdout.flush()
    except OSError as error:
        from gangline.cli.errors import print_os_error

        code = print_os_error(error)
    sys.stderr.flush()
    os._exit(code)


def _import_msgspec() -> None:
    """Import msgspec without two modules that load slowly and that it does not need. Later imports of them work as usual.

    msgspec prefers `typing_extensions` to `typing`, which has all since Python 3.11. `uuid`, which msgspec imports,
    imports `platform` for the name of the system.
    """
    if "msgspec" in sys.modules:
        return
    stand_ins: dict[str, Any] = {
        "typing_extensions": None,
        "platform": SimpleNamespace(system=lambda: os.uname().sysname),
    }
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        import msgspec  # noqa: F401 - for the side effect
    finally:
        for name in stand_ins:
            del sys.modules[name]

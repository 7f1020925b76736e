"""A command that runs a Python function in a container. No shell is used, so nothing is expanded."""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gangline.sdk.build.pod_templates import escaped_word

# Runs in the container: python -c BOOTSTRAP CONFIG SOURCE. Uses only the standard library.
BOOTSTRAP = """
import json, os, signal, subprocess, sys, tempfile
config, source = json.loads(sys.argv[1]), sys.argv[2]
if config["packages"]:
    index = ["--index-url", config["index"]] if config["index"] else []
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *index, *config["packages"]], check=True)
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "program.py")
    with open(file, "w") as text:
        text.write(source)
    child = subprocess.Popen([*(config["launcher"] or [sys.executable, "-u"]), file])
    signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
""".strip()


RESULT_PREFIX = "gangline-result:"
"""The prefix of the log line with the return value of a function, as JSON."""
_PRINT_RESULT = """
import json as _json
print({mark!r} + _json.dumps(_returned), flush=True)
"""


def function_program(
    function: Callable[..., Any], parameters: Mapping[str, Any] | None, *, returns: bool = False
) -> str:
    """A program that calls the function with the parameters. With `returns` it prints the return value as JSON.

    Raises `ValueError` if the function or the parameters cannot be written as source.
    """
    if not callable(function):
        raise ValueError(f"train_func: is {function!r}; write a function")
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise ValueError("train_func: a lambda has no name to be called by; write it as a function with def")
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise ValueError(f"train_func: the source of {name} cannot be read: {error}") from error
    captured = _captured_names(function)
    if captured:
        raise ValueError(
            f"train_func: {name} uses {', '.join(captured)} from around it, which stays here; pass it in parameters"
        )
    call = f"{name}({'' if parameters is None else _parameters_literal(parameters)})"
    ending = f"_returned = {call}\n{_PRINT_RESULT.format(mark=RESULT_PREFIX)}" if returns else f"{call}\n"
    # So that names in annotations are not evaluated.
    return f"from __future__ import annotations\n\n{text}\n\n{ending}"


def _parameters_literal(parameters: Mapping[str, Any]) -> str:
    """The parameters as a Python literal. Raises `ValueError` unless they consist of numbers, texts, lists and dicts."""
    text = repr(dict(parameters))
    try:
        is_literal = ast.literal_eval(text) == dict(parameters)
    except (ValueError, SyntaxError):
        is_literal = False
    if not is_literal:
        raise ValueError(f"parameters: {text[:200]} cannot be written down; use numbers, texts, lists and dicts")
    return text


def _captured_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return tuple(code.co_freevars) if code is not None else ()


def program_command(
    source: str, *, packages: Sequence[str] = (), index: str | None = None, launcher: Sequence[str] = ()
) -> list[str]:
    """The container command that runs a program, with `launcher` (such as `torchrun`) instead of Python."""
    config = {"packages": list(packages), "index": index, "launcher": list(launcher)}
    return ["python", "-c", BOOTSTRAP, *map(escaped_word, (json.dumps(config), source))]

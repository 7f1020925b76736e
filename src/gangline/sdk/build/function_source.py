"""A Python function becomes a command that runs it somewhere else. No shell is in between, so nothing is expanded."""

import ast
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gangline.sdk.build.pod_templates import escaped_word

# Runs where the job runs: python -c BOOT CONFIG SOURCE. What it needs is in every Python.
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
"""How a line begins that tells what a function returned, as JSON."""
_PRINT_RESULT = """
import json as _json
print({mark!r} + _json.dumps(_returned), flush=True)
"""


def function_program(
    function: Callable[..., Any], parameters: Mapping[str, Any] | None, *, returns: bool = False
) -> str:
    """A program that calls the function with the parameters. Raises `ValueError` for what cannot travel.

    With `returns` it prints what the function returned in the end, which must be JSON.
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
    outside = _captured_names(function)
    if outside:
        raise ValueError(
            f"train_func: {name} uses {', '.join(outside)} from around it, which stays here; pass it in parameters"
        )
    call = f"{name}({'' if parameters is None else _parameters_literal(parameters)})"
    ending = f"_returned = {call}\n{_PRINT_RESULT.format(mark=RESULT_PREFIX)}" if returns else f"{call}\n"
    # So that what only annotations name need not be there.
    return f"from __future__ import annotations\n\n{text}\n\n{ending}"


def _parameters_literal(parameters: Mapping[str, Any]) -> str:
    """As Python has it. Raises `ValueError` for what is not made of numbers, texts, lists and dicts alone."""
    text = repr(dict(parameters))
    try:
        same = ast.literal_eval(text) == dict(parameters)
    except (ValueError, SyntaxError):
        same = False
    if not same:
        raise ValueError(f"parameters: {text[:200]} cannot be written down; use numbers, texts, lists and dicts")
    return text


def _captured_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return tuple(code.co_freevars) if code is not None else ()


def program_command(
    source: str, *, packages: Sequence[str] = (), index: str | None = None, launcher: Sequence[str] = ()
) -> list[str]:
    """The command of a container that runs a program: `launcher` (as `torchrun`) in place of Python."""
    config = {"packages": list(packages), "index": index, "launcher": list(launcher)}
    return ["python", "-c", BOOTSTRAP, *map(escaped_word, (json.dumps(config), source))]

"""A command that runs a Python function in a container. No shell is used, so nothing is expanded.

A function that uses only its parameters, installed modules and plain constants is sent as its source, which anybody can
read and any Python runs. Everything else is pickled (`function_pickle`).
"""

import ast
import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from gangline.sdk.build import remote_call
from gangline.sdk.build.function_names import import_statement, shown_file, used_globals
from gangline.sdk.build.pod_templates import escaped_word

# Runs in the container: python -c BOOTSTRAP CONFIG REMOTE_CALL SOURCE... Uses only the standard library.
BOOTSTRAP = """
import json, os, shutil, signal, subprocess, sys, tempfile
config, library, source = json.loads(sys.argv[1]), sys.argv[2], "".join(sys.argv[3:])
if config["packages"]:
    index = ["--index-url", config["index"]] if config["index"] else []
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *index, *config["packages"]])
    if done.returncode:
        sys.exit("gangline: pip could not install " + ", ".join(config["packages"]))
launcher = config["launcher"]
if launcher and not shutil.which(launcher[0]):
    sys.exit("gangline: " + launcher[0] + " is not installed here; add it to packages or to the image")
paths = [os.getcwd() if os.getcwd() != "/" else "", os.environ.get("GANGLINE_PATH"), os.environ.get("PYTHONPATH")]
if any(paths):
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
if "RANK" in os.environ and not launcher:
    os.environ.setdefault("LOCAL_RANK", "0")
    os.environ.setdefault("LOCAL_WORLD_SIZE", "1")
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "program.py")
    for name, text in ((file, source), (os.path.join(folder, "gangline_call.py"), library)):
        with open(name, "w", encoding="utf-8") as opened:
            opened.write(text)
    child = subprocess.Popen([*(launcher or [sys.executable, "-u"]), file])
    signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
""".strip()

WORD_LENGTH = 30_000
"""Linux takes 128 KiB in one word of a command; a character has up to four bytes."""
MAX_PROGRAM_SIZE = 512 * 1024
"""The largest program in bytes. A job has it once for each replica type, and an API server takes 1.5 MiB."""
CONSTANT_TYPES = (int, float, complex, str, bytes, bool, type(None))
MAX_CONSTANT_LENGTH = 500
"""The longest constant that is written into the source."""


class FunctionProgram(NamedTuple):
    """The text of a Python program that calls a function."""

    text: str
    # Whether it needs the Python version of this process.
    is_pickled: bool = False


class FunctionCall(NamedTuple):
    """How the function is called."""

    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = {}


def function_program(
    function: Callable[..., Any], parameters: Mapping[str, Any] | None, *, returns: bool = False
) -> FunctionProgram:
    """A program that calls the function with the parameters. With `returns` it prints the return value.

    Raises `ValueError` if the function cannot be called like this, or cannot be sent.
    """
    _check_callable(function)
    call = _function_call(function, parameters)
    source = _portable_source(function) if _is_literal([call.arguments, dict(call.keywords)]) else None
    if source is not None:
        code = getattr(function, "__code__", None)
        place = (shown_file(code.co_filename), code.co_firstlineno) if code is not None else None
        words = [
            function.__name__,
            repr(call.arguments),
            repr(dict(call.keywords)),
            f"returns={returns}",
            f"place={place!r}",
        ]
        guard = 'if __name__ == "__main__":'
        program = FunctionProgram(
            # So that names in annotations are not evaluated.
            f"from __future__ import annotations\n\n{source}\n\n{guard}\n"
            f"    import gangline_call\n\n    gangline_call.call({', '.join(words)})\n"
        )
    else:
        # Imported here: it imports cloudpickle.
        from gangline.sdk.build.function_pickle import pickled_program

        text = pickled_program(function, call.arguments, call.keywords, returns=returns)
        program = FunctionProgram(text, is_pickled=True)
    size = len(program.text.encode())
    if size > MAX_PROGRAM_SIZE:
        from gangline.sdk.build.function_pickle import largest_capture

        raise ValueError(
            f"{display_name(function)} is {size // 1024} KiB with what it uses{largest_capture(function, call.arguments, call.keywords)}; "
            f"a job takes {MAX_PROGRAM_SIZE // 1024} KiB: load data inside the function, from a file or a volume"
        )
    return program


def program_command(
    source: str, *, packages: Sequence[str] = (), index: str | None = None, launcher: Sequence[str] = ()
) -> list[str]:
    """The container command that runs a program, with `launcher` (such as `torchrun`) instead of Python."""
    config = {"packages": list(packages), "index": index, "launcher": list(launcher)}
    parts = [source[start : start + WORD_LENGTH] for start in range(0, len(source), WORD_LENGTH)]
    return ["python", "-c", BOOTSTRAP, *map(escaped_word, (json.dumps(config), _remote_call_text(), *parts))]


@functools.cache
def _remote_call_text() -> str:
    return Path(remote_call.__file__).read_text(encoding="utf-8")


def display_name(function: Callable[..., Any]) -> str:
    """The name of a function as messages show it."""
    if isinstance(function, functools.partial):
        return display_name(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def _check_callable(function: Any) -> None:
    """Raise `ValueError` for what a replica cannot call to the end."""
    if not callable(function):
        raise ValueError(f"train_func: is {function!r}; write a function")
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    name = display_name(function)
    if inspect.isclass(inner):
        raise ValueError(f"{name} is a class; write a function that makes one and calls it")
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise ValueError(f"{name} is async, and nobody awaits it; write a function that calls asyncio.run({name}())")
    if inspect.isgeneratorfunction(inner):
        raise ValueError(f"{name} is a generator, and nobody reads it; return a list instead of yield")


def _function_call(function: Callable[..., Any], parameters: Mapping[str, Any] | None) -> FunctionCall:
    """The call: nothing without parameters, else the dict; by name if the function takes several arguments."""
    name = display_name(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Of a function in C nothing is known.
        return FunctionCall() if parameters is None else FunctionCall((dict(parameters),))
    if parameters is None:
        try:
            signature.bind()
        except TypeError as error:
            raise ValueError(f"{name}{signature}: {error}; write parameters={{...}}") from None
        return FunctionCall()
    by_name, by_dict = FunctionCall(keywords=dict(parameters)), FunctionCall((dict(parameters),))
    message = ""
    for call in (by_name, by_dict) if len(signature.parameters) > 1 else (by_dict, by_name):
        try:
            signature.bind(*call.arguments, **call.keywords)
        except TypeError as error:
            message = str(error) if call is by_name else message
        else:
            return call
    raise ValueError(f"{name}{signature} does not take these parameters: {message}")


def _is_literal(value: Any) -> bool:
    """Whether the value, written down by Python, is read back as the same."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except Exception:  # noqa: BLE001 - such as a comparison that an array refuses
        return False


def _portable_source(function: Callable[..., Any]) -> str | None:
    """The source of a function with the imports and constants that it uses; None if it must be pickled."""
    if not isinstance(function, FunctionType) or function.__closure__ or hasattr(function, "__wrapped__"):
        return None
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError):
        return None
    if not _is_plain_definition(tree, function):
        return None
    lines: list[str] = []
    for name, value in used_globals(function).items():
        if value is function:
            continue
        line = _constant_statement(name, value) or import_statement(name, value)
        if line is None:
            return None
        lines.append(line)
    return "\n".join([*lines, *([""] if lines else []), text])


def _is_plain_definition(tree: ast.Module, function: FunctionType) -> bool:
    """Whether the source defines this function by itself: no lambda, no decorator, no default that is a name."""
    match tree.body:
        case [ast.FunctionDef() as definition]:
            defaults = (*definition.args.defaults, *definition.args.kw_defaults)
            return (
                definition.name == function.__name__
                and not definition.decorator_list
                and all(_is_literal_node(default) for default in defaults if default is not None)
            )
    return False


def _is_literal_node(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _constant_statement(name: str, value: Any) -> str | None:
    if type(value) not in CONSTANT_TYPES and not (
        isinstance(value, tuple) and all(type(item) in CONSTANT_TYPES for item in value)
    ):
        return None
    text = repr(value)
    return f"{name} = {text}" if len(text) <= MAX_CONSTANT_LENGTH and _is_literal(value) else None

"""Runs in a replica: calls a function or a notebook cell, prints what it returns, records why it failed.

It is sent as text beside the program (`function_program`), so it uses the standard library only and any Python from 3.8.
"""

from __future__ import annotations

import base64
import json
import linecache
import os
import pickle
import sys
import traceback
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

RESULT_PREFIX = "gangline-result:"
"""The prefix of the log line with the return value of a function."""
MAX_RESULT_LENGTH = 1 << 20
"""The longest result line. Logs are no place for models."""
RESULTS_VARIABLE = "GANGLINE_RESULTS"
"""The variable with the folder for pickled return values, where replicas are processes of the caller's machine."""
MAX_MESSAGE_LENGTH = 950
"""The longest termination message: a job's status keeps 1000 characters of it."""

_SHOWN_FILES: dict[str, str] = {}
"""Files in tracebacks, and how they are shown instead."""


def call(
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    keywords: Mapping[str, Any] | None = None,
    *,
    returns: bool = False,
    place: tuple[str, int] | None = None,
) -> None:
    """Call the function, and print its return value. An error ends the process after it was recorded.

    `place` has the file and line where the user wrote the function: tracebacks name it.
    """
    if place is not None:
        _relocate(function, *place)
    try:
        value = function(*arguments, **(keywords or {}))
    except Exception as error:  # noqa: BLE001 - every error of the user's function is recorded
        _fail(error)
    except SystemExit as end:
        if isinstance(end.code, str):
            _record(f"SystemExit: {end.code}")
        raise
    else:
        if returns:
            sys.stdout.write(f"{RESULT_PREFIX}{result_text(value)}\n")
            sys.stdout.flush()


def call_pickled(
    pickled: tuple[str, str, str], sources: Mapping[str, tuple[str, str]], *, returns: bool = False
) -> None:
    """Call a pickled function. `sources` has the name to show and the text of files that tracebacks mention."""
    for file, (shown, text) in sources.items():
        _keep_source(file, text)
        _SHOWN_FILES[file] = shown
    function, arguments, keywords = _unpickle(*pickled)
    call(function, arguments, keywords, returns=returns)


def call_cell(source: str, name: str, names: Sequence[str] = (), pickled: tuple[str, str, str] | None = None) -> None:
    """Run the cell of a notebook, with pickled variables. Rank 0 returns the values of `names`."""
    scope = sys.modules["__main__"].__dict__
    if pickled is not None:
        scope.update(_unpickle(*pickled))
    _keep_source(name, source)

    def run() -> dict[str, Any]:
        exec(compile(source, name, "exec"), scope)  # noqa: S102 - it is the user's program
        if _rank():
            return {}
        missing = [each for each in names if each not in scope]
        if missing:
            raise NameError(f"--get: the cell has no variable {', '.join(missing)}")
        return {each: scope[each] for each in names}

    call(run, returns=bool(names))


def _unpickle(payload: str, library: str, python: str) -> Any:
    """The pickled value. `library` is the source of cloudpickle, `python` the version that pickled it."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != python:
        _refuse(
            f"the function was pickled by Python {python}, and the image has {here}; use an image with Python {python}, "
            "or let the function import what it uses itself: then it is sent as source"
        )
    _install_cloudpickle(library)
    try:
        return pickle.loads(zlib.decompress(base64.b64decode(payload)))  # noqa: S301
    except ImportError as error:
        _refuse(f"the function needs a module that is not installed here: {error}; add it to packages or to the image")


def result_text(value: Any) -> str:
    """The result line: the value as JSON if it can be, and pickled if JSON is not exact."""
    line: dict[str, Any] = {"rank": _rank()}
    try:
        line["value"] = json.loads(json.dumps(value, default=_json_value))
    except (TypeError, ValueError, RecursionError) as error:
        line["error"] = f"{type(value).__name__} cannot be written as JSON: {error}"
    if "value" not in line or not _is_equal(line["value"], value):
        _add_pickle(line, value)
    text = json.dumps(line)
    if len(text) <= MAX_RESULT_LENGTH:
        return text
    limit = f"{len(text)} bytes, and at most {MAX_RESULT_LENGTH} are sent; write it to a file"
    return json.dumps({"rank": line["rank"], "error": f"{type(value).__name__}: {limit}"})


def _is_equal(first: Any, second: Any) -> bool:
    try:
        return bool(first == second)
    except Exception:  # noqa: BLE001 - arrays and classes of the user refuse to be compared
        return False


def _json_value(value: Any) -> Any:
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        raise TypeError(f"{type(value).__name__} is neither a number, a text, a list nor a dict")
    return to_list()


def _add_pickle(line: dict[str, Any], value: Any) -> None:
    pickler = sys.modules.get("cloudpickle.cloudpickle", pickle)
    folder = os.environ.get(RESULTS_VARIABLE, "")
    try:
        content = pickler.dumps(value)
        if os.path.isdir(folder):  # noqa: PTH112
            line["file"] = os.path.join(folder, f"{line['rank']}-{os.getpid()}.pickle")  # noqa: PTH118
            line.pop("value", None)
            with open(line["file"], "wb") as file:  # noqa: PTH123
                file.write(content)
        else:
            line["pickle"] = base64.b64encode(zlib.compress(content)).decode()
    except Exception as error:  # noqa: BLE001 - picklers raise anything
        line.setdefault("error", f"{type(value).__name__} cannot be sent: {error}")


def _rank() -> int | None:
    for variable in ("RANK", "PROCESS_ID"):
        text = os.environ.get(variable, "")
        if text.isdigit():
            return int(text)
    return None


def _install_cloudpickle(library: str) -> None:
    """The pickle's own cloudpickle, whatever the image has: its names are those that the pickle uses."""
    package, module = types.ModuleType("cloudpickle"), types.ModuleType("cloudpickle.cloudpickle")
    sys.modules.update({"cloudpickle": package, "cloudpickle.cloudpickle": module})
    exec(compile(zlib.decompress(base64.b64decode(library)), "cloudpickle.py", "exec"), module.__dict__)  # noqa: S102
    package.__dict__.update({name: value for name, value in module.__dict__.items() if not name.startswith("_")})
    package.__dict__["cloudpickle"] = module
    package.__path__ = []


def _keep_source(file: str, text: str) -> None:
    """Let tracebacks show lines of a file that is not here."""
    linecache.cache[file] = (len(text), None, [f"{line}\n" for line in text.split("\n")], file)


def _relocate(function: Any, file: str, line: int) -> None:
    """Give a function of this program the file and line where the user wrote it."""
    code = function.__code__
    shift = line - code.co_firstlineno
    lines = linecache.getlines(code.co_filename)
    _keep_source(file, "\n" * max(0, shift) + "".join(lines[max(0, -shift) :]))
    function.__code__ = _relocated_code(code, file, shift)


def _relocated_code(code: types.CodeType, file: str, shift: int) -> types.CodeType:
    constants = tuple(
        _relocated_code(each, file, shift) if isinstance(each, types.CodeType) else each for each in code.co_consts
    )
    return code.replace(co_filename=file, co_firstlineno=code.co_firstlineno + shift, co_consts=constants)


def _fail(error: BaseException) -> NoReturn:
    """Print the user's part of the traceback, record its end, and exit."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames)
    for file, shown in _SHOWN_FILES.items():
        lines = [line.replace(f'File "{file}"', f'File "{shown}"') for line in lines]
    sys.stdout.flush()
    sys.stderr.write("".join(lines))
    sys.stderr.flush()
    _record(failure_message(lines, "".join(traceback.format_exception_only(type(error), error))))
    sys.exit(1)


def failure_message(lines: Sequence[str], error: str) -> str:
    """The last frames of a formatted traceback and the error itself, short enough for a termination message."""
    if len(error) > MAX_MESSAGE_LENGTH // 2:
        error = f"{error[: MAX_MESSAGE_LENGTH // 2]} ...\n"
    header = "Traceback (most recent call last):\n"
    room = MAX_MESSAGE_LENGTH - len(header) - len(error)
    kept: list[str] = []
    for frame in reversed([line for line in lines if line.startswith('  File "')]):
        if len(frame) > room:
            break
        room -= len(frame)
        kept.insert(0, frame)
    return header + "".join(kept) + error.rstrip("\n")


def _refuse(text: str) -> NoReturn:
    _record(text)
    sys.exit(f"gangline: {text}")


def _record(text: str) -> None:
    """Write the termination message of the container, unless another process of it has."""
    file = os.environ.get("GANGLINE_TERMINATION_LOG") or "/dev/termination-log"
    try:
        if os.path.exists(file) and not os.path.getsize(file):  # noqa: PTH110, PTH202
            with open(file, "w") as message:  # noqa: PTH123
                message.write(text)
    except OSError:
        return

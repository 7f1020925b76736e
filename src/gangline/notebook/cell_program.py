"""A notebook cell as a program. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from IPython.core.error import UsageError

from gangline.sdk.build.function_pickle import pickled_variables
from gangline.sdk.build.function_source import MAX_PROGRAM_SIZE, FunctionProgram


def cell_program(cell: str, name: str, get: Sequence[str], sent: Mapping[str, Any]) -> FunctionProgram:
    """A program that runs a cell with the variables `sent`; rank 0 returns the variables `get`.

    `name` is shown in tracebacks; the `%%gangline` line counts as line 1, as in the notebook. Raises `UsageError`.
    """
    source = f"\n{cell}"
    _check_syntax(source, name)
    try:
        pickled = tuple(pickled_variables(sent)) if sent else None
    except ValueError as error:
        raise UsageError(f"--send: {error}") from error
    text = (
        f'# {name}\nif __name__ == "__main__":\n    import gangline_call\n\n'
        f"    gangline_call.call_cell({source!r}, {name!r}, {list(get)!r}, {pickled!r})\n"
    )
    size = len(text.encode())
    if size > MAX_PROGRAM_SIZE:
        raise UsageError(
            f"the cell is {size // 1024} KiB with the variables that are sent, and a job takes "
            f"{MAX_PROGRAM_SIZE // 1024} KiB; write large data to a file and read it in the cell"
        )
    return FunctionProgram(text, is_pickled=pickled is not None)


def _check_syntax(source: str, name: str) -> None:
    try:
        compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        text = (error.text or "").strip()
        if text.startswith(("!", "%")) or text.endswith("?"):
            problem = f"{text} is for the notebook, not for Python; write it in a cell of its own"
        elif "await" in str(error.msg):
            problem = f"{error.msg}; write asyncio.run(...)"
        else:
            problem = f"{error.msg}: {text}" if text else str(error.msg)
        raise UsageError(f"{name}, line {error.lineno}: {problem}") from None

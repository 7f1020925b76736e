"""The options of a cell, and the cell as a program."""

import subprocess
import sys
from typing import Any

import pytest
from IPython.core.error import UsageError

from gangline.notebook.cell_program import cell_program
from gangline.notebook.options import CellOptions, help_text, parse_options
from gangline.sdk.build.function_source import MAX_PROGRAM_SIZE, program_command
from gangline.sdk.outcome.results import parse_results


def test_options_are_those_of_gangline_run_where_they_make_sense() -> None:
    line = "-n 4 --framework jax --limit gpu=1 --limit memory=4Gi --max-restarts 2 --name fit --send a,b --get 'c, d'"
    assert parse_options(line) == CellOptions(
        nproc=4,
        framework="jax",
        limits={"gpu": "1", "memory": "4Gi"},
        max_restarts=2,
        name="fit",
        send=("a", "b"),
        get=("c", "d"),
    )
    assert parse_options("--context prod --image i --namespace n")[5:8] == ("prod", "n", "i")
    assert parse_options("") == CellOptions()
    assert "--nproc N" in help_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nproc 0", "--nproc: is 0; write 1 or more"),
        ("--nproc two", "invalid int value: 'two'; %%gangline --help lists the options"),
        ("--max-restarts -1", "--max-restarts: is -1; write 0 or more"),
        ("--framework mpi", "--framework: is 'mpi'; write one of pytorch, tensorflow"),
        ("--limit gpu", "--limit: is 'gpu'; write NAME=AMOUNT, such as gpu=1"),
        ("--limit memory=lots", "--limit: is 'memory=lots'; write NAME=AMOUNT"),
        ("--name Fit_1", "--name: is 'Fit_1'; write small letters, digits and -"),
        ("--send a-b", "--send: 'a-b' is no variable; write names with commas"),
        ("--image x", "--image: the cell runs on this machine; add --context NAME"),
        ("--na fit", "unrecognized arguments: --na fit"),
        ("--name 'fit", "No closing quotation"),
    ],
)
def test_a_wrong_option_says_what_to_write(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        parse_options(line)


def ran(cell: str, get: list[str], sent: dict[str, Any], **variables: str) -> "subprocess.CompletedProcess[str]":
    program = cell_program(cell, "Cell In[7]", get, sent)
    assert program.is_pickled is bool(sent)
    words = [word.replace("$$", "$") for word in program_command(program.text)]
    return subprocess.run(
        [sys.executable, "-I", *words[1:]], capture_output=True, text=True, check=False, env=variables, cwd="/"
    )


def test_a_cell_gets_variables_and_rank_zero_returns_some() -> None:
    done = ran("y = [x] * 2\nprint('$HOME', __name__)", ["y"], {"x": {1}})
    [result] = parse_results(done.stdout.splitlines())
    assert result.load(trusted=True) == {"y": [{1}, {1}]}
    assert done.stdout.startswith("$HOME __main__\n")
    [other] = parse_results(ran("y = 1", ["y"], {}, RANK="1").stdout.splitlines())
    assert other.load(trusted=False) == {}
    assert ran("y = 1", [], {}).stdout == ""


def test_an_error_has_the_line_of_the_cell() -> None:
    done = ran("def f():\n    raise ValueError('no')\n\nf()", [], {})
    assert done.returncode == 1
    # Newer versions of Python add lines that point at the expression.
    lines = [line for line in done.stderr.splitlines() if line.strip("~^ ")]
    assert lines == [
        "Traceback (most recent call last):",
        '  File "Cell In[7]", line 5, in <module>',
        "    f()",
        '  File "Cell In[7]", line 3, in f',
        "    raise ValueError('no')",
        "ValueError: no",
    ]
    assert "--get: the cell has no variable z" in ran("y = 1", ["z"], {}).stderr


@pytest.mark.parametrize(
    ("cell", "sent", "message"),
    [
        ("x = 1\n%matplotlib inline", {}, "line 3: %matplotlib inline is for the notebook, not for Python"),
        ("print?", {}, r"line 2: print\? is for the notebook"),
        ("await f()", {}, "line 2: 'await' outside function; write asyncio.run"),
        ("return 1", {}, "line 2: 'return' outside function"),
        ("1", {"number": 1, "gen": (n for n in "a")}, "--send: gen is a generator, which stays in this process"),
        (f"x = {'y' * MAX_PROGRAM_SIZE!r}", {}, "the cell is 512 KiB with the variables that are sent"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_starts(cell: str, sent: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cell_program(cell, "Cell In[7]", [], sent)


def test_the_hooks_of_ipython_are_found_but_not_exported() -> None:
    import gangline
    from gangline.notebook import magics

    assert gangline.load_ipython_extension is magics.load_ipython_extension  # type: ignore[attr-defined]
    assert gangline.unload_ipython_extension is magics.unload_ipython_extension  # type: ignore[attr-defined]
    assert not [name for name in gangline.__all__ if "ipython" in name]  # type: ignore[attr-defined]

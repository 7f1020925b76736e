"""Functions as programs of containers."""

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from gangline.sdk.build.function_source import function_program, program_command
from gangline.sdk.build.pod_templates import escaped_word


def tricky(parameters: dict[str, Any]) -> None:
    """Has `back-quotes`, $HOME, $(date) and 'quotes' in it."""
    print("costs $5 `date` $(HOME) \\n", parameters["lr"], sorted(parameters["sizes"]))


def plain() -> None:
    print("nothing given")


def ran(command: list[str]) -> str:
    """Run a command as in a container: Kubernetes turns `$$` into `$`."""
    words = [word.replace("$$", "$") for word in command]
    done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_function_runs_elsewhere_exactly_as_it_is_written() -> None:
    command = program_command(function_program(tricky, {"lr": 0.1, "sizes": (3, 1)}))
    assert command[0] == "python"
    assert ran(command) == "costs $5 `date` $(HOME) \\n 0.1 [1, 3]\n"


def test_a_function_without_parameters_is_called_with_none() -> None:
    assert ran(program_command(function_program(plain, None))) == "nothing given\n"


def test_a_function_defined_inside_another_travels_too() -> None:
    def inner() -> None:
        print("from inside")

    assert ran(program_command(function_program(inner, None))) == "from inside\n"


def test_packages_and_launcher_are_words_and_never_a_shell_line() -> None:
    command = program_command("pass", packages=["a; rm -rf x"], index="where", launcher=("torchrun",))
    config = json.loads(command[3])
    assert config == {"packages": ["a; rm -rf x"], "index": "where", "launcher": ["torchrun"]}
    ast.parse(command[2])
    assert "shell" not in command[2]


def test_what_is_captured_from_outside_is_refused_by_name() -> None:
    rate = 0.1

    def uses_outside() -> None:
        print(rate)

    with pytest.raises(ValueError, match="uses_outside uses rate from around it, which stays here; pass it in"):
        function_program(uses_outside, None)


@pytest.mark.parametrize(
    ("function", "parameters", "told"),
    [
        (lambda: None, None, "a lambda has no name"),
        (3, None, "train_func: is 3; write a function"),
        (len, None, "the source of len cannot be read"),
        (plain, {"model": object()}, "cannot be written down; use numbers, texts, lists and dicts"),
    ],
)
def test_what_cannot_travel_is_refused(function: Any, parameters: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        function_program(function, parameters)


def test_dollars_survive_kubernetes() -> None:
    assert escaped_word("$(HOME) $5") == "$$(HOME) $$5"

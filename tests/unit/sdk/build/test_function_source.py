"""Functions as programs of containers."""

import ast
import functools
import json
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangline.progress import report
from gangline.sdk.build.function_source import MAX_PROGRAM_SIZE, WORD_LENGTH, function_program, program_command
from gangline.sdk.build.pod_templates import escaped_word
from gangline.sdk.outcome.results import parse_results

RATE = 0.5
LOCK = threading.Lock()
NOISE = np.random.default_rng(0).random(MAX_PROGRAM_SIZE // 8)


def tricky(parameters: dict[str, Any]) -> None:
    """Has `back-quotes`, $HOME, $(date) and 'quotes' in it."""
    print("costs $5 `date` $(HOME) \\n", parameters["lr"], sorted(parameters["sizes"]))


def plain() -> None:
    print("nothing given")


def uses_module_and_constant() -> list[float]:
    return (np.arange(3) * RATE).tolist()  # type: ignore[no-any-return]


def helper(number: int) -> int:
    return number + 1


class Model:
    def __init__(self, weight: int) -> None:
        self.weight = weight

    def fit(self) -> int:
        return helper(self.weight)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.weight == self.weight

    __hash__ = None  # type: ignore[assignment]


def uses_helper_and_class() -> Model:
    return Model(helper(1))


def doubled(function: Callable[[], int]) -> Callable[[], int]:
    @functools.wraps(function)
    def call() -> int:
        return 2 * function()

    return call


@doubled
def decorated() -> int:
    return 21


def with_default(base: int = helper(9)) -> int:
    return base


def reports() -> None:
    report(step=1, total=2)


def needs(parameters: dict[str, Any]) -> Any:
    return parameters


def named(lr: float, steps: int = 3) -> list[float]:
    return [lr, steps]


def only_named(*, lr: float) -> float:
    return lr


def holds_lock() -> None:
    LOCK.acquire()


def calls_holder() -> None:
    holds_lock()


def too_large() -> float:
    return float(NOISE.sum())


def fails() -> None:
    print("before")
    helper("x")  # type: ignore[arg-type]


async def asynchronous() -> None: ...


def generator() -> Iterator[int]:
    yield 1


def run_command(command: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as in a container: Kubernetes turns `$$` into `$`, and gangline is not installed."""
    words = [word.replace("$$", "$") for word in command]
    return subprocess.run(
        [sys.executable, "-I", *words[1:]], capture_output=True, text=True, check=False, env=variables, cwd="/"
    )


def ran(command: list[str]) -> str:
    done = run_command(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def returned(function: Callable[..., Any], parameters: dict[str, Any] | None = None) -> Any:
    command = program_command(function_program(function, parameters, returns=True).text)
    [result] = parse_results(ran(command).splitlines())
    return result.load(trusted=True)


def test_a_function_runs_elsewhere_exactly_as_it_is_written() -> None:
    program = function_program(tricky, {"lr": 0.1, "sizes": (3, 1)})
    assert not program.is_pickled
    command = program_command(program.text)
    assert command[0] == "python"
    assert ran(command) == "costs $5 `date` $(HOME) \\n 0.1 [1, 3]\n"


def test_a_function_without_parameters_is_called_with_none() -> None:
    assert ran(program_command(function_program(plain, None).text)) == "nothing given\n"


def test_a_function_defined_inside_another_travels_too() -> None:
    def inner() -> None:
        print("from inside")

    assert ran(program_command(function_program(inner, None).text)) == "from inside\n"


def test_installed_modules_and_constants_become_lines_of_readable_source() -> None:
    program = function_program(uses_module_and_constant, None)
    assert not program.is_pickled
    assert "import numpy as np\n" in program.text
    assert "RATE = 0.5\n" in program.text
    assert returned(uses_module_and_constant) == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("function", "parameters", "expected"),
    [
        (uses_helper_and_class, None, Model(2)),
        (lambda: 4, None, 4),
        (functools.partial(helper, 1), None, 2),
        (Model(4).fit, None, 5),
        (decorated, None, 42),
        (with_default, None, 10),
        (max, [3, 7], 7),
        (needs, {"data": np.array([1.0])}, {"data": np.array([1.0])}),
    ],
)
def test_everything_else_is_pickled_with_the_modules_of_the_user(function: Any, parameters: Any, expected: Any) -> None:
    if isinstance(parameters, list):
        function, parameters = functools.partial(function, *parameters), None
    assert function_program(function, parameters, returns=True).is_pickled
    assert returned(function, parameters) == expected


def test_a_closure_travels_with_what_it_captures() -> None:
    rate = {"lr": 0.1}

    def uses_outside() -> dict[str, float]:
        return rate

    assert returned(uses_outside) == {"lr": 0.1}


def test_progress_is_reported_without_gangline_in_the_image() -> None:
    assert json.loads(ran(program_command(function_program(reports, None).text))) == {
        "progress": {"step": 1, "total": 2}
    }


def test_several_arguments_are_passed_by_name() -> None:
    assert returned(named, {"lr": 0.5, "steps": 4}) == [0.5, 4]
    assert returned(needs, {"lr": 0.5}) == {"lr": 0.5}


def test_packages_and_launcher_are_words_and_never_a_shell_line() -> None:
    command = program_command("pass", packages=["a; rm -rf x"], index="where", launcher=("torchrun",))
    config = json.loads(command[3])
    assert config == {"packages": ["a; rm -rf x"], "index": "where", "launcher": ["torchrun"]}
    ast.parse(command[2])
    assert "shell" not in command[2]


def test_a_launcher_that_is_missing_is_named() -> None:
    done = run_command(program_command("pass", launcher=("no-such-launcher",)))
    assert done.returncode == 1
    assert done.stderr == "gangline: no-such-launcher is not installed here; add it to packages or to the image\n"


def test_a_long_program_is_several_words_of_a_command() -> None:
    text = f"print({'x' * 100_000!r})\n"
    command = program_command(text)
    assert max(map(len, command)) <= max(WORD_LENGTH, len(command[4]))
    assert ran(command) == f"{'x' * 100_000}\n"


@pytest.mark.parametrize(
    ("function", "parameters", "message"),
    [
        (3, None, "train_func: is 3; write a function"),
        (asynchronous, None, r"asynchronous is async, and nobody awaits it; .* calls asyncio.run\(asynchronous\(\)\)"),
        (generator, None, "generator is a generator, and nobody reads it; return a list"),
        (Model, None, "Model is a class; write a function"),
        (needs, None, r"needs\(.*missing a required argument: 'parameters'; write parameters="),
        (only_named, {"lr": 1, "momentum": 1}, "only_named.* does not take these parameters: .*'momentum'"),
        (plain, {"lr": 1}, "plain.* does not take these parameters"),
        (holds_lock, None, "holds_lock cannot be sent: LOCK is a _thread.lock, which stays in this process; make it"),
        (calls_holder, None, r"calls_holder cannot be sent: LOCK \(of holds_lock\) is a _thread.lock"),
        (needs, {"lock": LOCK}, r"needs cannot be sent: parameters\['lock'\] is a _thread.lock"),
        (functools.partial(needs, {"lock": LOCK}), None, "argument 0 of the partial is a dict"),
        (too_large, None, r"too_large is \d+ KiB with what it uses \(NOISE: \d+ KiB\); a job takes 512 KiB"),
    ],
)
def test_what_cannot_travel_is_refused(function: Any, parameters: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function_program(function, parameters)


def test_another_python_refuses_the_pickle_in_one_line() -> None:
    program = function_program(lambda: None, None)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    done = run_command(program_command(program.text.replace(f"{version!r})", "'3.5')")))
    assert done.returncode == 1
    assert done.stderr.startswith("gangline: the function was pickled by Python 3.5, and the image has ")


def test_an_error_names_the_place_in_the_users_file_and_is_the_termination_message(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.touch()
    done = run_command(program_command(function_program(fails, None).text), GANGLINE_TERMINATION_LOG=str(message))
    assert done.returncode == 1
    assert done.stdout == "before\n"
    line = fails.__code__.co_firstlineno + 2
    assert done.stderr.startswith(
        f'Traceback (most recent call last):\n  File "test_function_source.py", line {line}, in fails\n    helper("x")'
    )
    assert message.read_text() == done.stderr.rstrip("\n")


def test_a_function_of_a_program_without_a_file_travels(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        from gangline.sdk.build.function_source import function_program, program_command
        base = [40]
        def answer():
            return base[0] + 2
        import json
        print(json.dumps(program_command(function_program(answer, None, returns=True).text)))
        """
    )
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=True)
    [result] = parse_results(ran(json.loads(done.stdout)).splitlines())
    assert result.load(trusted=False) == 42


def test_dollars_survive_kubernetes() -> None:
    assert escaped_word("$(HOME) $5") == "$$(HOME) $$5"

"""The return values of functions, from the replica to the caller."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gangline.sdk.build.remote_call import RESULT_PREFIX, RESULTS_VARIABLE, result_text
from gangline.sdk.outcome.results import FunctionResult, is_result_line, parse_results


def sent(value: Any) -> FunctionResult:
    line = f"printed without newline{RESULT_PREFIX}{result_text(value)}"
    assert is_result_line(line)
    [result] = parse_results(["other", line, f"{RESULT_PREFIX}{{cut"])
    return result


@pytest.mark.parametrize("value", [None, 3, 0.5, "text", [1, 2], {"loss": 0.1}])
def test_plain_values_travel_as_json_alone(value: Any) -> None:
    result = sent(value)
    assert not result.pickled
    assert result.load(trusted=False) == value


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, {1, 2}, 1 + 2j])
def test_other_values_come_back_exactly_from_a_trusted_replica(value: Any) -> None:
    assert sent(value).load(trusted=True) == value


def test_arrays_are_lists_where_pickles_are_not_opened() -> None:
    result = sent({"weights": np.array([1.0, 2.0])})
    assert result.load(trusted=False) == {"weights": [1.0, 2.0]}
    assert isinstance(result.load(trusted=True)["weights"], np.ndarray)
    assert math.isnan(sent(float("nan")).load(trusted=True))


def test_a_value_that_cannot_be_sent_is_explained_and_fails_no_job() -> None:
    with pytest.raises(TypeError, match="the function's return value: set cannot be written as JSON"):
        sent({1}).load(trusted=False)
    with pytest.raises(TypeError, match="generator cannot be written as JSON"):
        sent(number for number in (1,)).load(trusted=True)
    with pytest.raises(TypeError, match=r"str: \d+ bytes, and at most 1048576 are sent; write it to a file"):
        sent("x" * 2**21).load(trusted=True)


def test_a_large_value_is_a_file_where_replicas_are_processes_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path))
    result = sent(np.zeros(10**6))
    assert result.load(trusted=True).shape == (10**6,)
    assert [str(file) for file in tmp_path.iterdir()] == [result.file]
    assert sent([1]) == FunctionResult(value=[1])


def test_the_rank_of_the_process_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert sent(1).rank == 3
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("PROCESS_ID", "2")
    assert sent(1).rank == 2

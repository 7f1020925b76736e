"""What `--set` means for a sweep."""

import pytest

from gangline.base.errors import InputError
from gangline.cli.sweep.space import (
    Parameter,
    ValueRange,
    parse_parameter,
    parse_parameters,
    split_values,
    trial_values,
)


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("lr=0.1,0.01", Parameter("lr", ("0.1", "0.01"))),
        ("lr=1", Parameter("lr", ("1",))),
        ('names="a,b",c', Parameter("names", ("a,b", "c"))),
        ("spec.x.command=[a, b],[c]", Parameter("spec.x.command", ("[a, b]", "[c]"))),
        ('spec.x="5",6', Parameter("spec.x", ('"5"', "6"))),
        ("data=../a,../b", Parameter("data", ("../a", "../b"))),
        ("batch=16..256", Parameter("batch", range=ValueRange(16, 256, is_integer=True))),
        ("lr=0.1..1", Parameter("lr", range=ValueRange(0.1, 1))),
        ("lr=1..1.5", Parameter("lr", range=ValueRange(1, 1.5))),
        ("t=-1..1", Parameter("t", range=ValueRange(-1, 1, is_integer=True))),
        ("lr=log(1e-4..1e-1)", Parameter("lr", range=ValueRange(1e-4, 1e-1, is_log=True))),
        ("batch=log(16..1024)", Parameter("batch", range=ValueRange(16, 1024, is_integer=True, is_log=True))),
    ],
)
def test_a_setting_is_values_or_a_range(setting: str, meant: Parameter) -> None:
    assert parse_parameter(setting) == meant


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("lr", "expected name=values; write: --set lr=0.1,0.01"),
        ("lr=", "expected name=values"),
        ("=1", "is no name of a variable"),
        ("2x=1", "is no name of a variable"),
        ("lr=1,,2", "a value is empty"),
        ("lr=1,1", "1 is given twice"),
        ("lr=1,2..3", "a range cannot be combined with values; write: --set lr=2..3"),
        ("lr=3..2", "the first end of a range must be below the second"),
        ("lr=1..1e999", "the first end of a range must be below the second"),
        ("lr=log(0..1)", "log() begins above 0"),
    ],
)
def test_an_error_says_what_to_write(setting: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_parameter(setting)
    assert str(caught.value).startswith(f"--set {setting}: ")
    assert told in str(caught.value)


def test_a_parameter_may_be_set_only_once() -> None:
    with pytest.raises(InputError, match="--set lr: is given twice"):
        parse_parameters(["lr=1", "batch=2", "lr=3"])


def test_commas_in_brackets_and_quotes_do_not_split() -> None:
    assert split_values("a,{b: [1, 2]},'c,d',(e,f)") == ["a", "{b: [1, 2]}", "'c,d'", "(e,f)"]
    assert split_values('"[",b') == ['"["', "b"]


def test_a_grid_has_every_combination_and_the_last_changes_fastest() -> None:
    found = trial_values(parse_parameters(["lr=0.1,0.01", "batch=32,64"]))
    assert [tuple(each.values()) for each in found] == [
        ("0.1", "32"),
        ("0.1", "64"),
        ("0.01", "32"),
        ("0.01", "64"),
    ]


def test_a_range_requires_random() -> None:
    with pytest.raises(InputError, match="--set lr: values are drawn from a range; say how many: --random 20"):
        trial_values(parse_parameters(["lr=0..1"]))


def test_a_grid_that_is_too_large_is_rejected() -> None:
    many = ",".join(map(str, range(40)))
    with pytest.raises(InputError, match="1600 trials are too many"):
        trial_values(parse_parameters([f"a={many}", f"b={many}"]))


@pytest.mark.parametrize("draws", [0, -1, 1001])
def test_an_invalid_number_of_draws_is_rejected(draws: int) -> None:
    with pytest.raises(InputError, match=f"--random {draws}: expected 1 to 1000"):
        trial_values(parse_parameters(["a=1,2"]), draws)


def test_draws_are_in_their_ranges_and_of_their_kind() -> None:
    asked = ["lr=log(1e-4..1e-1)", "batch=16..256", "width=log(8..4096)", "drop=0.1..0.5", "opt=sgd,adam"]
    found = trial_values(parse_parameters(asked), 200)
    assert len(found) == 200
    for each in found:
        assert 1e-4 <= float(each["lr"]) <= 1e-1
        assert 16 <= int(each["batch"]) <= 256
        assert 8 <= int(each["width"]) <= 4096
        assert 0.1 <= float(each["drop"]) <= 0.5
        assert each["opt"] in ("sgd", "adam")
    # One of three decades has a third of the values.
    low = sum(float(each["lr"]) < 1e-3 for each in found)
    assert 40 < low < 95
    assert {each["opt"] for each in found} == {"sgd", "adam"}


def test_the_same_seed_draws_the_same_values() -> None:
    asked = parse_parameters(["lr=log(1e-4..1e-1)", "batch=16..256"])
    assert trial_values(asked, 5, 3) == trial_values(asked, 5, 3)
    assert trial_values(asked, 5, 3) != trial_values(asked, 5, 4)


def test_draws_are_distinct_and_a_small_space_is_exhausted() -> None:
    found = trial_values(parse_parameters(["a=1,2", "b=1..3"]), 50)
    assert len(found) == 6
    assert len({tuple(each.items()) for each in found}) == 6

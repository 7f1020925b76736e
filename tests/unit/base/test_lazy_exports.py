"""Deprecated public names work, and warn with their replacement."""

import sys
import warnings
from collections.abc import Iterator
from types import ModuleType

import pytest

import gangline
import gangline.operator
import gangline.testing
from gangline.base.lazy_exports import lazy_exports

NAMES = {"json": ("dumps", "loads"), "fractions": ("Fraction",)}
GOING = {"Fraction": ("decimal.Decimal", "0.2.0", "0.4.0"), "parse": ("loads", "0.3.0", "0.5.0")}


@pytest.fixture
def package() -> Iterator[ModuleType]:
    """A lazy package with names of the standard library."""
    made = ModuleType("trying_deprecations")
    names, find = lazy_exports("trying_deprecations", NAMES, GOING)
    made.__dict__.update(__all__=names, __getattr__=find)
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_a_name_that_is_going_works_and_says_what_to_write_instead(package: ModuleType) -> None:
    import fractions

    told = "trying_deprecations.Fraction is deprecated since 0.2.0 and goes with 0.4.0; write decimal.Decimal instead"
    with pytest.warns(DeprecationWarning, match=told):
        assert package.Fraction is fractions.Fraction


def test_a_name_that_was_changed_is_found_under_its_old_one(package: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match="write loads instead"):
        assert package.parse("1") == 1


def test_the_warning_points_at_who_uses_the_name(package: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match="parse") as caught:
        package.parse("1")
    assert caught[0].filename == __file__


def test_the_same_is_so_for_an_import(package: ModuleType) -> None:
    with pytest.warns(DeprecationWarning, match="parse") as caught:
        exec(compile("from trying_deprecations import parse", "theirs.py", "exec"), {})
    assert {each.filename for each in caught} == {"theirs.py"}


def test_one_place_is_told_once(package: ModuleType) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            package.parse("1")
    assert len(caught) == 1


def test_importing_everything_warns_of_nothing(package: ModuleType) -> None:
    there: dict[str, object] = {}
    exec("from trying_deprecations import *", there)
    assert {"dumps", "loads"} <= set(there)
    assert not {"Fraction", "parse"} & set(there)


def overdue(going: dict[str, tuple[str, str, str]], version: str) -> list[str]:
    """Names whose version of removal has come."""

    def parts(text: str) -> list[int]:
        return [int(part) for part in text.split(".")]

    return [name for name, (_, _, gone) in going.items() if parts(gone) <= parts(version)]


def test_no_deprecated_name_outlives_its_time() -> None:
    assert overdue(GOING, "0.3.9") == []
    assert overdue(GOING, "0.4.0") == ["Fraction"]
    for package in (gangline, gangline.operator, gangline.testing):
        assert overdue(getattr(package, "_DEPRECATED", {}), gangline.__version__) == []

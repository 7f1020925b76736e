"""The public names for authors of custom operators exist, and are imported only when used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gangline
import gangline.operator
import gangline.testing

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "custom-operator"
PACKAGES = (gangline, gangline.operator, gangline.testing)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_there_and_type_checkers_see_the_same(package: object) -> None:
    file = getattr(package, "__file__", None)
    stub = ast.parse(Path(str(file)).with_suffix(".pyi").read_text())
    typed = {
        alias.asname: (found.module, alias.name)
        for found in stub.body
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }
    renamed = {ast.unparse(found.targets[0]) for found in stub.body if isinstance(found, ast.Assign)}
    names = getattr(package, "__all__", [])
    assert {*names, *getattr(package, "_DEPRECATED", ())} == {*typed, *renamed}
    for name in names:
        module, original = typed[name]
        assert getattr(package, name) is getattr(sys.modules[str(module)], original)


def test_a_name_that_is_not_there_is_told_as_usual() -> None:
    with pytest.raises(AttributeError, match=r"module 'gangline\.operator' has no attribute 'nothing'"):
        gangline.operator.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_packages_imports_nothing_else() -> None:
    code = (
        "import sys; import gangline.operator, gangline.testing;"
        "print(*[name for name in sys.modules if name.startswith('gangline')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {
        "gangline",
        "gangline.base",
        "gangline.base.lazy_exports",
        "gangline.operator",
        "gangline.testing",
    }


def test_a_whole_operator_with_tests_and_manifests_is_short() -> None:
    files = ("relay_operator.py", "test_relay_operator.py", "relayjob.yaml", "operator.yaml")
    lines = {name: len((EXAMPLE / name).read_text().splitlines()) for name in files}
    assert sum(lines.values()) < 150, lines


def test_the_engine_in_ones_own_controller_is_short() -> None:
    assert len((EXAMPLE / "own_controller.py").read_text().splitlines()) < 80


def test_a_framework_without_wiring_says_what_is_missing() -> None:
    with pytest.raises(NotImplementedError, match="must say how a member finds the others"):
        gangline.operator.TeamFramework[gangline.operator.TrainingJob]().wiring(
            None,  # type: ignore[arg-type]
            gangline.operator.Member("Worker", 0),
            gangline.operator.Addresses(),
        )


def test_bad_flags_of_a_custom_operator_are_one_line() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "relay_operator.py"), "--wrong"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: No such option '--wrong'. See relay_operator.py --help.")
    assert len(done.stderr.splitlines()) == 1


def test_a_custom_operator_takes_the_flags_of_ours_but_not_those_of_our_kinds() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "relay_operator.py"), "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "Run RelayJob of a cluster" in done.stdout
    assert "--leader-elect" in done.stdout
    assert "--gang-scheduler-name" in done.stdout
    assert "pytorch" not in done.stdout


@pytest.mark.parametrize(
    ("package", "name"),
    [(package, name) for package in PACKAGES for name in getattr(package, "_DEPRECATED", {})],
    ids=lambda found: str(getattr(found, "__name__", found)),
)
def test_a_renamed_public_name_still_works_and_warns(package: object, name: str) -> None:
    replacement = getattr(package, "_DEPRECATED")[name][0]  # noqa: B009 - the table is private to the package
    with pytest.warns(DeprecationWarning, match=f"write {replacement} instead"):
        assert getattr(package, name) is getattr(package, replacement)

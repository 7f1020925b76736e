"""Fixtures for tests that train with real frameworks."""

from pathlib import Path

import pytest

from support.frameworks import FrameworkEnvironments, JobRunner


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs a framework is marked so, has time to import it, and never runs beside another."""
    for item in items:
        if isinstance(item, pytest.Function) and "frameworks" in item.fixturenames:
            item.add_marker(pytest.mark.frameworks)
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.xdist_group("frameworks"))


@pytest.fixture(scope="session")
def frameworks() -> FrameworkEnvironments:
    """Where the frameworks are. Asking for one that is not installed skips the test."""
    return FrameworkEnvironments()


@pytest.fixture
def jobs(tmp_path: Path) -> JobRunner:
    """Runs jobs, with a mapping of images of this test's own."""
    return JobRunner(tmp_path)

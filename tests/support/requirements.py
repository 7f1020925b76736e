"""What a test needs of the machine: programs and environments that the scripts in hack/ build."""

import os
from typing import NoReturn

import pytest


def skip_or_fail(missing: str, *, required: str = "GANGLINE_REQUIRE_REAL") -> NoReturn:
    """Skip the test; fail it where the variable `required` is 1, as in CI, where nothing may be missing."""
    if os.environ.get(required) == "1":
        pytest.fail(missing)
    pytest.skip(missing)

"""Writes of controllers to the registry."""

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.local.registry_writes import ignore_status, remove_finalizer


@pytest.mark.parametrize(
    ("finalizers", "expected"), [(["a", "b"], {"finalizers": ["b"]}), (["a"], {}), (["b"], {"finalizers": ["b"]})]
)
def test_a_finalizer_is_removed_and_an_empty_list_too(finalizers: list[str], expected: JSON) -> None:
    metadata: JSON = {"finalizers": finalizers}
    remove_finalizer(metadata, "a")
    assert metadata == expected


def conflict() -> None:
    raise StatusError(409, "changed")


def test_only_the_given_codes_are_ignored() -> None:
    with ignore_status(404, 409):
        conflict()
    with pytest.raises(StatusError), ignore_status(404):
        conflict()

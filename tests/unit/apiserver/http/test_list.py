"""Lists: pages, resourceVersions, selectors."""

from collections.abc import AsyncIterator

import pytest

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.list import ListPage, list_page
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.selection import Selection
from gangline.testing.clock import FakeClock
from support.servers.plane import TEST_CALL, RegistryHarness, registry_harness


@pytest.fixture
async def at() -> AsyncIterator[RegistryHarness]:
    async with registry_harness(FakeClock()) as harness:
        for number in range(5):
            labels = {"even": "yes"} if number % 2 == 0 else {}
            await harness.create("configmaps", {"metadata": {"name": f"c{number}", "labels": labels}})
        yield harness


def asked(at: RegistryHarness, **query: str) -> ListPage:
    entry = at.entry("configmaps")
    return list_page(at.store, entry, "ns", query, Selection.from_query(query, entry.selectable_fields))


def names(page: ListPage) -> list[str]:
    return [record.path.rpartition("/")[2] for record in page.records]


def test_unpaged_list_has_its_version_and_no_continue_token(at: RegistryHarness) -> None:
    page = asked(at)
    assert names(page) == ["c0", "c1", "c2", "c3", "c4"]
    assert page.metadata == {"resourceVersion": str(at.store.revision)}


async def test_pages_are_one_snapshot(at: RegistryHarness) -> None:
    first = asked(at, limit="2")
    assert first.metadata["remainingItemCount"] == 3
    await at.registry.delete(TEST_CALL, at.entry("configmaps"), Key("ns", "c3"), DeletionOptions())
    second = asked(at, limit="2", **{"continue": first.metadata["continue"]})
    third = asked(at, limit="2", **{"continue": second.metadata["continue"]})
    assert names(first) + names(second) + names(third) == ["c0", "c1", "c2", "c3", "c4"]
    assert third.metadata == {"resourceVersion": first.metadata["resourceVersion"]}


def test_remaining_items_are_not_counted_with_a_selector(at: RegistryHarness) -> None:
    page = asked(at, limit="2", labelSelector="even=yes")
    assert names(page) == ["c0", "c2"]
    assert "continue" in page.metadata
    assert "remainingItemCount" not in page.metadata


def test_missing_label_is_unlike_any_value(at: RegistryHarness) -> None:
    assert names(asked(at, labelSelector="even!=yes")) == ["c1", "c3"]
    assert names(asked(at, fieldSelector="metadata.name=c3")) == ["c3"]


async def test_version_is_exact_on_request_or_with_a_limit(at: RegistryHarness) -> None:
    then = str(at.store.revision)
    await at.create("configmaps", {"metadata": {"name": "late"}})
    assert "late" in names(asked(at, resourceVersion=then))
    assert "late" not in names(asked(at, resourceVersion=then, resourceVersionMatch="Exact"))
    assert "late" not in names(asked(at, resourceVersion=then, limit="10"))


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ({"resourceVersion": "999"}, 504, "Too large resource version: 999"),
        ({"resourceVersion": "abc"}, 400, 'invalid resource version: resourceVersion: Invalid value: "abc"'),
        ({"continue": "abc"}, 400, "invalid continue token: continue key is not valid"),
        ({"labelSelector": "a in"}, 400, "unable to parse requirement"),
        (
            {"fieldSelector": "data.k=v"},
            400,
            '"data.k" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
    ],
)
def test_invalid_lists_are_refused(at: RegistryHarness, query: dict[str, str], code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        asked(at, **query)
    assert caught.value.code == code
    assert message in caught.value.message


def test_too_large_version_has_a_retry_delay(at: RegistryHarness) -> None:
    with pytest.raises(StatusError) as caught:
        asked(at, resourceVersion="999")
    details: JSON = caught.value.status["details"]
    assert details["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert details["retryAfterSeconds"] == 1

"""What a response means, and when to try again."""

from datetime import timedelta

import pytest

from gangline.notify.plan.retries import (
    MAX_DELAY,
    MAX_RETRY_AFTER,
    Delivered,
    Rejected,
    RetryLater,
    http_result,
    retry_delay,
)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_success(status: int) -> None:
    assert http_result(status) == Delivered()


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_message_that_is_refused_is_not_sent_again(status: int) -> None:
    assert http_result(status) == Rejected(f"HTTP status {status}")


@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 503])
def test_what_may_change_is_tried_again(status: int) -> None:
    assert http_result(status) == RetryLater(f"HTTP status {status}")


def test_redirects_are_not_followed() -> None:
    assert http_result(302) == RetryLater("HTTP status 302: redirects are not followed")


@pytest.mark.parametrize(
    ("header", "after"),
    [("7", timedelta(seconds=7)), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("9" * 40, None), ("-1", None), ("٣", None)],
)
def test_a_receiver_may_name_a_delay(header: str, after: timedelta | None) -> None:
    assert http_result(429, header) == RetryLater("HTTP status 429", after)


def test_delays_double_up_to_a_limit_and_are_spread() -> None:
    assert [retry_delay(count, 1.0).total_seconds() for count in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert retry_delay(1, 0.5) == timedelta(seconds=0.5)
    assert retry_delay(1000, 1.0) == MAX_DELAY


def test_the_receivers_delay_is_obeyed_within_reason() -> None:
    assert retry_delay(1, 0.5, timedelta(seconds=90)) == timedelta(seconds=90)
    assert retry_delay(4, 1.0, timedelta(seconds=1)) == timedelta(seconds=8)
    assert retry_delay(1, 1.0, timedelta(days=9)) == MAX_RETRY_AFTER

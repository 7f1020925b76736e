from datetime import timedelta

from gangline.runtime.expectations import Expectations
from gangline.testing.clock import FakeClock

MINUTE = timedelta(minutes=1)


def test_unknown_owner_is_satisfied() -> None:
    expectations = Expectations(FakeClock())
    assert expectations.is_satisfied("job")
    assert expectations.expires_in("job") == timedelta()


def test_owner_is_satisfied_when_all_children_were_seen() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_created("job", ["worker-0", "worker-1"])
    expectations.observe_created("job", "worker-1")
    assert not expectations.is_satisfied("job")
    expectations.observe_created("job", "worker-0")
    assert expectations.is_satisfied("job")


def test_child_seen_twice_counts_once() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_created("job", ["worker-0", "worker-1"])
    expectations.observe_created("job", "worker-0")
    expectations.observe_created("job", "worker-0")
    assert not expectations.is_satisfied("job")


def test_stranger_settles_nothing() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_created("job", ["worker-0"])
    expectations.expect_deleted("job", ["uid-1"])
    expectations.observe_created("job", "uid-1")
    expectations.observe_deleted("job", "worker-0")
    expectations.observe_created("other", "worker-0")
    assert not expectations.is_satisfied("job")
    assert expectations.is_satisfied("other")


def test_deletion_is_met_by_its_uid_and_not_by_a_successor_of_the_same_name() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_deleted("job", ["uid-old"])
    expectations.observe_deleted("job", "uid-new")
    assert not expectations.is_satisfied("job")
    expectations.observe_deleted("job", "uid-old")
    assert expectations.is_satisfied("job")


def test_pod_and_service_of_one_name_are_two_children() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_created("job", [("Pod", "worker-0"), ("Service", "worker-0")])
    expectations.observe_created("job", ("Service", "worker-0"))
    assert not expectations.is_satisfied("job")


async def test_lost_expectation_expires() -> None:
    clock = FakeClock()
    expectations = Expectations(clock, ttl=5 * MINUTE)
    expectations.expect_created("job", ["worker-0"])
    assert expectations.expires_in("job") == 5 * MINUTE
    await clock.advance(5 * MINUTE - timedelta.resolution)
    assert not expectations.is_satisfied("job")
    await clock.advance(timedelta.resolution)
    assert expectations.is_satisfied("job")
    assert expectations._pending == {}


async def test_each_child_expires_by_itself() -> None:
    clock = FakeClock()
    expectations = Expectations(clock, ttl=5 * MINUTE)
    expectations.expect_created("job", ["worker-0"])
    await clock.advance(3 * MINUTE)
    expectations.expect_created("job", ["worker-1"])
    await clock.advance(2 * MINUTE)
    assert expectations.expires_in("job") == 3 * MINUTE
    expectations.observe_created("job", "worker-1")
    assert expectations.is_satisfied("job")


async def test_expecting_again_starts_the_time_anew() -> None:
    clock = FakeClock()
    expectations = Expectations(clock, ttl=5 * MINUTE)
    expectations.expect_created("job", ["worker-0"])
    await clock.advance(4 * MINUTE)
    expectations.expect_created("job", ["worker-0"])
    assert expectations.expires_in("job") == 5 * MINUTE


def test_nothing_is_kept_of_owners_that_are_met_or_forgotten() -> None:
    expectations = Expectations(FakeClock())
    expectations.expect_created("met", ["worker-0"])
    expectations.observe_created("met", "worker-0")
    expectations.expect_deleted("gone", ["uid-1"])
    expectations.forget("gone")
    expectations.forget("gone")
    expectations.expect_created("empty", [])
    assert expectations._pending == {}

"""Which connections stay, as decisions on values."""

import asyncio
from datetime import timedelta
from unittest.mock import Mock

from gangline.apiserver.serving.connections import ConnectionLimits, ConnectionTable, TrackedConnection
from gangline.apiserver.serving.server import ConnectionGuard
from gangline.testing.clock import FakeClock

LIMITS = ConnectionLimits(
    unauthenticated=3,
    unauthenticated_per_address=2,
    authenticated=2,
    authenticated_per_address=2,
    handshake_seconds=10,
    header_seconds=30,
    idle_seconds=90,
)


def admitted(table: ConnectionTable, address: str = "a", now: float = 0.0) -> TrackedConnection:
    connection, _ = table.admit(address, now)
    assert connection is not None
    return connection


def test_the_oldest_idle_connection_of_the_address_goes_first() -> None:
    table = ConnectionTable(LIMITS)
    other, first, second = admitted(table, "b"), admitted(table), admitted(table)
    connection, victims = table.admit("a", 1.0)
    assert connection is not None
    assert victims == [first]
    assert table.admit("c", 2.0)[1] == [other]
    assert second in table.overdue(99)


def test_a_connection_that_serves_a_request_is_no_victim_and_a_full_table_refuses() -> None:
    table = ConnectionTable(LIMITS)
    for connection in (admitted(table), admitted(table)):
        table.begin_request(connection)
    assert table.admit("a", 1.0) == (None, [])
    assert len(table) == 2


def test_authenticated_connections_leave_room_for_others() -> None:
    table = ConnectionTable(LIMITS)
    for _ in range(2):
        assert table.authenticate(admitted(table))
    late = admitted(table)
    assert not table.authenticate(late)
    assert table.counts == {"authenticated": 2, "unauthenticated": 1}
    admitted(table)
    assert table.admit("a", 1.0)[1] == [late]


def test_time_is_up_after_handshake_headers_and_idleness_but_not_during_a_request() -> None:
    table = ConnectionTable(LIMITS)
    connection = admitted(table, now=0.0)
    assert table.next_deadline() == 10
    table.finish_handshake(connection, 5.0)
    assert table.next_deadline() == 35
    table.begin_request(connection)
    assert not table.overdue(1e9)
    table.end_request(connection, 1000.0)
    assert table.next_deadline() == 1090
    assert table.overdue(1090.0) == [connection]
    table.remove(connection)
    table.remove(connection)
    assert len(table) == 0
    assert table.next_deadline() == float("inf")


def test_the_limits_fit_into_the_open_files_that_are_allowed() -> None:
    limits = ConnectionLimits().within(1024)
    assert limits.unauthenticated + limits.authenticated <= 768
    assert ConnectionLimits().within(10**6) == ConnectionLimits()


async def test_a_silent_connection_ends_in_time_beside_one_that_may_be_idle_for_longer() -> None:
    clock = FakeClock()
    guard = ConnectionGuard(LIMITS, clock)
    patient, silent = (Mock(asyncio.Transport, get_extra_info=lambda _: ("a", 1)) for _ in range(2))
    user = guard.admit(patient)
    assert user is not None
    guard.finish_handshake(user)
    guard.begin_request(user)
    await clock.advance(timedelta(seconds=LIMITS.handshake_seconds))
    guard.end_request(user)
    assert guard.admit(silent) is not None
    await clock.advance(timedelta(seconds=LIMITS.handshake_seconds))
    assert (silent.abort.called, patient.abort.called) == (True, False)
    await clock.advance(timedelta(seconds=LIMITS.idle_seconds))
    assert patient.abort.called

"""Ports that no other process gets by chance."""

import socket

import pytest

from gangline.node.ports import LOOPBACK, PLANE_PORTS, POD_PORTS, bind_port, reserve_port

KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM)


def number(bound: socket.socket) -> int:
    port: int = bound.getsockname()[1]
    return port


@pytest.mark.parametrize("kind", KINDS)
def test_a_port_is_of_the_range_and_the_protocol(kind: socket.SocketKind) -> None:
    with reserve_port(POD_PORTS, kind) as reserved:
        assert number(reserved) in POD_PORTS
        assert reserved.type == kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taken", KINDS)
def test_a_port_that_is_taken_in_either_protocol_is_not_given(
    kind: socket.SocketKind, taken: socket.SocketKind
) -> None:
    with (
        reserve_port(POD_PORTS, taken) as first,
        reserve_port(range(number(first), number(first) + 1), kind) as second,
    ):
        assert number(second) != number(first)


def test_a_port_held_for_its_next_process_is_not_given() -> None:
    with reserve_port(POD_PORTS) as first:
        port = number(first)
    with bind_port(port), reserve_port(range(port, port + 1)) as second:
        assert number(second) != port


def test_a_copy_in_a_child_that_was_just_forked_does_not_keep_a_port_from_its_owner() -> None:
    reserved = reserve_port(POD_PORTS)
    with reserved.dup() as copy:
        reserved.close()
        bind_port(number(copy)).close()
        with pytest.raises(OSError, match="in use"):
            bind_port(number(copy), alone=True)


def test_what_is_left_of_a_connection_does_not_keep_a_port_from_its_owner() -> None:
    with reserve_port(POD_PORTS) as first:
        port = number(first)
    # The side that closes first stays in TIME_WAIT: here the server's, which has the port.
    with bind_port(port) as server:
        server.listen()
        with socket.create_connection((LOOPBACK, port)) as client:
            accepted, _ = server.accept()
            accepted.close()
            assert client.recv(1) == b""
    with pytest.raises(OSError, match="in use"):
        bind_port(port, alone=True)
    bind_port(port).close()


def test_pods_and_planes_do_not_take_each_others_nor_what_kernels_give() -> None:
    assert not set(POD_PORTS) & set(PLANE_PORTS)
    assert max(*POD_PORTS, *PLANE_PORTS) < 30000


def test_a_port_on_which_a_process_listens_is_taken_even_where_the_kernel_allows_it(
    each_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS lets a socket have loopback while another one listens on all addresses."""
    with socket.create_server(("", 0)) as server:
        monkeypatch.setattr(socket.socket, "bind", lambda bound, address: None)
        if each_host == "linux":
            bind_port(number(server)).close()
            return
        with pytest.raises(OSError, match="Address already in use"):
            bind_port(number(server))


@pytest.mark.usefixtures("each_host")
def test_a_port_without_a_listener_is_free_again_at_once() -> None:
    with reserve_port(POD_PORTS) as reserved:
        port = number(reserved)
    with bind_port(port) as bound:
        assert number(bound) == port

"""Parts of the MPI launch agent."""

import os
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from gangline.node.runtime.mpi import mpi_env
from gangline.node.runtime.mpi_agent import (
    CHUNK_BYTES,
    ERROR,
    OP_BINARY,
    OP_PING,
    STDERR,
    STDOUT,
    AgentError,
    ExecRequest,
    FrameConnection,
    LineWriter,
    exit_code,
    forward_streams,
    percent_encoded,
)


@pytest.fixture
def pair() -> Iterator[tuple[FrameConnection, FrameConnection]]:
    one, other = socket.socketpair()
    with one, other:
        yield FrameConnection(one, b""), FrameConnection(other, b"")


def unmasked(frame: bytes) -> bytes:
    """The frame as a server sends it: without the mask, which is all zeros in ours."""
    size = frame[1] & 127
    at = {126: 4, 127: 10}.get(size, 2)
    return frame[:1] + bytes((size,)) + frame[2:at] + frame[at + 4 :]


@pytest.mark.parametrize("size", [0, 124, 125, 126, 65_534, 65_535, 65_536, 200_000])
def test_frames_of_every_length_come_through_in_any_pieces(
    pair: tuple[FrameConnection, FrameConnection], size: int
) -> None:
    sender, receiver = pair
    data = bytes(range(256)) * (size // 256 + 1)
    sender.queue(1, data[:size])
    frame = unmasked(bytes(sender.outgoing))
    for cut in (1, 2, 3, len(frame) // 2, len(frame)):
        receiver.incoming += frame[:cut]
        assert receiver.messages() == ([b"\x01" + data[:size]] if cut == len(frame) else [])
        receiver.incoming += frame[cut:]
        assert receiver.messages() == ([b"\x01" + data[:size]] if cut < len(frame) else [])


def test_a_message_in_several_frames_is_one_message(pair: tuple[FrameConnection, FrameConnection]) -> None:
    _, receiver = pair
    receiver.incoming += bytes((OP_BINARY, 2)) + b"\x01a" + bytes((0x80, 1)) + b"b"
    assert receiver.messages() == [b"\x01ab"]


def test_a_ping_is_answered(pair: tuple[FrameConnection, FrameConnection]) -> None:
    _, receiver = pair
    receiver.incoming += bytes((0x80 | OP_PING, 2)) + b"hi"
    assert receiver.messages() == []
    assert receiver.outgoing.endswith(b"hi")


def test_words_are_one_command_line() -> None:
    request = ExecRequest(["-x", "pod-1", "orted", "-mca", "ess", '"env"'])
    assert (request.pod, request.script, request.container) == ("pod-1", 'orted -mca ess "env"', "")


@pytest.mark.parametrize("words", [[], ["pod"], ["-x", "pod"], ["--container", "c", "pod"]])
def test_too_few_words_are_told(words: list[str]) -> None:
    with pytest.raises(AgentError, match="usage"):
        ExecRequest(words)


def test_addresses_hold_any_byte() -> None:
    assert percent_encoded("a b&é\udcff") == "a%20b%26%C3%A9%FF"


def test_the_code_is_in_the_status() -> None:
    failed = b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}'
    assert exit_code(b'{"status":"Success"}') == 0
    assert exit_code(failed) == 7
    with pytest.raises(AgentError, match="no such thing"):
        exit_code(b'{"status":"Failure","message":"no such thing"}')


# Output


class Printed:
    """A pipe that several outputs write to."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()

    def text(self) -> bytes:
        """The data in the pipe now."""
        return os.read(self.reads, 2**17) if select.select([self.reads], [], [], 0)[0] else b""

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


@pytest.fixture
def printed() -> Iterator[Printed]:
    pipe = Printed()
    yield pipe
    pipe.close()


def test_lines_of_two_agents_stay_whole_though_each_comes_in_two_pieces(printed: Printed) -> None:
    one, other = LineWriter(printed.writes), LineWriter(printed.writes)
    for outlet, data in ((one, b"rank 0"), (other, b"rank 1"), (one, b"\n"), (other, b"\nmore")):
        outlet.feed(data)
    assert printed.text() == b"rank 0\nrank 1\n"
    assert one.flush_delay() is None
    assert other.flush_delay() is not None
    other.flush()
    assert printed.text() == b"more"
    assert other.flush_delay() is None


def test_what_is_held_is_bounded_and_nothing_of_it_is_lost(printed: Printed) -> None:
    outlet = LineWriter(printed.writes)
    outlet.feed(b"x" * CHUNK_BYTES)
    assert printed.text() == b""
    outlet.feed(b"y")
    assert printed.text() == b"x" * CHUNK_BYTES + b"y"


def test_time_runs_from_the_first_piece_that_is_held(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("gangline.node.runtime.mpi_agent.time.monotonic", lambda: now)
    outlet = LineWriter(printed.writes)
    outlet.feed(b"1")
    now = 100.09
    outlet.feed(b"2")
    assert outlet.flush_delay() == pytest.approx(0.01)
    # Each line has its own deadline.
    outlet.feed(b"\n3")
    assert outlet.flush_delay() == pytest.approx(0.1)
    now = 101.0
    assert outlet.flush_delay() == 0


def test_the_beginning_of_a_line_does_not_wait_for_ever(
    pair: tuple[FrameConnection, FrameConnection], printed: Printed
) -> None:
    """An incomplete line, as a prompt, is written while the command still runs."""
    wire, server = pair
    quiet, closes = os.pipe()
    codes: list[int] = []
    outlets = {STDOUT: LineWriter(printed.writes), STDERR: LineWriter(printed.writes)}
    thread = threading.Thread(target=lambda: codes.append(forward_streams(wire, outlets, quiet)))
    thread.start()
    server.connection.sendall(bytes((0x80 | OP_BINARY, 5)) + b"\x01name")
    try:
        assert select.select([printed.reads], [], [], 30)[0]
        assert printed.text() == b"name"
        assert thread.is_alive()
    finally:
        status = b'{"status":"Success"}'
        server.connection.sendall(bytes((0x80 | OP_BINARY, len(status) + 1, ERROR)) + status)
        thread.join(30)
        os.close(quiet)
        os.close(closes)
    assert codes == [0]


# MPI


def test_only_who_names_a_launch_agent_gets_settings_of_mpi() -> None:
    assert mpi_env({"HOME": "/"}, loopback="lo", own_name=False, root=True) == {}
    env = mpi_env({"OMPI_MCA_plm_rsh_agent": "x"}, loopback="lo", own_name=False, root=False)
    assert env["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert env["OMPI_MCA_btl"] == "tcp,self"
    assert not [name for name in env if "ROOT" in name]


def test_pods_with_a_name_and_a_network_of_their_own_may_use_all_there_is() -> None:
    env = mpi_env({"HYDRA_LAUNCHER_EXEC": "x"}, loopback="", own_name=True, root=True)
    assert "OMPI_MCA_btl" not in env
    assert not [name for name in env if "if_include" in name]
    assert env["OMPI_ALLOW_RUN_AS_ROOT"] == "1"

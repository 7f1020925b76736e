"""The pieces of the launch agent."""

import socket
from collections.abc import Iterator

import pytest

from gangline.local.node.agent import BINARY, PING, Asked, Trouble, Wire, code_of, quoted
from gangline.local.node.mpi import variables


@pytest.fixture
def pair() -> Iterator[tuple[Wire, Wire]]:
    one, other = socket.socketpair()
    with one, other:
        yield Wire(one, b""), Wire(other, b"")


def unmasked(frame: bytes) -> bytes:
    """What a server would send: the same without a mask, which in ours is all zeros."""
    size = frame[1] & 127
    at = {126: 4, 127: 10}.get(size, 2)
    return frame[:1] + bytes((size,)) + frame[2:at] + frame[at + 4 :]


@pytest.mark.parametrize("size", [0, 124, 125, 126, 65_534, 65_535, 65_536, 200_000])
def test_frames_of_every_length_come_through_in_any_pieces(pair: tuple[Wire, Wire], size: int) -> None:
    sender, receiver = pair
    data = bytes(range(256)) * (size // 256 + 1)
    sender.send(1, data[:size])
    frame = unmasked(bytes(sender.unsent))
    for cut in (1, 2, 3, len(frame) // 2, len(frame)):
        receiver.received += frame[:cut]
        assert receiver.frames() == ([b"\x01" + data[:size]] if cut == len(frame) else [])
        receiver.received += frame[cut:]
        assert receiver.frames() == ([b"\x01" + data[:size]] if cut < len(frame) else [])


def test_a_message_in_several_frames_is_one_message(pair: tuple[Wire, Wire]) -> None:
    _, receiver = pair
    receiver.received += bytes((BINARY, 2)) + b"\x01a" + bytes((0x80, 1)) + b"b"
    assert receiver.frames() == [b"\x01ab"]


def test_a_ping_is_answered(pair: tuple[Wire, Wire]) -> None:
    _, receiver = pair
    receiver.received += bytes((0x80 | PING, 2)) + b"hi"
    assert receiver.frames() == []
    assert receiver.unsent.endswith(b"hi")


def test_words_are_one_command_line() -> None:
    asked = Asked(["-x", "pod-1", "orted", "-mca", "ess", '"env"'])
    assert (asked.pod, asked.script, asked.container) == ("pod-1", 'orted -mca ess "env"', "")


@pytest.mark.parametrize("words", [[], ["pod"], ["-x", "pod"], ["--container", "c", "pod"]])
def test_too_few_words_are_told(words: list[str]) -> None:
    with pytest.raises(Trouble, match="usage"):
        Asked(words)


def test_addresses_hold_any_byte() -> None:
    assert quoted("a b&é\udcff") == "a%20b%26%C3%A9%FF"


def test_the_code_is_in_the_status() -> None:
    failed = b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}'
    assert code_of(b'{"status":"Success"}') == 0
    assert code_of(failed) == 7
    with pytest.raises(Trouble, match="no such thing"):
        code_of(b'{"status":"Failure","message":"no such thing"}')


# MPI


def test_only_who_names_a_launch_agent_gets_settings_of_mpi() -> None:
    assert variables({"HOME": "/"}, loopback="lo", own_name=False, root=True) == {}
    found = variables({"OMPI_MCA_plm_rsh_agent": "x"}, loopback="lo", own_name=False, root=False)
    assert found["OMPI_MCA_btl_tcp_if_include"] == "lo"
    assert found["OMPI_MCA_btl"] == "tcp,self"
    assert not [name for name in found if "ROOT" in name]


def test_pods_with_a_name_and_a_network_of_their_own_may_use_all_there_is() -> None:
    found = variables({"HYDRA_LAUNCHER_EXEC": "x"}, loopback="", own_name=True, root=True)
    assert "OMPI_MCA_btl" not in found
    assert not [name for name in found if "if_include" in name]
    assert found["OMPI_ALLOW_RUN_AS_ROOT"] == "1"

"""SPDY frames: what Go's client sends, and what it reads."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.apiserver.streaming.spdy import (
    HEADER_DICTIONARY,
    FrameDecoder,
    FrameEncoder,
    GoAway,
    Ping,
    SpdyError,
    StreamData,
    StreamReset,
    SynReply,
    SynStream,
)


def decoded(data: bytes, step: int = 0) -> list[object]:
    """The frames of a connection, whose bytes arrive in pieces."""
    decoder = FrameDecoder()
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    return [frame for piece in pieces for frame in decoder.feed(piece)]


def test_dictionary_is_that_of_the_protocol() -> None:
    # The checksum is that of headerDictionary in golang.org/x/net/spdy.
    assert len(HEADER_DICTIONARY) == 1423
    digest = hashlib.sha256(HEADER_DICTIONARY).hexdigest()
    assert digest == "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"


def test_every_frame_is_read_as_it_was_written() -> None:
    encoder = FrameEncoder()
    headers = {"StreamType": "error", "port": "80", "requestID": "0"}
    data = b"".join(
        (
            encoder.syn_stream(1, headers),
            encoder.syn_stream(3, {"streamtype": "data"}, fin=True),
            encoder.syn_reply(1),
            encoder.data(1, b"hello"),
            encoder.data(1, b"", fin=True),
            encoder.reset(3, 5),
            encoder.ping(7),
        )
    )
    expected = [
        SynStream(1, {"streamtype": "error", "port": "80", "requestid": "0"}),
        SynStream(3, {"streamtype": "data"}, fin=True),
        SynReply(1),
        StreamData(1, b"hello"),
        StreamData(1, b"", fin=True),
        StreamReset(3, 5),
        Ping(7),
    ]
    assert decoded(data) == expected


def test_data_is_given_on_before_its_frame_is_complete() -> None:
    data = FrameEncoder().data(5, b"abcdef", fin=True)
    decoder = FrameDecoder()
    assert list(decoder.feed(data[:10])) == [StreamData(5, b"ab")]
    assert list(decoder.feed(data[10:])) == [StreamData(5, b"cdef", fin=True)]


@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(1, 9))
def test_data_does_not_depend_on_where_it_is_cut(parts: list[bytes], step: int) -> None:
    encoder = FrameEncoder()
    frames = [encoder.syn_stream(1, {"streamtype": "data"}), *(encoder.data(1, part) for part in parts)]
    found = decoded(b"".join((*frames, encoder.data(1, b"", fin=True))), step)
    assert isinstance(found[0], SynStream)
    assert b"".join(frame.data for frame in found if isinstance(frame, StreamData)) == b"".join(parts)
    last = found[-1]
    assert isinstance(last, StreamData)
    assert last.fin


def test_settings_and_windows_are_skipped() -> None:
    settings = bytes.fromhex("80030004000000040000 0000".replace(" ", ""))
    window = bytes.fromhex("8003000900000008") + bytes(8)
    away = bytes.fromhex("8003000700000008") + bytes(8)
    assert decoded(settings + window + away) == [GoAway()]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (bytes.fromhex("8002000100000000"), "version 2"),
        (bytes.fromhex("8003000100ffffff"), "too long"),
        (bytes.fromhex("800300010000000c") + bytes(12), "malformed"),
        (bytes.fromhex("8003000600000000"), "malformed"),
    ],
)
def test_what_is_no_spdy_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(SpdyError, match=problem):
        decoded(data)


def test_headers_that_grow_without_bound_are_refused() -> None:
    compressor = zlib.compressobj(zdict=HEADER_DICTIONARY)
    block = compressor.compress(bytes(2**22)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    body = bytes(10) + block
    assert len(body) < 2**16
    with pytest.raises(SpdyError, match="too long"):
        decoded(bytes.fromhex("80030001") + len(body).to_bytes(4, "big") + body)

"""The parser reads responses as in RFC 9112, wherever their bytes are cut."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.kube.transport.http1 import MAX_LINE, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nnext"

# Strategies have the names of the rules in RFC 9110 and RFC 9112.

TCHAR = "!#$%&'*+-.^_`|~0123456789ABCXYZabcxyz"
token = st.text(TCHAR, min_size=1, max_size=6).map(str.encode)
bws = st.sampled_from([b"", b"", b" ", b"\t", b" \t "])
obs_text = st.sampled_from([b"\x80", b"\xe9", b"\xff"])
qdtext = st.sampled_from([bytes([code]) for code in (9, 32, 33, *range(35, 92), *range(93, 127))]) | obs_text
quoted_pair = st.sampled_from([b"\\" + bytes([code]) for code in (9, 32, *range(33, 127))])
quoted_string = st.lists(qdtext | quoted_pair, max_size=6).map(lambda parts: b'"' + b"".join(parts) + b'"')
value = st.tuples(bws, st.just(b"="), bws, token | quoted_string).map(b"".join)
extension = st.tuples(bws, st.just(b";"), bws, token, st.just(b"") | value).map(b"".join)
extensions = st.lists(extension, max_size=3).map(b"".join)
field_value = st.text("ab,;:= \t\"\\'/", max_size=8).map(str.encode)
field_line = st.tuples(token, st.just(b":"), field_value, st.just(b"\r\n")).map(b"".join)
trailers = st.lists(field_line, max_size=3).map(b"".join)
zeros = st.sampled_from([b"", b"0", b"000"])


class Message(NamedTuple):
    text: bytes
    body: bytes


@st.composite
def chunk(draw: st.DrawFn) -> Message:
    # Bodies that look like framing.
    body = draw(st.binary(min_size=1, max_size=20) | st.sampled_from([b"\r\n", b"0\r\n\r\n", b"x\r\n5\r\n"]))
    size = draw(st.sampled_from([f"{len(body):x}", f"{len(body):X}"])).encode()
    return Message(draw(zeros) + size + draw(extensions) + b"\r\n" + body + b"\r\n", body)


@st.composite
def chunked(draw: st.DrawFn) -> Message:
    chunks = draw(st.lists(chunk(), max_size=4))
    last = draw(zeros) + b"0" + draw(extensions) + b"\r\n" + draw(trailers) + b"\r\n"
    text = CHUNKED + b"".join(each.text for each in chunks) + last
    return Message(text, b"".join(each.body for each in chunks))


@st.composite
def counted(draw: st.DrawFn) -> Message:
    body = draw(st.binary(max_size=30))
    return Message(OK + b"content-LENGTH:%d\r\n\r\n" % len(body) + body, body)


def pieces(text: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    begin = 0
    for end in (*sorted(cuts), len(text)):
        yield text[begin:end]
        begin = end


def bodies(parts: Iterable[bytes], count: int) -> list[bytes]:
    """The bodies of `count` responses, read as a connection does: each is taken before the next."""
    parser = ResponseParser()
    found: list[bytes] = []
    for part in parts:
        parser.feed(part)
        while parser.complete and len(found) < count:
            found.append(parser.take_body())
            if len(found) < count:
                parser.next()
    assert not parser.has_excess
    return found


@given(st.lists(chunked() | counted(), min_size=1, max_size=3), st.data())
def test_any_legal_response_is_read_however_it_is_cut(messages: Sequence[Message], data: st.DataObject) -> None:
    text = b"".join(message.text for message in messages)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    assert bodies(pieces(text, cuts), len(messages)) == [message.body for message in messages]


@given(chunked())
def test_a_chunked_response_may_be_cut_at_every_byte(message: Message) -> None:
    text, expected = message.text + NEXT, [message.body, b"next"]
    assert bodies((bytes([byte]) for byte in text), 2) == expected
    for at in range(len(text)):
        assert bodies(pieces(text, [at]), 2) == expected


@given(chunked())
def test_a_response_is_complete_with_its_last_byte_and_not_before(message: Message) -> None:
    parser = ResponseParser()
    parser.feed(message.text[:-1])
    assert not parser.complete
    assert not parser.close()
    parser.feed(message.text[-1:])
    assert parser.complete


@pytest.mark.parametrize(
    "extension",
    [b";a", b";a=b", b" ; a = b", b'\t;\ta="x;y"', b'; a="\\"; b=\\\\"', b";a;b=c;d", b';a=""', b" "],
)
@pytest.mark.parametrize("trailer", [b"", b"A: b\r\n", b"Expires: never\r\nX-Checksum: 0\r\n"])
def test_extensions_and_trailers_are_dropped(extension: bytes, trailer: bytes) -> None:
    text = CHUNKED + b"3" + extension + b"\r\nabc\r\n0" + extension + b"\r\n" + trailer + b"\r\n" + NEXT
    parser = ResponseParser()
    parser.feed(text)
    assert parser.head is not None
    assert parser.head.headers == {"transfer-encoding": "chunked"}
    assert bodies([text], 2) == [b"abc", b"next"]


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"-3", b"+3", b"0x3", b" 3", b"0_3", b"3 3", b"3\n", b"3;a\nb", b"3;a\rb", b"f" * 16, b"3=a"],
)
def test_what_is_no_chunk_size_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not the size of a chunk"):
        ResponseParser().feed(CHUNKED + line + b"\r\nabc\r\n0\r\n\r\n")


def test_a_chunk_that_is_longer_than_its_size_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than its size"):
        ResponseParser().feed(CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "begin", [b"", OK, CHUNKED + b"3;", CHUNKED + b"0\r\nA: "], ids=["status", "headers", "chunk", "trailer"]
)
def test_a_line_without_an_end_is_refused(begin: bytes) -> None:
    parser = ResponseParser()
    for part in (begin, b"x" * (MAX_LINE - 100)):
        parser.feed(part)
    with pytest.raises(ValueError, match="without an end"):
        parser.feed(b"x" * 200)


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0 hello",
        b"HTTP/2 200",
        b"HTTP/1.1",
        b"HTTP/1.1 20",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1 101 Switching Protocols",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
    ],
)
def test_a_head_that_cannot_be_understood_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match=r"^not a |^neither asked"):
        ResponseParser().feed(head + b"\r\n\r\n")


def test_headers_are_read_as_they_may_be_written() -> None:
    parser = ResponseParser()
    parser.feed(b"HTTP/1.1 200\r\nA:1\r\na: \t2 \r\nEmpty:\r\nLong: x\r\n  y\r\nContent-Length: 2, 2\r\n\r\nok")
    assert parser.head is not None
    assert parser.head.headers == {"a": "1, 2", "empty": "", "long": "x y", "content-length": "2, 2"}
    assert (parser.take_body(), parser.complete) == (b"ok", True)


def test_interim_responses_are_skipped() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    text = interim + NEXT
    for at in range(len(text)):
        assert bodies(pieces(text, [at]), 1) == [b"next"]


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_response_without_content_ends_with_its_head(status: bytes) -> None:
    text = b"HTTP/1.1 " + status + b"\r\nContent-Length: 7\r\n\r\n"
    assert bodies([text + NEXT], 2) == [b"", b"next"]


@pytest.mark.parametrize("head", [OK, b"HTTP/1.0 200 OK\r\n"])
def test_a_body_without_a_length_ends_with_the_connection(head: bytes) -> None:
    parser = ResponseParser()
    parser.feed(head + b"\r\nall ")
    parser.feed(b"of it")
    assert parser.head is not None
    assert (parser.complete, parser.head.keep_alive) == (False, False)
    assert parser.close()
    assert parser.take_body() == b"all of it"


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Upgrade, Close", False),
    ],
)
def test_a_connection_is_kept_unless_the_server_says_otherwise(lines: bytes, *, kept: bool) -> None:
    parser = ResponseParser()
    parser.feed(lines + b"\r\nContent-Length: 0\r\n\r\n")
    assert parser.head is not None
    assert parser.head.keep_alive is kept


def test_a_body_can_be_taken_while_it_arrives() -> None:
    parser, taken = ResponseParser(), []
    for part in (CHUNKED + b"6\r\nab", b"cd", b"", b"ef\r", b"\n1\r\ng\r\n0\r\n\r\n"):
        parser.feed(part)
        taken.append(parser.take_body())
    assert taken == [b"ab", b"cd", b"", b"ef", b"g"]

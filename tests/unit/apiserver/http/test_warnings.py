"""Warnings in the headers of a response, as of kube-apiserver."""

from gangline.apiserver.http.warnings import MAX_LENGTH_OF_MANY, MAX_TOTAL_LENGTH, warning_headers
from support.servers.plane import running_plane


def test_each_text_is_written_once_and_quoted() -> None:
    assert list(warning_headers(['a "b" \\', "", "ü", "ü"])) == ['299 - "a \\"b\\" \\\\"', '299 - "ü"']


def test_texts_with_control_characters_are_left_out() -> None:
    assert list(warning_headers(["a\r\nX-Other: 1", "b\0", "c\x7f", "\x85", "d"])) == ['299 - "d"']


def test_too_many_are_shortened_and_the_last_ones_left_out() -> None:
    texts = [f"{number:03}{'x' * 300}" for number in range(20)]
    headers = list(warning_headers(texts))
    assert headers == [
        f'299 - "{text[:MAX_LENGTH_OF_MANY]}"' for text in texts[: MAX_TOTAL_LENGTH // MAX_LENGTH_OF_MANY]
    ]
    assert list(warning_headers(["x" * MAX_TOTAL_LENGTH])) == [f'299 - "{"x" * MAX_TOTAL_LENGTH}"']


async def test_a_field_with_a_line_break_in_its_name_does_not_break_the_response() -> None:
    async with running_plane() as plane:
        body = {"metadata": {"name": "x"}, "a\r\nX-Other: 1": 1, "other": 1}
        answer = await plane.call("POST", "/api/v1/namespaces/default/configmaps", body)
        assert (answer.status, answer.warnings) == (201, ['299 - "unknown field \\"other\\""'])

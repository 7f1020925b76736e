"""Text in columns."""

import io
import sys

import pytest

from gangline.cli.output.tables import (
    Columns,
    cell_text,
    clipped_text,
    is_ansi_terminal,
    labels_text,
    render,
    use_colour,
)


def test_columns_line_up_and_the_last_one_is_not_padded() -> None:
    assert render(("A", "LONG"), [["x", "1"], ["yyy", "22"]]) == "A     LONG\nx     1\nyyy   22\n"


def test_a_table_without_rows_is_empty() -> None:
    assert render(("A",), []) == ""


def test_without_headers_only_the_cells_decide_the_widths() -> None:
    assert render(("LONG", "B"), [["x", "1"]], headers=False) == "x     1\n"


def test_later_rows_line_up_with_printed_ones() -> None:
    columns = Columns(("NAME", "AGE"))
    columns.widen([["a-long-name", "1s"]])
    assert columns.line(("NAME", "AGE")) == "NAME          AGE"
    assert columns.line(("b", "2s")) == "b             2s"


def test_colour_does_not_move_a_column() -> None:
    plain = render(("A", "B"), [["Running", "x"]])
    coloured = render(("A", "B"), [["Running", "x"]], colour=True)
    assert coloured.replace("\x1b[32m", "").replace("\x1b[0m", "") == plain
    assert coloured != plain


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_has_colours_and_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert use_colour(Terminal())
    assert not use_colour(io.StringIO())
    for dumb in ("dumb", ""):
        monkeypatch.setenv("TERM", dumb)
        assert not is_ansi_terminal(Terminal())
        assert not use_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")
    assert use_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_colour(Terminal())
    assert is_ansi_terminal(Terminal())


def test_cells_of_a_server_become_text() -> None:
    assert [cell_text(value) for value in (None, True, 3, "x")] == ["<none>", "true", "3", "x"]
    assert labels_text({"b": "2", "a": "1"}) == "a=1,b=2"
    assert labels_text(None) == "<none>"


def test_text_is_cut_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert clipped_text("abcdef", 4) == "abcdef"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert clipped_text("abcdef", 4) == "abc…"
    assert clipped_text("abcd", 4) == "abcd"

"""The plainest YAML, in which kubectl, kind and we write a kubeconfig, read without PyYAML.

Importing PyYAML takes as long as the answer to `gangline get`. Only mappings and lists of one value per line are read
here. Everything else (comments, numbers, escapes, flow style, text over several lines) is left to PyYAML. A property
test checks that what is read here is what PyYAML reads.
"""

from typing import Any

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_KEY_CHARACTERS = frozenset(_LETTERS + "0123456789-")
_WORD_CHARACTERS = _KEY_CHARACTERS | frozenset("+/=._@:%~")
_WORD_STARTS = frozenset(_LETTERS + "/")
_QUOTED_CHARACTERS = frozenset(chr(code) for code in range(0x20, 0x7F)) - frozenset("\"'\\")
_YAML_KEYWORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null"})
_MAX_INDENT = 40


class NotPlain(Exception):
    """The text needs PyYAML."""


def parse_plain_yaml(text: bytes) -> Any:
    """The value of a text in plain block style. Raises `NotPlain` for any other."""
    try:
        lines = [line.rstrip(" ") for line in text.decode("ascii").split("\n") if line]
    except UnicodeDecodeError:
        raise NotPlain from None
    reader = _BlockReader([(len(line) - len(content), content) for line in lines if (content := line.lstrip(" "))])
    value = reader.block(0)
    if not reader.at_end:
        raise NotPlain
    return value


class _BlockReader:
    """Reads lines, each with its indentation, from the first to the last."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        # The end is a line that no block contains.
        self._lines = [*lines, (-1, "")]
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._lines) - 1

    def block(self, indent: int) -> Any:
        """The mapping or list that begins at the next line."""
        if indent > _MAX_INDENT or self._lines[self._next][0] != indent:
            raise NotPlain
        return self._list(indent) if self._is_item(indent) else self._mapping(indent)

    def _is_item(self, indent: int) -> bool:
        at, content = self._lines[self._next]
        return at == indent and content.startswith("- ")

    def _list(self, indent: int) -> list[Any]:
        items: list[Any] = []
        while self._is_item(indent):
            content = self._lines[self._next][1][2:]
            if _is_entry(content):
                # The mapping in the item begins behind the dash.
                self._lines[self._next] = (indent + 2, content)
                items.append(self._mapping(indent + 2))
            else:
                items.append(_scalar(content))
                self._next += 1
        return items

    def _mapping(self, indent: int) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while self._lines[self._next][0] == indent and not self._is_item(indent):
            key, colon, text = self._lines[self._next][1].partition(":")
            if not colon or not _is_key(key) or key in entries or text[:1] not in ("", " "):
                raise NotPlain
            self._next += 1
            entries[key] = _scalar(text.lstrip(" ")) if text else self._nested(indent)
        return entries

    def _nested(self, indent: int) -> Any:
        """The value below a key: a block that is indented more, a list that is not, or nothing."""
        below = self._lines[self._next][0]
        if below > indent or self._is_item(indent):
            return self.block(below)
        return None


def _is_entry(content: str) -> bool:
    """Whether an item of a list is a mapping."""
    return content.endswith(":") or ": " in content


def _is_key(text: str) -> bool:
    return text[:1].isalpha() and _KEY_CHARACTERS.issuperset(text) and text.lower() not in _YAML_KEYWORDS


def _scalar(text: str) -> Any:
    match text:
        case "{}":
            return {}
        case "[]":
            return []
        case "true" | "false":
            return text == "true"
        case "null":
            return None
    if text[:1] in ('"', "'"):
        inner = text[1:-1]
        if len(text) < 2 or text[-1] != text[0] or not _QUOTED_CHARACTERS.issuperset(inner):
            raise NotPlain
        return inner
    # A word that begins with a letter is text, unless it is a keyword; a colon at its end would make it a key.
    is_word = text[:1] in _WORD_STARTS and _WORD_CHARACTERS.issuperset(text) and text[-1] != ":"
    if not is_word or text.lower() in _YAML_KEYWORDS:
        raise NotPlain
    return text

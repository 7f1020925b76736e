"""Warnings for clients, in the headers of a response."""

import unicodedata
from collections.abc import Iterable, Iterator

MAX_TOTAL_LENGTH = 4096
"""Characters of all warnings together. If there are more, all are shortened, and the last ones left out."""
MAX_LENGTH_OF_MANY = 256
"""Characters of each warning then."""


def warning_headers(warnings: Iterable[str]) -> Iterator[str]:
    """The values of the Warning headers, as of kube-apiserver: each text once, none that has control characters."""
    texts = [text for text in dict.fromkeys(warnings) if text and not any(map(_is_control, text))]
    is_shortened, length = sum(map(len, texts)) > MAX_TOTAL_LENGTH, 0
    for text in texts:
        if is_shortened:
            if length >= MAX_TOTAL_LENGTH:
                return
            text = text[:MAX_LENGTH_OF_MANY]
            length += len(text)
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        yield f'299 - "{escaped}"'


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"

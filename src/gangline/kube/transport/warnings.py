"""`Warning` headers: messages of the server for people, in responses of successful requests."""

import re
from collections.abc import Callable, Iterable, Iterator

WarningHandler = Callable[[str], None]

MAX_REMEMBERED_WARNINGS = 1000
"""How many texts are remembered to report each only once; bounded, so that memory is."""

# RFC 7234: a code, an agent, the text, and optionally a date; a header may have several warnings. 299 is the code for
# miscellaneous warnings, and the only one that API servers send.
_WARNING_PATTERN = r'(\d{3}) [^\s,]+ "((?:[^"\\]|\\.)*)"(?: "[^"]*")?'


def warning_texts(headers: Iterable[str]) -> Iterator[str]:
    """The texts of `Warning` headers. Malformed warnings are left out."""
    for header in filter(None, headers):
        for code, text in re.findall(_WARNING_PATTERN, header):
            if code == "299":
                yield re.sub(r"\\(.)", r"\1", text)


class DeduplicatedWarnings:
    """Passes each text on when it first occurs, and again only after `memory` other texts."""

    def __init__(self, warn: WarningHandler, memory: int = MAX_REMEMBERED_WARNINGS) -> None:
        self._warn, self._max_remembered = warn, memory
        self._reported: dict[str, None] = {}

    def __call__(self, text: str) -> None:
        if text in self._reported:
            return
        if len(self._reported) >= self._max_remembered:
            del self._reported[next(iter(self._reported))]
        self._reported[text] = None
        self._warn(text)


def log_warning(text: str) -> None:
    """The default handler: logs the warning."""
    # Imported here: commands that print warnings do not need it.
    import logging

    logging.getLogger(__name__).warning("server warns", extra={"text": text})

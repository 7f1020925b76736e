"""`Warning:` headers: what a server wants a person to know although the request went well."""

import re
from collections.abc import Callable, Iterable, Iterator

WarningHandler = Callable[[str], None]

MAX_REMEMBERED_WARNINGS = 1000
"""How many texts are remembered, so that each is told once and a talkative server fills no memory."""

# RFC 7234: a code, an agent, the text, perhaps a date; several in a header, or in several headers. 299 is the code
# for warnings without one of their own, and the only one that API servers send.
_WARNING_PATTERN = re.compile(r'(\d{3}) [^\s,]+ "((?:[^"\\]|\\.)*)"(?: "[^"]*")?')
_ESCAPE_PATTERN = re.compile(r"\\(.)")


def warning_texts(headers: Iterable[str]) -> Iterator[str]:
    """The texts in `Warning:` headers. What is not well formed is left out."""
    for header in headers:
        for code, text in _WARNING_PATTERN.findall(header):
            if code == "299":
                yield _ESCAPE_PATTERN.sub(r"\1", text)


class DeduplicatedWarnings:
    """Hands each distinct text on the first time it comes, and again only after many others."""

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
    """What happens to warnings when nobody else wants them."""
    # Imported here: a command that tells a person has nothing to log.
    import logging

    logging.getLogger(__name__).warning("server warns", extra={"text": text})

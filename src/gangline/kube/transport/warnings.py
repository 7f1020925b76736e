"""`Warning:` headers: what a server wants a person to know although the request went well."""

import re
from collections.abc import Callable, Iterable, Iterator

Warn = Callable[[str], None]

MEMORY = 1000
"""How many texts are remembered, so that each is told once and a talkative server fills no memory."""

# RFC 7234: a code, an agent, the text, perhaps a date; several in a header, or in several headers. 299 is the code
# for warnings without one of their own, and the only one that API servers send.
_WARNING = re.compile(r'(\d{3}) [^\s,]+ "((?:[^"\\]|\\.)*)"(?: "[^"]*")?')
_ESCAPED = re.compile(r"\\(.)")


def warnings(headers: Iterable[str]) -> Iterator[str]:
    """The texts in `Warning:` headers. What is not well formed is left out."""
    for header in headers:
        for code, text in _WARNING.findall(header):
            if code == "299":
                yield _ESCAPED.sub(r"\1", text)


class Once:
    """Hands each distinct text on the first time it comes, and again only after many others."""

    def __init__(self, warn: Warn, memory: int = MEMORY) -> None:
        self._warn, self._memory = warn, memory
        self._told: dict[str, None] = {}

    def __call__(self, text: str) -> None:
        if text in self._told:
            return
        if len(self._told) >= self._memory:
            del self._told[next(iter(self._told))]
        self._told[text] = None
        self._warn(text)


def logged(text: str) -> None:
    """What happens to warnings when nobody else wants them."""
    # Imported here: a command that tells a person has nothing to log.
    import logging

    logging.getLogger(__name__).warning("server warns", extra={"text": text})

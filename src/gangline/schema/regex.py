"""Regular expressions of RE2, the dialect of Kubernetes, in time linear in the text: no pattern can hang the server.

RE2's own library matches, so syntax and meaning are those of kube-apiserver. Error texts are translated to those of
Go's RE2.
"""

from functools import lru_cache

import re2  # type: ignore[import-untyped]

from gangline.base.errors import InputError

_MAX_CACHED_TEXT = 128
_MAX_CACHED_RESULTS = 512
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_GO_REASONS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "unexpected )": "unexpected )",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
    "invalid character class": "invalid character class",
}


class PatternError(InputError):
    """A text that is no RE2 pattern. The message is Go's."""


class Re2Pattern:
    """One compiled pattern."""

    def __init__(self, source: str) -> None:
        """Raises `PatternError`."""
        try:
            self._compiled = re2.compile(source, _OPTIONS)
        except re2.error as error:
            raise PatternError(f"error parsing regexp: {_go_error_text(error.args[0].decode())}") from error
        self.source = source
        self._results: dict[str, bool] = {}

    def matches(self, text: str) -> bool:
        """Whether any part of the text matches."""
        cached = self._results.get(text)
        if cached is not None:
            return cached
        result = self._compiled.search(text) is not None
        if len(text) <= _MAX_CACHED_TEXT:
            # The same few texts come again and again, and a lookup costs a hundredth of a match.
            if len(self._results) >= _MAX_CACHED_RESULTS:
                self._results.clear()
            self._results[text] = result
        return result

    def find(self, text: str) -> str:
        """The first match, empty when there is none."""
        match = self._compiled.search(text)
        return str(match[0]) if match else ""

    def find_all(self, text: str, most: int = -1) -> list[str]:
        """The matches from left to right, at most `most` of them; all when `most` is negative."""
        matches: list[str] = []
        if most == 0:
            return matches
        end = -1
        for match in self._compiled.finditer(text):
            # Go has no empty match right after another match.
            if match[0] or match.start() != end:
                matches.append(match[0])
            end = match.end()
            if len(matches) == most:
                break
        return matches


@lru_cache(maxsize=1024)
def compile_pattern(source: str) -> Re2Pattern:
    """The pattern of a source, from a cache. Raises `PatternError`."""
    return Re2Pattern(source)


def _go_error_text(error: str) -> str:
    """The error in Go's words. RE2 in C++ finds the same mistakes and names some of them differently."""
    reason, _, fragment = error.partition(": ")
    return f"{_GO_REASONS.get(reason, reason)}: `{fragment}`"

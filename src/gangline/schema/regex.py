"""Regular expressions of RE2, the dialect of Kubernetes, in time linear in the text.

Matching is done by the RE2 inside the CEL library: same syntax and meaning as the server's, and no pattern can hang
us. Only finding *where* something matches is left to Python's own engine, after a translation.
"""

import re
from functools import lru_cache

from cel_expr_python import cel  # type: ignore[import-untyped]

from gangline.base.errors import InputError
from gangline.schema.go_text import quoted_text

_CEL_ENV = cel.NewEnv(variables={"text": cel.Type.STRING, "pattern": cel.Type.STRING})
_MAX_CACHED_TEXT = 128
_MAX_CACHED_RESULTS = 512
_PATTERN_TEST = _CEL_ENV.compile("text.matches(pattern)")
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
_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


class PatternError(InputError):
    """Not a pattern of RE2. The message is Go's."""


class Re2Pattern:
    """One compiled pattern."""

    def __init__(self, source: str) -> None:
        """Raises `PatternError`."""
        answer = _PATTERN_TEST.eval(data={"text": "", "pattern": source})
        if answer.type() == cel.Type.ERROR:
            raise PatternError(f"error parsing regexp: {_go_error_text(str(answer.value()))}")
        self.source = source
        # A constant is compiled once, with the program around it.
        self._program = _CEL_ENV.compile(f"text.matches({_cel_literal(source)})")
        self._search_pattern: re.Pattern[str] | None = None
        self._results: dict[str, bool] = {}

    def matches(self, text: str) -> bool:
        """Whether any part of the text matches."""
        known = self._results.get(text)
        if known is not None:
            return known
        found = bool(self._program.eval(data={"text": text}).value())
        if len(text) <= _MAX_CACHED_TEXT:
            # The same few texts come again and again, and a look costs a hundredth of a match.
            if len(self._results) >= _MAX_CACHED_RESULTS:
                self._results.clear()
            self._results[text] = found
        return found

    def find(self, text: str) -> str:
        """The first match, empty when there is none."""
        found = self._compiled_search().search(text) if self.matches(text) else None
        return found[0] if found else ""

    def find_all(self, text: str, most: int = -1) -> list[str]:
        """All matches from the left, at most so many; all of them when negative."""
        found: list[str] = []
        if most == 0 or not self.matches(text):
            return found
        end = -1
        for match in self._compiled_search().finditer(text):
            # Go has no empty match right after another match.
            if match[0] or match.start() != end:
                found.append(match[0])
            end = match.end()
            if len(found) == most:
                break
        return found

    def _compiled_search(self) -> re.Pattern[str]:
        if self._search_pattern is None:
            try:
                self._search_pattern = re.compile(_python_pattern(self.source), re.ASCII)
            except re.error as error:
                raise PatternError(f"{quoted_text(self.source)} can be matched but not searched for: {error}") from None
        return self._search_pattern


@lru_cache(maxsize=1024)
def compile_pattern(source: str) -> Re2Pattern:
    """The pattern of a source, from a cache. Raises `PatternError`."""
    return Re2Pattern(source)


def _cel_literal(source: str) -> str:
    safe = source.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{safe}"'


def _go_error_text(told: str) -> str:
    """RE2 in C++ and in Go find the same mistakes, and call some of them differently."""
    reason, _, where = told.split("invalid regular expression: ", 1)[-1].partition(": ")
    return f"{_GO_REASONS.get(reason, reason)}: `{where}`"


_TOKEN = re.compile(
    r"\\Q(?P<quote>.*?)(?:\\E|$)|(?P<end>\\z)|\\x\{(?P<hex>[0-9A-Fa-f]+)\}|(?P<escape>\\.)|\[:(?P<class>\^?\w+):\]"
    r"|(?P<name>\(\?<(?![=!]))|(?P<flags>\(\?[imsU-]+\))|(?P<dollar>\$)|(?P<open>\[\^?\]?)|(?P<close>\])",
    re.DOTALL,
)


def _python_pattern(source: str) -> str:
    """The same pattern for Python: what differs are ends of text, quoting, character classes and flags."""
    inside = False
    multiline = bool(re.search(r"\(\?[is]*m", source))

    def swap(found: re.Match[str]) -> str:
        nonlocal inside
        kind, text = found.lastgroup, found[0]
        match kind:
            case "quote":
                return re.escape(found["quote"])
            case "hex":
                return f"\\U{int(found['hex'], 16):08x}"
            case "class":
                return _POSIX_CLASSES.get(found["class"], text)
            case "end":
                return r"\Z"
            case "name":
                return "(?P<"
            case "dollar":
                return text if inside or multiline else r"\Z"
            case "open" if not inside:
                inside = True
                return text
            case "close":
                inside = False
                return text
        return "\\[" if kind == "open" else text

    translated = _TOKEN.sub(swap, source)
    leading = re.match(r"(\(\?[ims]+\))", translated)
    flags = re.findall(r"\(\?([ims]+)\)", translated)
    if flags and not (leading and len(flags) == 1):
        translated = f"(?{''.join(sorted(set(''.join(flags))))}){re.sub(r'[(][?][ims]+[)]', '', translated)}"
    return translated

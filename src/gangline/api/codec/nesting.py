"""How deep JSON is nested, without decoding it."""

import re

MAX_DEPTH = 200
"""Deeper values are refused, in YAML too: real schemas have about 30 levels, and code that walks values recurses."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_TOO_MANY_OPEN = re.compile(rb"[{\[]{%d}" % (MAX_DEPTH + 1))
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))


def is_too_deep(raw: bytes) -> bool:
    """Whether JSON is nested deeper than `MAX_DEPTH`. Short texts, which are nearly all, cost almost nothing."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _NO_BRACKETS)
    # Each round removes the innermost level.
    for _ in range(MAX_DEPTH):
        if _TOO_MANY_OPEN.search(brackets):
            return True
        rest = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(rest) == len(brackets):
            return False  # no level is left, or this is no JSON and the decoder says so
        brackets = rest
    return bool(brackets)

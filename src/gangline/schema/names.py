"""DNS labels, in kube-apiserver's words. Label keys, values and subdomains are in `api/names.py`."""

import re

_MAX_LABEL_LENGTH = 63
_RFC1123_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_RFC1035_PATTERN = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TOO_LONG_MESSAGE = f"must be no more than {_MAX_LABEL_LENGTH} bytes"
_RFC1123_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_RFC1123_PATTERN.pattern}')"
)
_RFC1035_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character "
    f"(e.g. 'my-name',  or 'abc-123', regex used for validation is '{_RFC1035_PATTERN.pattern}')"
)


def dns_label_errors(text: str) -> list[str]:
    """RFC 1123: what is wrong, one sentence per mistake."""
    return _label_errors(text, _RFC1123_PATTERN, _RFC1123_MESSAGE)


def dns1035_label_errors(text: str) -> list[str]:
    """RFC 1035: starts with a letter."""
    return _label_errors(text, _RFC1035_PATTERN, _RFC1035_MESSAGE)


def name_from_prefix(text: str) -> str:
    """A prefix that ends in a dash, as a name it could become."""
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text


def path_segment_errors(text: str) -> list[str]:
    """What may stand in a path of the API."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{sign}'" for sign in ("/", "%") if sign in text]


def _label_errors(text: str, pattern: re.Pattern[str], rule: str) -> list[str]:
    wrong = [_TOO_LONG_MESSAGE] if len(text.encode()) > _MAX_LABEL_LENGTH else []
    return wrong if pattern.fullmatch(text) else [*wrong, rule]

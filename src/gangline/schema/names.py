"""DNS labels and path segments, in kube-apiserver's words. Label keys, values and subdomains are in `api/names.py`.

Each function returns what is wrong, one sentence per mistake; nothing means that the text is fine.
"""

import re

MAX_LABEL_LENGTH = 63
DNS_LABEL_PATTERN = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_1035_LABEL_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
is_dns_label = re.compile(DNS_LABEL_PATTERN).fullmatch
is_dns_1035_label = re.compile(_DNS_1035_LABEL_PATTERN).fullmatch


def regex_message(sentence: str, pattern: str, *examples: str) -> str:
    """A sentence about a format, with examples and the pattern of the format."""
    if not examples:
        return f"{sentence} (regex used for validation is '{pattern}')"
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{sentence} (e.g. {listed}regex used for validation is '{pattern}')"


DNS_LABEL_MESSAGE = regex_message(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    DNS_LABEL_PATTERN,
    "my-name",
    "123-abc",
)
DNS_1035_LABEL_MESSAGE = regex_message(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _DNS_1035_LABEL_PATTERN,
    "my-name",
    "abc-123",
)


def dns_label_errors(text: str) -> list[str]:
    """RFC 1123: letters, digits and dashes."""
    return _length_errors(text) if is_dns_label(text) else [*_length_errors(text), DNS_LABEL_MESSAGE]


def dns1035_label_errors(text: str) -> list[str]:
    """RFC 1035: as RFC 1123, but starting with a letter."""
    return _length_errors(text) if is_dns_1035_label(text) else [*_length_errors(text), DNS_1035_LABEL_MESSAGE]


def _length_errors(text: str) -> list[str]:
    return [f"must be no more than {MAX_LABEL_LENGTH} bytes"] if len(text.encode()) > MAX_LABEL_LENGTH else []


def name_from_prefix(text: str) -> str:
    """A generateName as a name that can be validated: a dash at its end is allowed, because more text follows it."""
    return f"{text[:-2]}a" if len(text) > 1 and text.endswith("-") else text


def path_segment_errors(text: str) -> tuple[str, ...]:
    """Names that only have to fit into a URL of the API: of roles, bindings, custom metrics."""
    if text in {".", ".."}:
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{sign}'" for sign in "/%" if sign in text)

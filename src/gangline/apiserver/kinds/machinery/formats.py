"""What names, labels, ports and the like may look like. Each check returns sentences: none means fine.

The checks of the hot path remember their answers: the same label keys, names of containers and resources come back
with every pod.
"""

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from gangline.api import names

Check: TypeAlias = Callable[[str], tuple[str, ...]]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LOOSE_LABEL = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_LOOSE_SUBDOMAIN = rf"{_LOOSE_LABEL}(\.{_LOOSE_LABEL})*"
_KEY = "[-._a-zA-Z0-9]+"
_HEADER = "[-A-Za-z0-9]+"
_PERCENT = "[0-9]+%"

LONGEST_LABEL = 63
LONGEST_SUBDOMAIN = 253


def _told(sentence: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{sentence} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{sentence} (e.g. {shown}regex used for validation is '{pattern}')"


_NOT_A_LABEL = _told(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_NOT_A_LOOSE_SUBDOMAIN = _told(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    _LOOSE_SUBDOMAIN,
    "example.com",
)
_NOT_A_LABEL_1035 = _told(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character",
    _LABEL_1035,
    "my-name",
    "abc-123",
)
_NOT_A_KEY = _told(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _KEY,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_NOT_A_HEADER = _told(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER, "X-Header-Name"
)
_NOT_A_PERCENT = _told(
    "a valid percent string must be a numeric string followed by an ending '%'", _PERCENT, "1%", "93%"
)

_label = re.compile(_LABEL).fullmatch
_subdomain = re.compile(_SUBDOMAIN).fullmatch
_loose_subdomain = re.compile(_LOOSE_SUBDOMAIN).fullmatch
_label_1035 = re.compile(_LABEL_1035).fullmatch
_key = re.compile(_KEY).fullmatch
_header = re.compile(_HEADER).fullmatch
_percent = re.compile(_PERCENT).fullmatch
_port_letters = re.compile("[-a-z0-9]+").fullmatch
_letter = re.compile("[a-z]").search
_plain_ascii = re.compile(r"[ -<>-~]+").fullmatch


def at_most(characters: int) -> str:
    return f"must be no more than {characters} characters"


def between(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


@lru_cache(4096)
def dns_label(value: str) -> tuple[str, ...]:
    long = (at_most(LONGEST_LABEL),) if len(value.encode()) > LONGEST_LABEL else ()
    if _label(value):
        return long
    return (*long, "must not contain dots" if _subdomain(value) else _NOT_A_LABEL)


@lru_cache(4096)
def dns_subdomain(value: str) -> tuple[str, ...]:
    return tuple(names.subdomain(value))


def dns_subdomain_with_underscore(value: str) -> tuple[str, ...]:
    long = (at_most(LONGEST_SUBDOMAIN),) if len(value.encode()) > LONGEST_SUBDOMAIN else ()
    return long if _loose_subdomain(value) else (*long, _NOT_A_LOOSE_SUBDOMAIN)


def dns_1035_label(value: str) -> tuple[str, ...]:
    long = (at_most(LONGEST_LABEL),) if len(value.encode()) > LONGEST_LABEL else ()
    return long if _label_1035(value) else (*long, _NOT_A_LABEL_1035)


def path_segment(value: str) -> tuple[str, ...]:
    """Names that only have to fit into a URL: roles, bindings, custom metrics."""
    if value in {".", ".."}:
        return (f"may not be '{value}'",)
    return tuple(f"may not contain '{letter}'" for letter in "/%" if letter in value)


@lru_cache(4096)
def qualified_name(value: str) -> tuple[str, ...]:
    """`name` or `example.com/name`: label keys, resources, finalizers."""
    return tuple(names.qualified_name(value))


@lru_cache(4096)
def label_value(value: str) -> tuple[str, ...]:
    return tuple(names.label_value(value))


@lru_cache(1024)
def environment_name(value: str) -> tuple[str, ...]:
    """Of a variable, or the prefix of many: anything printable but `=`."""
    if _plain_ascii(value):
        return ()
    return (
        "a valid environment variable name must consist only of printable ASCII characters other than '='",
    )


@lru_cache(1024)
def config_key(value: str) -> tuple[str, ...]:
    """A key of a ConfigMap or Secret."""
    said: list[str] = []
    if len(value.encode()) > LONGEST_SUBDOMAIN:
        said.append(at_most(LONGEST_SUBDOMAIN))
    if not _key(value):
        said.append(_NOT_A_KEY)
    if value in {".", ".."}:
        said.append(f"must not be '{value}'")
    elif value.startswith(".."):
        said.append("must not start with '..'")
    return tuple(said)


@lru_cache(1024)
def port_name(value: str) -> tuple[str, ...]:
    said: list[str] = []
    if len(value.encode()) > 15:
        said.append(at_most(15))
    if not _port_letters(value):
        said.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _letter(value):
        said.append("must contain at least one letter (a-z)")
    if "--" in value:
        said.append("must not contain consecutive hyphens")
    if value[:1] == "-" or value[-1:] == "-":
        said.append("must not begin or end with a hyphen")
    return tuple(said)


def port_number(value: int) -> tuple[str, ...]:
    return () if 1 <= value <= 65535 else (between(1, 65535),)


def header_name(value: str) -> tuple[str, ...]:
    return () if _header(value) else (_NOT_A_HEADER,)


def percent(value: str) -> tuple[str, ...]:
    return () if _percent(value) else (_NOT_A_PERCENT,)


def user_or_group(value: int) -> tuple[str, ...]:
    return () if 0 <= value <= 2**31 - 1 else (between(0, 2**31 - 1),)


def ip_address(value: str) -> tuple[str, ...]:
    """As fields older than strict parsing take it: leading zeros are let through."""
    try:
        ipaddress.ip_address(_without_leading_zeros(value))
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    return ()


def cidr(value: str) -> tuple[str, ...]:
    try:
        address, _, bits = value.partition("/")
        if not bits.isdigit():
            raise ValueError(bits)
        ipaddress.ip_network(f"{_without_leading_zeros(address)}/{bits}", strict=False)
    except ValueError:
        return ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)
    return ()


def family(address: str) -> str:
    """`IPv4` or `IPv6` of a valid address."""
    return "IPv6" if ":" in address else "IPv4"


def _without_leading_zeros(address: str) -> str:
    if ":" in address:
        return address
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in address.split("."))


def prefix_of_a_name(value: str) -> str:
    """A generateName as a name to check: a dash at its end is fine, something follows it."""
    return f"{value[:-2]}a" if len(value) > 1 and value.endswith("-") else value

"""Formats of names, labels, ports and the like. Each check returns what is wrong; nothing means a valid value.

Checks on the hot path cache their results: the same label keys, container names and resources come with every pod.
"""

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from gangline.api import names
from gangline.schema.names import (
    DNS_1035_LABEL_MESSAGE,
    DNS_LABEL_MESSAGE,
    DNS_LABEL_PATTERN,
    MAX_LABEL_LENGTH,
    is_dns_1035_label,
    is_dns_label,
    regex_message,
)
from gangline.schema.names import name_from_prefix as name_from_prefix
from gangline.schema.names import path_segment_errors as path_segment_errors

FormatCheck: TypeAlias = Callable[[str], tuple[str, ...]]

_SUBDOMAIN_PATTERN = rf"{DNS_LABEL_PATTERN}(\.{DNS_LABEL_PATTERN})*"
_UNDERSCORED_LABEL_PATTERN = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORED_SUBDOMAIN_PATTERN = rf"{_UNDERSCORED_LABEL_PATTERN}(\.{_UNDERSCORED_LABEL_PATTERN})*"
_CONFIG_KEY_PATTERN = "[-._a-zA-Z0-9]+"
_HEADER_PATTERN = "[-A-Za-z0-9]+"
_PERCENT_PATTERN = "[0-9]+%"

MAX_SUBDOMAIN_LENGTH = 253


_UNDERSCORED_SUBDOMAIN_MESSAGE = regex_message(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    _UNDERSCORED_SUBDOMAIN_PATTERN,
    "example.com",
)
_CONFIG_KEY_MESSAGE = regex_message(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    _CONFIG_KEY_PATTERN,
    "key.name",
    "KEY_NAME",
    "key-name",
)
_HEADER_MESSAGE = regex_message(
    "a valid HTTP header must consist of alphanumeric characters or '-'", _HEADER_PATTERN, "X-Header-Name"
)
_PERCENT_MESSAGE = regex_message(
    "a valid percent string must be a numeric string followed by an ending '%'", _PERCENT_PATTERN, "1%", "93%"
)

_is_subdomain = re.compile(_SUBDOMAIN_PATTERN).fullmatch
_is_underscored_subdomain = re.compile(_UNDERSCORED_SUBDOMAIN_PATTERN).fullmatch
_is_config_key = re.compile(_CONFIG_KEY_PATTERN).fullmatch
_is_header = re.compile(_HEADER_PATTERN).fullmatch
_is_percent = re.compile(_PERCENT_PATTERN).fullmatch
_has_port_characters = re.compile("[-a-z0-9]+").fullmatch
_has_letter = re.compile("[a-z]").search
_is_env_name = re.compile(r"[ -<>-~]+").fullmatch


def max_length_message(characters: int) -> str:
    return f"must be no more than {characters} characters"


def range_message(low: int, high: int) -> str:
    return f"must be between {low} and {high}, inclusive"


@lru_cache(4096)
def dns_label_errors(value: str) -> tuple[str, ...]:
    long = (max_length_message(MAX_LABEL_LENGTH),) if len(value.encode()) > MAX_LABEL_LENGTH else ()
    if is_dns_label(value):
        return long
    return (*long, "must not contain dots" if _is_subdomain(value) else DNS_LABEL_MESSAGE)


@lru_cache(4096)
def dns_subdomain_errors(value: str) -> tuple[str, ...]:
    return tuple(names.subdomain_problems(value))


def underscored_subdomain_errors(value: str) -> tuple[str, ...]:
    long = (max_length_message(MAX_SUBDOMAIN_LENGTH),) if len(value.encode()) > MAX_SUBDOMAIN_LENGTH else ()
    return long if _is_underscored_subdomain(value) else (*long, _UNDERSCORED_SUBDOMAIN_MESSAGE)


def dns_1035_label_errors(value: str) -> tuple[str, ...]:
    long = (max_length_message(MAX_LABEL_LENGTH),) if len(value.encode()) > MAX_LABEL_LENGTH else ()
    return long if is_dns_1035_label(value) else (*long, DNS_1035_LABEL_MESSAGE)


@lru_cache(4096)
def qualified_name_errors(value: str) -> tuple[str, ...]:
    """`name` or `example.com/name`: label keys, resources, finalizers."""
    return tuple(names.qualified_name_problems(value))


@lru_cache(4096)
def label_value_errors(value: str) -> tuple[str, ...]:
    return tuple(names.label_value_problems(value))


@lru_cache(1024)
def env_name_errors(value: str) -> tuple[str, ...]:
    """The name of an environment variable, or the prefix of several names: printable ASCII except `=`."""
    if _is_env_name(value):
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


@lru_cache(1024)
def config_key_errors(value: str) -> tuple[str, ...]:
    """A key of a ConfigMap or Secret."""
    errors: list[str] = []
    if len(value.encode()) > MAX_SUBDOMAIN_LENGTH:
        errors.append(max_length_message(MAX_SUBDOMAIN_LENGTH))
    if not _is_config_key(value):
        errors.append(_CONFIG_KEY_MESSAGE)
    if value in {".", ".."}:
        errors.append(f"must not be '{value}'")
    elif value.startswith(".."):
        errors.append("must not start with '..'")
    return tuple(errors)


@lru_cache(1024)
def port_name_errors(value: str) -> tuple[str, ...]:
    errors: list[str] = []
    if len(value.encode()) > 15:
        errors.append(max_length_message(15))
    if not _has_port_characters(value):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(value):
        errors.append("must contain at least one letter (a-z)")
    if "--" in value:
        errors.append("must not contain consecutive hyphens")
    if value[:1] == "-" or value[-1:] == "-":
        errors.append("must not begin or end with a hyphen")
    return tuple(errors)


def port_number_errors(value: int) -> tuple[str, ...]:
    return () if 1 <= value <= 65535 else (range_message(1, 65535),)


def header_name_errors(value: str) -> tuple[str, ...]:
    return () if _is_header(value) else (_HEADER_MESSAGE,)


def percent_errors(value: str) -> tuple[str, ...]:
    return () if _is_percent(value) else (_PERCENT_MESSAGE,)


def user_id_errors(value: int) -> tuple[str, ...]:
    return () if 0 <= value <= 2**31 - 1 else (range_message(0, 2**31 - 1),)


def ip_address_errors(value: str) -> tuple[str, ...]:
    """An IP address, by the lenient parsing of older fields, which accepts leading zeros."""
    try:
        ipaddress.ip_address(_without_leading_zeros(value))
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    return ()


def cidr_errors(value: str) -> tuple[str, ...]:
    try:
        address, _, bits = value.partition("/")
        if not bits.isdigit():
            raise ValueError(bits)
        ipaddress.ip_network(f"{_without_leading_zeros(address)}/{bits}", strict=False)
    except ValueError:
        return ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)
    return ()


def ip_family(address: str) -> str:
    """The family of a valid address: `IPv4` or `IPv6`."""
    return "IPv6" if ":" in address else "IPv4"


def _without_leading_zeros(address: str) -> str:
    if ":" in address:
        return address
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in address.split("."))

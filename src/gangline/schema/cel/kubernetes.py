"""Kubernetes' own types for rules: quantities, URLs, IP addresses, CIDRs, named formats and semantic versions."""

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from gangline.api import names
from gangline.api.quantity import Quantity, QuantityError
from gangline.schema import formats
from gangline.schema.cel.authorization import AUTHORIZATION_FUNCTIONS
from gangline.schema.cel.values import OPTIONAL_NONE, CelError, CelOptional
from gangline.schema.go_text import quoted_text
from gangline.schema.names import dns1035_label_errors, dns_label_errors, name_from_prefix
from gangline.schema.typed.scalars import QUANTITY_FORMAT


class Comparable:
    """A value that can be compared with others of its class."""

    type_name = ""
    key: Any

    def __eq__(self, other: object) -> bool:
        return self.__class__ is other.__class__ and isinstance(other, Comparable) and bool(self.key == other.key)

    def __hash__(self) -> int:
        return hash((self.type_name, self.key))

    def is_greater_than(self, other: "Comparable") -> bool:
        return bool(self.key > other.key)

    def is_less_than(self, other: "Comparable") -> bool:
        return bool(self.key < other.key)

    def compared_to(self, other: "Comparable") -> int:
        return int(self.key > other.key) - int(self.key < other.key)


class CelQuantity(Comparable):
    """A quantity, and whether it is written as an integer."""

    type_name = "kubernetes.Quantity"

    def __init__(self, quantity: Quantity, *, whole: bool) -> None:
        self.key = quantity
        self.whole = whole
        """Whether it is written as an integer. `1000m` and `1.5Gi` are not, whatever their value."""


class CelUrl(Comparable):
    type_name = "kubernetes.URL"

    def __init__(self, text: str) -> None:
        self.key = text
        self.parts = urlsplit(text)


class _Address(Comparable):
    def __init__(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        self.key = address

    @property
    def text(self) -> str:
        return str(self.key)


class CelIP(_Address):
    type_name = "net.IP"


class CelCIDR(_Address):
    """A network together with the address it was written with."""

    type_name = "net.CIDR"


class NamedFormat(Comparable):
    type_name = "kubernetes.NamedFormat"

    def __init__(self, name: str) -> None:
        self.key = name


class CelSemver(Comparable):
    """A semantic version."""

    type_name = "kubernetes.Semver"

    def __init__(self, numbers: tuple[int, int, int], pre: str) -> None:
        self.numbers = numbers
        self.key = (numbers, not pre, [_prerelease_key(part) for part in pre.split(".")] if pre else [])


def _prerelease_key(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def _parse_quantity(text: str) -> CelQuantity:
    try:
        return CelQuantity(Quantity.parse(text), whole=_is_written_whole(text))
    except QuantityError:
        raise CelError(QUANTITY_FORMAT) from None


def _can_parse(parse: Callable[..., Any]) -> Callable[..., bool]:
    """A function that returns whether `parse` accepts its arguments."""

    def work(*arguments: Any) -> bool:
        try:
            parse(*arguments)
        except CelError:
            return False
        return True

    return work


def _as_integer(amount: CelQuantity) -> int:
    if not _is_integer(amount):
        raise CelError("cannot convert value to integer")
    return int(amount.key.value())


def _is_integer(amount: CelQuantity) -> bool:
    return bool(amount.whole and -(2**63) <= amount.key.value() < 2**63)


def _is_written_whole(text: str) -> bool:
    match = re.fullmatch(r"[+-]?\d*\.?(\d*?)0*(?:[eE]([+-]?\d+)|([num])|[kMGTPE]?(i)?)", text)
    if match is None or match[3]:
        return False
    suffix = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.get(text[-1], 0)
    power = int(match[2]) if match[2] else suffix
    return not match[1] if match[4] else len(match[1]) <= power


def _operand_quantity(value: CelQuantity | int) -> Quantity:
    return value.key if isinstance(value, CelQuantity) else Quantity(value * 10**9)


def _sign(amount: CelQuantity) -> int:
    nanos = amount.key.nanos
    return int(nanos > 0) - int(nanos < 0)


def _parse_url(text: str) -> CelUrl:
    if wrong := formats.uri_error(text):
        raise CelError(f"URL parse error during conversion from string: parse {quoted_text(text)}: {wrong}")
    return CelUrl(text)


def _url_host(url: CelUrl) -> str:
    return url.parts.netloc.rpartition("@")[2]


def _url_hostname(url: CelUrl) -> str:
    host = _url_host(url)
    bare = re.fullmatch(r"(\[[^]]*\]|[^:]*)(:.*)?", host)
    return (bare[1] if bare else host).strip("[]")


def _url_port(url: CelUrl) -> str:
    match = re.search(r":(\d*)$", _url_host(url))
    return match[1] if match else ""


def _url_escaped_path(url: CelUrl) -> str:
    path = url.parts.path
    safe = "/$&+,:;=@!'()*~"
    return path if quote(unquote(path), safe=safe + "%") == path or "%" in path else quote(path, safe=safe)


def _url_query(url: CelUrl) -> dict[str, list[str]]:
    return parse_qs(url.parts.query, keep_blank_values=True)


def _parse_ip(text: str) -> CelIP:
    if "%" in text:
        raise CelError(f"IP address {quoted_text(text)} with zone value is not allowed")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        octets = re.fullmatch(r"\d+(\.\d+){3}", text) and re.search(r"(^|\.)0\d", text)
        reason = "IPv4 field has octet with leading zero" if octets else "unable to parse IP"
        cause = f"ParseAddr({quoted_text(text)}): {reason}"
        raise CelError(f"IP Address {quoted_text(text)} parse error during conversion from string: {cause}") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f"IPv4-mapped IPv6 address {quoted_text(text)} is not allowed")
    return CelIP(address)


def _parse_cidr(text: str) -> CelCIDR:
    address, _, length = text.partition("/")
    try:
        if not length.isdigit() or (len(length) > 1 and length[0] == "0"):
            raise ValueError(text)
        interface = ipaddress.ip_interface(text)
        _parse_ip(address)
    except (ValueError, CelError):
        cause = (
            f"netip.ParsePrefix({quoted_text(text)}): no '/'"
            if not length
            else f"netip.ParsePrefix({quoted_text(text)})"
        )
        error = "network address parse error during conversion from string"
        raise CelError(f"{error}: {error}: {cause}") from None
    return CelCIDR(interface)


def _contains_ip(network: CelCIDR, address: CelIP | str) -> bool:
    contained = _parse_ip(address) if isinstance(address, str) else address
    return bool(contained.key in network.key.network)


def _contains_cidr(network: CelCIDR, other: CelCIDR | str) -> bool:
    contained = _parse_cidr(other) if isinstance(other, str) else other
    ours, theirs = network.key.network, contained.key.network
    return bool(ours.version == theirs.version and theirs.subnet_of(ours))


def _is_global_unicast(address: CelIP) -> bool:
    key = address.key
    broadcast = key.version == 4 and int(key) == 2**32 - 1
    return not (broadcast or key.is_unspecified or key.is_loopback or key.is_multicast or key.is_link_local)


def _is_link_local_multicast(address: CelIP) -> bool:
    key = address.key
    if key.version == 4:
        return key in ipaddress.ip_network("224.0.0.0/24")
    return key.is_multicast and int(key) >> 112 & 0xF == 2


_SEMVER_PATTERN = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def _parse_semver(text: str, normalize: bool = False) -> CelSemver:
    source = text
    if normalize:
        text = text.removeprefix("v")
        numbers, suffix = re.match(r"([0-9.]*)(.*)", text).groups()  # type: ignore[union-attr]
        parts = [part.lstrip("0") or "0" for part in numbers.split(".")]
        text = ".".join([*parts, *["0"] * (3 - len(parts))]) + suffix
    match = _SEMVER_PATTERN.fullmatch(text)
    if match is None:
        if source.count(".") < 2:
            raise CelError("No Major.Minor.Patch elements found")
        raise CelError(f"Invalid character(s) found in version {quoted_text(source)}")
    return CelSemver((int(match[1]), int(match[2]), int(match[3])), match[4] or "")


def _uri_errors(text: str) -> list[str]:
    wrong = formats.uri_error(text)
    return [f"parse {quoted_text(text)}: {wrong}"] if wrong else []


def _format_validator(check: Callable[[str], bool], sentence: str) -> Callable[[str], list[str]]:
    return lambda text: [] if check(text) else [sentence]


_FORMAT_VALIDATORS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": dns_label_errors,
    "dns1123Subdomain": names.subdomain_problems,
    "dns1035Label": dns1035_label_errors,
    "qualifiedName": names.qualified_name_problems,
    "dns1123LabelPrefix": lambda text: dns_label_errors(name_from_prefix(text)),
    "dns1123SubdomainPrefix": lambda text: names.subdomain_problems(name_from_prefix(text)),
    "dns1035LabelPrefix": lambda text: dns1035_label_errors(name_from_prefix(text)),
    "labelValue": names.label_value_problems,
    "uri": _uri_errors,
    "uuid": _format_validator(formats.is_uuid, "does not match the UUID format"),
    "byte": _format_validator(formats.is_base64, "invalid base64"),
    "date": _format_validator(formats.is_date, "invalid date"),
    "datetime": _format_validator(formats.is_date_time, "invalid datetime"),
}


def _named_format(name: str) -> CelOptional:
    return CelOptional(NamedFormat(name)) if name in _FORMAT_VALIDATORS else OPTIONAL_NONE


def _validate_format(named: NamedFormat, text: str) -> CelOptional:
    wrong = _FORMAT_VALIDATORS[named.key](text)
    return CelOptional(wrong) if wrong else OPTIONAL_NONE


def _format_constant(name: str) -> Callable[[], NamedFormat]:
    named_format = NamedFormat(name)
    return lambda: named_format


def _to_ip(value: str | CelCIDR) -> CelIP:
    return CelIP(value.key.ip) if isinstance(value, CelCIDR) else _parse_ip(value)


KUBERNETES_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": _parse_quantity,
    "isQuantity": _can_parse(_parse_quantity),
    "sign": _sign,
    "asApproximateFloat": lambda amount: float(amount.key.as_fraction()),
    "asInteger": _as_integer,
    "isInteger": _is_integer,
    "add": lambda amount, other: CelQuantity(
        amount.key + _operand_quantity(other), whole=amount.whole and getattr(other, "whole", True)
    ),
    "sub": lambda amount, other: CelQuantity(
        amount.key - _operand_quantity(other), whole=amount.whole and getattr(other, "whole", True)
    ),
    "url": _parse_url,
    "isURL": _can_parse(_parse_url),
    "getScheme": lambda url: url.parts.scheme,
    "getHost": _url_host,
    "getHostname": _url_hostname,
    "getPort": _url_port,
    "getEscapedPath": _url_escaped_path,
    "getQuery": _url_query,
    "ip": _to_ip,
    "isIP": _can_parse(_parse_ip),
    "ip.isCanonical": lambda text: str(_parse_ip(text).key) == text,
    "family": lambda address: address.key.version,
    "isUnspecified": lambda address: address.key.is_unspecified,
    "isLoopback": lambda address: address.key.is_loopback,
    "isLinkLocalMulticast": _is_link_local_multicast,
    "isLinkLocalUnicast": lambda address: address.key.is_link_local,
    "isGlobalUnicast": _is_global_unicast,
    "cidr": _parse_cidr,
    "isCIDR": _can_parse(_parse_cidr),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "prefixLength": lambda network: network.key.network.prefixlen,
    "masked": lambda network: CelCIDR(ipaddress.ip_interface(str(network.key.network))),
    "format.named": _named_format,
    "validate": _validate_format,
    **{f"format.{name}": _format_constant(name) for name in _FORMAT_VALIDATORS},
    "semver": _parse_semver,
    "isSemver": _can_parse(_parse_semver),
    "major": lambda version: version.numbers[0],
    "minor": lambda version: version.numbers[1],
    "patch": lambda version: version.numbers[2],
    **AUTHORIZATION_FUNCTIONS,
}

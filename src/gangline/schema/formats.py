"""String formats that kube-apiserver validates in custom resources. It ignores all others."""

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from datetime import date
from functools import cache

FormatPredicate = Callable[[str], bool]

# kube-openapi's pattern over letters (L), digits (D) and symbols (S). With the classes of Unicode written out, RE2
# needs 40 MB for it, and a second for every match.
_HOSTNAME_PATTERN = r"[LDS](-?[LDS]{0,62})?|([LDS]([LDS-]{0,61}[LDS])?\.)+L{2,63}"
_DATE_PATTERN = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_TIME_PATTERN = re.compile(r"(\d{2}):(\d{2}):(\d{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))", re.ASCII)
_GO_DURATION_PATTERN = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0", re.ASCII)
_WORDED_DURATION_PATTERN = re.compile(r"(\d+)\s*([A-Za-zµ]+)", re.ASCII)
_UNIT_NANOS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_WORDED_UNITS = (
    (("ns",), "nano", 1),
    (("us", "µs"), "micro", 10**3),
    (("ms",), "milli", 10**6),
    (("s",), "sec", 10**9),
    (("m",), "min", 60 * 10**9),
    (("h", "hr"), "hour", 3600 * 10**9),
    (("d",), "day", 24 * 3600 * 10**9),
    (("w", "wk"), "week", 7 * 24 * 3600 * 10**9),
)
_DURATION_LIMIT = 2**63


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compiled when first used: most formats never are, and all of them together take a while."""
    return re.compile(pattern, flags)


def _pattern_predicate(pattern: str, flags: int = 0) -> FormatPredicate:
    return lambda text: _compiled(pattern, flags | re.ASCII).fullmatch(text) is not None


def is_date(text: str) -> bool:
    match = _DATE_PATTERN.fullmatch(text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    try:
        # Year 0 is a leap year for Go; for Python it does not exist.
        date(year or 4, month, day)
    except ValueError:
        return False
    return True


def is_date_time(text: str) -> bool:
    """Whether a text is an RFC 3339 time. Any character may stand before the fraction, as in kube-openapi."""
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not is_date(parts[0]):
        return False
    match = _TIME_PATTERN.fullmatch(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def duration_nanos(text: str) -> int | None:
    """The nanoseconds of `1h30m` or `2 days`; None for any other text."""
    if (nanos := go_duration_nanos(text)) is not None:
        return nanos
    total, understood = 0, False
    for amount, unit in _WORDED_DURATION_PATTERN.findall(text):
        for names, word, factor in _WORDED_UNITS:
            if unit.lower() in names or unit.lower().startswith(word):
                understood = True
                total += int(amount) * factor
    return total if understood else None


def go_duration_nanos(text: str) -> int | None:
    """The nanoseconds of `1h30m`, by Go's `time.ParseDuration`; None for any other text."""
    if not _GO_DURATION_PATTERN.fullmatch(text):
        return None
    total = 0
    for amount, _, _, unit in re.findall(r"((\d+\.?\d*)|(\.\d+))(ns|us|µs|μs|ms|s|m|h)", text):
        integer, _, fraction = amount.partition(".")
        total += int(integer or 0) * _UNIT_NANOS[unit]
        total += int(fraction or 0) * _UNIT_NANOS[unit] // 10 ** len(fraction)
    total = -total if text.startswith("-") else total
    return total if -_DURATION_LIMIT <= total < _DURATION_LIMIT else None


def is_hostname(text: str) -> bool:
    return (
        len(text.encode()) <= 255
        and all(len(part.encode()) <= 63 for part in text.split("."))
        and _compiled(_HOSTNAME_PATTERN).fullmatch("".join(map(_character_class, text))) is not None
    )


def _character_class(character: str) -> str:
    """The class of a character in a host name; `?` for a forbidden one."""
    if character in "-.":
        return character
    if character.isascii() and character.isdigit():
        return "D"
    major = unicodedata.category(character)[0]
    return major if major in "LS" else "?"


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address without a zone. Leading zeros are allowed in IPv4. None for any other text."""
    if re.fullmatch(r"\d+(\.\d+){3}", text, re.ASCII):
        text = ".".join(str(int(part)) for part in text.split("."))
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    parsed = parse_ip(address)
    return (
        bool(slash)
        and parsed is not None
        and length.isascii()
        and length.isdigit()
        and int(length) <= parsed.max_prefixlen
    )


def is_ipv6(text: str) -> bool:
    if ":" not in text or "%" in text:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_mac(text: str) -> bool:
    pairs, fours = r"[0-9a-f]{2}(?:([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2})*)?", r"[0-9a-f]{4}(?:\.[0-9a-f]{4})*"
    well_formed = any(re.fullmatch(form, text, re.IGNORECASE) for form in (pairs, fours, "[0-9a-f]+"))
    return well_formed and sum(letter not in ":-." for letter in text) in (12, 16, 40)


def is_uri(text: str) -> bool:
    """An absolute URI or an absolute path, as in an HTTP request."""
    return uri_error(text) is None


def uri_error(text: str) -> str | None:
    """What Go's `url.ParseRequestURI` reports about a text; None for a valid URI."""
    if not text:
        return "empty url"
    if any(ord(letter) < 0x20 or letter == "\x7f" for letter in text):
        return "net/url: invalid control character in URL"
    if text == "*":
        return None
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", text)
    if not text.startswith("/") and scheme is None:
        return "first path segment in URL cannot contain colon" if text.startswith(":") else "invalid URI for request"
    hierarchy = text[scheme.end() :] if scheme else text
    if scheme and not hierarchy.startswith("/"):
        # Opaque, such as `mailto:x`.
        return None
    return _authority_error(hierarchy)


def _authority_error(hierarchy: str) -> str | None:
    if escape := re.search(r"%(?![0-9A-Fa-f]{2}).{0,2}", hierarchy.partition("?")[0]):
        return f'invalid URL escape "{escape[0]}"'
    if hierarchy.startswith("//"):
        authority = re.split(r"[/?]", hierarchy[2:], maxsplit=1)[0]
        host = authority.rpartition("@")[2]
        if re.search(r"[\s<>\"\\^`{|}]", host):
            return f'invalid character "{re.search(chr(92) + "s", host) or " "}" in host name'
        port = re.search(r":([^]:]*)$", host)
        if port and not (port[1].isdigit() or port[1] == ""):
            return f'invalid port "{port[0]}" after host'
    return None


_EMAIL_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x80-\U0010ffff-]+"
_EMAIL_ADDRESS = rf"(?:{_EMAIL_ATOM}(?:\.{_EMAIL_ATOM})*|\"(?:[^\"\\\n\r]|\\[ -~])*\")@(?:{_EMAIL_ATOM}(?:\.{_EMAIL_ATOM})*|\[[^\]\\\[]*\])"


def is_email(text: str) -> bool:
    """Whether a text is one address of RFC 5322. A display name, a comment or a group around it are allowed."""
    text = re.sub(r"\s*\([^()]*\)$", "", text.strip(" \t"))
    if group := re.fullmatch(r"[^<>@:;]+:([^:;,]*);", text):
        text = group[1].strip()
    mailbox = re.fullmatch(r"(?P<name>[^<>@]*?|\"(?:[^\"\\]|\\.)*\")\s*<(?P<address>[^<>]*)>", text)
    if mailbox:
        name = mailbox["name"].strip()
        if name and not re.fullmatch(rf"\"(?:[^\"\\]|\\.)*\"|(?:{_EMAIL_ATOM}|[. ])+", name):
            return False
        text = mailbox["address"]
    return _compiled(_EMAIL_ADDRESS).fullmatch(text) is not None


def is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    issuers = (
        r"4\d{12}(?:\d{3})?|5[1-5]\d{14}|6(?:011|5\d\d)\d{12}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
        r"|(?:2131|1800|35\d{3})\d{11}"
    )
    if not re.fullmatch(issuers, digits, re.ASCII):
        return False
    odd, even = digits[-1::-2], digits[-2::-2]
    return (sum(map(int, odd)) + sum(sum(divmod(2 * int(digit), 10)) for digit in even)) % 10 == 0


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum(place * (10 if digit == "X" else int(digit)) for place, digit in enumerate(digits, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits)) % 10 == 0


_UUID_TEMPLATE = "[0-9a-f]{8}-?[0-9a-f]{4}-?%s-?%s-?[0-9a-f]{12}"
_HEX_GROUP = "[0-9a-f]{4}"
_RGB_COMPONENT = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"

is_uuid = _pattern_predicate(_UUID_TEMPLATE % (_HEX_GROUP, _HEX_GROUP), re.IGNORECASE)
is_base64 = _pattern_predicate(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_is_ssn = _pattern_predicate(r"\d{3}[- ]?\d{2}[- ]?\d{4}")


def _is_ipv4(text: str) -> bool:
    return "." in text and parse_ip(text) is not None


FORMATS: dict[str, FormatPredicate] = {
    "bsonobjectid": _pattern_predicate("[0-9a-fA-F]{24}"),
    "uri": is_uri,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": is_mac,
    "uuid": is_uuid,
    "uuid3": _pattern_predicate(_UUID_TEMPLATE % ("3[0-9a-f]{3}", _HEX_GROUP), re.IGNORECASE),
    "uuid4": _pattern_predicate(_UUID_TEMPLATE % ("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"), re.IGNORECASE),
    "uuid5": _pattern_predicate(_UUID_TEMPLATE % ("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"), re.IGNORECASE),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "creditcard": is_credit_card,
    "ssn": lambda text: len(text) == 11 and _is_ssn(text),
    "hexcolor": _pattern_predicate("#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _pattern_predicate(rf"rgb\({_RGB_COMPONENT},{_RGB_COMPONENT},{_RGB_COMPONENT}\)"),
    "byte": is_base64,
    "password": lambda text: True,
    "date": is_date,
    "duration": lambda text: duration_nanos(text) is not None,
    "datetime": is_date_time,
}


def format_predicate(name: str) -> FormatPredicate | None:
    """The check of a format; None when kube-apiserver does not validate it (`int32`, `quantity`)."""
    return FORMATS.get(name.replace("-", ""))

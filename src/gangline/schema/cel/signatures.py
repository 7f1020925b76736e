"""The signatures of all functions. One line per overload: `receiver.name(arguments) result`.

Single capitals are type parameters. The list is that of kube-apiserver 1.34, which offers to new rules what 1.33 has.
"""

import re
from functools import cache

import msgspec

from gangline.schema.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    SIMPLE_TYPES,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    CelType,
    list_type,
    map_type,
    optional_type,
    type_of_type,
    type_param,
)

_ORDERED_TEXT = (
    "bool,bool int,int int,double int,uint uint,uint uint,double uint,int double,double double,int double,uint"
    " string,string bytes,bytes timestamp,timestamp duration,duration"
)
_ORDERED_OPERANDS = _ORDERED_TEXT.split()
_COMPARABLE_KINDS = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE_KINDS = ("int", "uint", "double", "duration")
_DATE_PARTS_TEXT = "FullYear Month DayOfYear DayOfMonth Date DayOfWeek Hours Minutes Seconds Milliseconds"
_DATE_PARTS = _DATE_PARTS_TEXT.split()
_STANDARD_SIGNATURES = """
_?_:_(bool, A, A) A
_&&_(bool, bool) bool
_||_(bool, bool) bool
!_(bool) bool
@not_strictly_false(bool) bool
_==_(A, A) bool
_!=_(A, A) bool
_+_(bytes, bytes) bytes
_+_(double, double) double
_+_(duration, duration) duration
_+_(duration, timestamp) timestamp
_+_(timestamp, duration) timestamp
_+_(int, int) int
_+_(list(A), list(A)) list(A)
_+_(string, string) string
_+_(uint, uint) uint
_-_(double, double) double
_-_(duration, duration) duration
_-_(int, int) int
_-_(timestamp, duration) timestamp
_-_(timestamp, timestamp) duration
_-_(uint, uint) uint
_*_(double, double) double
_*_(int, int) int
_*_(uint, uint) uint
_/_(double, double) double
_/_(int, int) int
_/_(uint, uint) uint
_%_(int, int) int
_%_(uint, uint) uint
-_(double) double
-_(int) int
_[_](list(A), int) A
_[_](map(A, B), A) B
_[_](optional(list(A)), int) optional(A)
_[_](optional(map(A, B)), A) optional(B)
_[?_](list(A), int) optional(A)
_[?_](map(A, B), A) optional(B)
_[?_](optional(list(A)), int) optional(A)
_[?_](optional(map(A, B)), A) optional(B)
@in(A, list(A)) bool
@in(A, map(A, B)) bool
size(bytes) int
size(list(A)) int
size(map(A, B)) int
size(string) int
bytes.size() int
list(A).size() int
map(A, B).size() int
string.size() int
type(A) type(A)
bool(bool) bool
bool(string) bool
bytes(bytes) bytes
bytes(string) bytes
double(double) double
double(int) double
double(string) double
double(uint) double
duration(duration) duration
duration(int) duration
duration(string) duration
dyn(A) dyn
int(int) int
int(double) int
int(duration) int
int(string) int
int(timestamp) int
int(uint) int
string(string) string
string(bool) string
string(bytes) string
string(double) string
string(duration) string
string(int) string
string(timestamp) string
string(uint) string
string(net.IP) string
string(net.CIDR) string
timestamp(timestamp) timestamp
timestamp(int) timestamp
timestamp(string) timestamp
uint(uint) uint
uint(double) uint
uint(int) uint
uint(string) uint
string.contains(string) bool
string.endsWith(string) bool
string.startsWith(string) bool
matches(string, string) bool
string.matches(string) bool
duration.getHours() int
duration.getMinutes() int
duration.getSeconds() int
duration.getMilliseconds() int
"""
_EXTENSION_SIGNATURES = """
string.charAt(int) string
string.indexOf(string) int
string.indexOf(string, int) int
string.lastIndexOf(string) int
string.lastIndexOf(string, int) int
string.lowerAscii() string
string.upperAscii() string
string.replace(string, string) string
string.replace(string, string, int) string
string.split(string) list(string)
string.split(string, int) list(string)
string.substring(int) string
string.substring(int, int) string
string.trim() string
string.format(list(dyn)) string
list(string).join() string
list(string).join(string) string
strings.quote(string) string
sets.contains(list(A), list(A)) bool
sets.equivalent(list(A), list(A)) bool
sets.intersects(list(A), list(A)) bool
optional.of(A) optional(A)
optional.ofNonZeroValue(A) optional(A)
optional.none() optional(A)
optional(A).value() A
optional(A).hasValue() bool
optional(A).or(optional(A)) optional(A)
optional(A).orValue(A) A
cel.@mapInsert(map(A, B), A, B) map(A, B)
cel.@mapInsert(map(A, B), map(A, B)) map(A, B)
"""
_KUBERNETES_SIGNATURES = """
string.find(string) string
string.findAll(string) list(string)
string.findAll(string, int) list(string)
list(A).indexOf(A) int
list(A).lastIndexOf(A) int
url(string) kubernetes.URL
isURL(string) bool
kubernetes.URL.getScheme() string
kubernetes.URL.getHost() string
kubernetes.URL.getHostname() string
kubernetes.URL.getPort() string
kubernetes.URL.getEscapedPath() string
kubernetes.URL.getQuery() map(string, list(string))
quantity(string) kubernetes.Quantity
isQuantity(string) bool
sign(kubernetes.Quantity) int
kubernetes.Quantity.isGreaterThan(kubernetes.Quantity) bool
kubernetes.Quantity.isLessThan(kubernetes.Quantity) bool
kubernetes.Quantity.compareTo(kubernetes.Quantity) int
kubernetes.Quantity.asApproximateFloat() double
kubernetes.Quantity.asInteger() int
kubernetes.Quantity.isInteger() bool
kubernetes.Quantity.add(kubernetes.Quantity) kubernetes.Quantity
kubernetes.Quantity.add(int) kubernetes.Quantity
kubernetes.Quantity.sub(kubernetes.Quantity) kubernetes.Quantity
kubernetes.Quantity.sub(int) kubernetes.Quantity
ip(string) net.IP
isIP(string) bool
ip.isCanonical(string) bool
net.IP.family() int
net.IP.isUnspecified() bool
net.IP.isLoopback() bool
net.IP.isLinkLocalMulticast() bool
net.IP.isLinkLocalUnicast() bool
net.IP.isGlobalUnicast() bool
cidr(string) net.CIDR
isCIDR(string) bool
net.CIDR.containsIP(string) bool
net.CIDR.containsIP(net.IP) bool
net.CIDR.containsCIDR(string) bool
net.CIDR.containsCIDR(net.CIDR) bool
net.CIDR.ip() net.IP
net.CIDR.prefixLength() int
net.CIDR.masked() net.CIDR
format.named(string) optional(kubernetes.NamedFormat)
kubernetes.NamedFormat.validate(string) optional(list(string))
semver(string) kubernetes.Semver
semver(string, bool) kubernetes.Semver
isSemver(string) bool
isSemver(string, bool) bool
kubernetes.Semver.major() int
kubernetes.Semver.minor() int
kubernetes.Semver.patch() int
kubernetes.Semver.isGreaterThan(kubernetes.Semver) bool
kubernetes.Semver.isLessThan(kubernetes.Semver) bool
kubernetes.Semver.compareTo(kubernetes.Semver) int
"""
# For admission only: no other expression has a value of these types.
_AUTHORIZATION_SIGNATURES = """
kubernetes.authorization.Authorizer.path(string) kubernetes.authorization.PathCheck
kubernetes.authorization.Authorizer.group(string) kubernetes.authorization.GroupCheck
kubernetes.authorization.Authorizer.serviceAccount(string, string) kubernetes.authorization.Authorizer
kubernetes.authorization.PathCheck.check(string) kubernetes.authorization.Decision
kubernetes.authorization.GroupCheck.resource(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.subresource(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.namespace(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.name(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.fieldSelector(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.labelSelector(string) kubernetes.authorization.ResourceCheck
kubernetes.authorization.ResourceCheck.check(string) kubernetes.authorization.Decision
kubernetes.authorization.Decision.allowed() bool
kubernetes.authorization.Decision.reason() string
kubernetes.authorization.Decision.errored() bool
kubernetes.authorization.Decision.error() string
"""
_NAMED_FORMATS_TEXT = (
    "dns1123Label dns1123Subdomain dns1035Label qualifiedName dns1123LabelPrefix dns1123SubdomainPrefix"
    " dns1035LabelPrefix labelValue uri uuid byte date datetime"
)
NAMED_FORMATS = _NAMED_FORMATS_TEXT.split()
_OPAQUE_TYPES = (
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.NamedFormat",
    "kubernetes.Semver",
    "net.IP",
    "net.CIDR",
    *(
        f"kubernetes.authorization.{name}"
        for name in ("Authorizer", "PathCheck", "GroupCheck", "ResourceCheck", "Decision")
    ),
)

TYPE_NAMES: dict[str, CelType] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "int": INT,
    "uint": UINT,
    "string": STRING,
    "null_type": NULL,
    "type": TYPE,
    "list": list_type(DYN),
    "map": map_type(DYN, DYN),
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
    "optional_type": optional_type(DYN),
}
"""Types that an expression may name, as in `type(self) == string`."""


class Overload(msgspec.Struct, frozen=True, eq=False):
    member: bool
    arguments: tuple[CelType, ...]
    """With the receiver of a member function first."""
    result: CelType


@cache
def overloads_by_name() -> dict[str, list[Overload]]:
    """All overloads by name."""
    overloads: dict[str, list[Overload]] = {}
    for line in _signature_lines():
        name, overload = _parse_signature(line)
        overloads.setdefault(name, []).append(overload)
    return overloads


def _signature_lines() -> list[str]:
    lines = [
        line
        for text in (
            _STANDARD_SIGNATURES,
            _EXTENSION_SIGNATURES,
            _KUBERNETES_SIGNATURES,
            _AUTHORIZATION_SIGNATURES,
        )
        for line in text.split("\n")
        if line
    ]
    for operator in ("_<_", "_<=_", "_>_", "_>=_"):
        lines += [f"{operator}({pair}) bool" for pair in _ORDERED_OPERANDS]
    for part in _DATE_PARTS:
        lines += [f"timestamp.get{part}() int", f"timestamp.get{part}(string) int"]
    for kind in _COMPARABLE_KINDS:
        lines += [f"list({kind}).isSorted() bool", f"list({kind}).max() {kind}", f"list({kind}).min() {kind}"]
    lines += [f"list({kind}).sum() {kind}" for kind in _SUMMABLE_KINDS]
    return lines + [f"format.{name}() kubernetes.NamedFormat" for name in NAMED_FORMATS]


_MEMBER_CALL = re.compile(
    rf"((?:{'|'.join(map(re.escape, _OPAQUE_TYPES))}|(?:list|map|optional)\([^)]*\)|string|bytes|duration|timestamp))\.(\w+)\((.*)\) (.+)"
)
_PLAIN_CALL = re.compile(r"(.+?)\(((?:[^()]|\([^()]*(?:\([^()]*\))?[^()]*\))*)\) (.+)")


def _parse_signature(line: str) -> tuple[str, Overload]:
    if member := _MEMBER_CALL.fullmatch(line):
        receiver, name, arguments, result = member.groups()
        types = (_parse_type(receiver), *map(_parse_type, _split_arguments(arguments)))
        return name, Overload(member=True, arguments=types, result=_parse_type(result))
    plain = _PLAIN_CALL.fullmatch(line)
    assert plain, line
    return plain[1], Overload(
        member=False, arguments=tuple(map(_parse_type, _split_arguments(plain[2]))), result=_parse_type(plain[3])
    )


def _split_arguments(text: str) -> list[str]:
    """The parts of a text between the commas outside of parentheses."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _parse_type(text: str) -> CelType:
    if text in SIMPLE_TYPES:
        return SIMPLE_TYPES[text]
    if text in _OPAQUE_TYPES:
        return CelType("struct" if text.endswith("Format") else "opaque", (), text)
    if len(text) == 1:
        return type_param(text)
    name, inner = text.rstrip(")").split("(", 1) if "(" in text else (text, "")
    inner = text[len(name) + 1 : -1]
    types = [_parse_type(part) for part in _split_arguments(inner)]
    match name:
        case "list":
            return list_type(types[0])
        case "map":
            return map_type(types[0], types[1])
        case "optional":
            return optional_type(types[0])
        case "type":
            return type_of_type(types[0])
    raise AssertionError(f"unknown type {text}")

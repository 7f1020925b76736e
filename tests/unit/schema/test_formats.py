"""String formats, as kube-openapi judges them."""

import pytest

from gangline.schema.formats import duration_nanos, format_predicate, go_duration_nanos


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", ["2024-02-29", "0000-01-01"], ["2023-02-29", "2024-1-1", "2024-01-01T00:00:00Z"]),
        ("date-time", ["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.123+01:00"], ["2024-01-02", "2024-01-02T24:00:00Z"]),
        ("duration", ["1h30m", "1.5h", "5 days", "2 weeks", "0", "-1s"], ["", "1", "x", "h"]),
        ("ipv4", ["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"], ["1.2.3", "::1", "1.2.3.256"]),
        ("ipv6", ["::1", "2001:db8::1"], ["1.2.3.4", "fe80::1%eth0", ":::"]),
        ("cidr", ["10.0.0.0/8", "::/0"], ["10.0.0.0", "10.0.0.0/33", "/8"]),
        ("uri", ["https://a.b/c", "/path", "urn:x"], ["", "a.b", "https://a b/", "http://%zz", "http://a:x/"]),
        ("email", ["a@b.c", "A B <a@b>", '"a b"@c'], ["a", "a@", "@b", "a@b@c", "a b@c"]),
        ("hostname", ["a", "a.example.com", "1a.bc", "é.fr", "a+b"], ["", "-a", "a-.bc", "a_b", "a.b.c.d.1", "a\n"]),
        ("mac", ["aa:bb:cc:dd:ee:ff", "AA-BB-CC-DD-EE-FF", "aabb.ccdd.eeff"], ["aa:bb", "aa:bb-cc:dd:ee:ff", "x"]),
        ("uuid", ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B8109DAD11D180B400C04FD430C8"], ["6ba7b810", ""]),
        ("uuid4", ["f47ac10b-58cc-4372-a567-0e02b2c3d479"], ["6ba7b810-9dad-11d1-80b4-00c04fd430c8"]),
        ("byte", ["YWJj", "YQ=="], ["", "YWJ", "Y===", "-_=="]),
        ("isbn", ["0321751043", "978-0321751041"], ["0321751044", "x"]),
        ("creditcard", ["4111 1111 1111 1111"], ["4111111111111112", ""]),
        ("ssn", ["123-45-6789", "123 45 6789"], ["123456789", "12-345-6789"]),
        ("hexcolor", ["#fff", "ABCDEF"], ["#ff", "ggg"]),
        ("rgbcolor", ["rgb(1, 2,255)"], ["rgb(1,2)", "rgb(1,2,256)"]),
        ("bsonobjectid", ["507f1f77bcf86cd799439011"], ["507f"]),
        ("password", ["", "anything"], []),
    ],
)  # fmt: skip
def test_format_takes_and_refuses(name: str, good: list[str], bad: list[str]) -> None:
    check = format_predicate(name)
    assert check is not None
    assert [text for text in good if not check(text)] == []
    assert [text for text in bad if check(text)] == []


@pytest.mark.parametrize("name", ["int32", "int64", "float", "quantity", "k8s-short-name", "anything-new"])
def test_unknown_format_is_ignored(name: str) -> None:
    assert format_predicate(name) is None


def test_durations_are_counted_in_nanoseconds() -> None:
    assert go_duration_nanos("1h30m0.5s") == 5_400_500_000_000
    assert go_duration_nanos("1 day") is None
    assert duration_nanos("1 day 2 hours") == 26 * 3600 * 10**9

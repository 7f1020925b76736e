"""Quantities against what Kubernetes' own code says of the same text."""

import copy
import pickle

import pytest

from gangline.api import quantity
from gangline.api.quantity import ZERO, Quantity, QuantityError, meant_memory, parse_resources

# Text, canonical text, Value() and MilliValue(), as printed by k8s.io/apimachinery v0.34.4.
GOLDEN = (
    ("0", "0", 0, 0),
    ("00", "0", 0, 0),
    ("0Gi", "0", 0, 0),
    ("1", "1", 1, 1000),
    ("1.", "1", 1, 1000),
    (".5", "500m", 1, 500),
    ("0.5", "500m", 1, 500),
    ("-.5", "-500m", -1, -500),
    ("+.5", "500m", 1, 500),
    ("1.5", "1500m", 2, 1500),
    ("-1", "-1", -1, -1000),
    ("100", "100", 100, 100000),
    ("1000", "1k", 1000, 1000000),
    ("1000000", "1M", 1000000, 1000000000),
    ("1024", "1024", 1024, 1024000),
    ("1536", "1536", 1536, 1536000),
    ("500m", "500m", 1, 500),
    ("1000m", "1", 1, 1000),
    ("1500m", "1500m", 2, 1500),
    ("100m", "100m", 1, 100),
    ("1n", "1n", 1, 1),
    ("1u", "1u", 1, 1),
    ("1m", "1m", 1, 1),
    ("1k", "1k", 1000, 1000000),
    ("1M", "1M", 1000000, 1000000000),
    ("1G", "1G", 1000000000, 1000000000000),
    ("1T", "1T", 1000000000000, 1000000000000000),
    ("1P", "1P", 1000000000000000, 1000000000000000000),
    ("999m", "999m", 1, 999),
    ("1001m", "1001m", 2, 1001),
    ("0.1m", "100u", 1, 1),
    ("1.5m", "1500u", 1, 2),
    ("1.5n", "2n", 1, 1),
    (".5n", "1n", 1, 1),
    ("0.1n", "1n", 1, 1),
    ("0.1u", "100n", 1, 1),
    ("100n", "100n", 1, 1),
    ("1000n", "1u", 1, 1),
    ("1000u", "1m", 1, 1),
    ("1Ki", "1Ki", 1024, 1024000),
    ("1Mi", "1Mi", 1048576, 1048576000),
    ("1Gi", "1Gi", 1073741824, 1073741824000),
    ("1Ti", "1Ti", 1099511627776, 1099511627776000),
    ("1Pi", "1Pi", 1125899906842624, 1125899906842624000),
    ("1024Ki", "1Mi", 1048576, 1048576000),
    ("1024Mi", "1Gi", 1073741824, 1073741824000),
    ("512Mi", "512Mi", 536870912, 536870912000),
    ("1000Ki", "1000Ki", 1024000, 1024000000),
    ("1000Mi", "1000Mi", 1048576000, 1048576000000),
    ("1023Mi", "1023Mi", 1072693248, 1072693248000),
    ("1536Mi", "1536Mi", 1610612736, 1610612736000),
    ("0.5Ki", "512", 512, 512000),
    ("0.5Mi", "512Ki", 524288, 524288000),
    ("0.5Gi", "512Mi", 536870912, 536870912000),
    ("1.5Ki", "1536", 1536, 1536000),
    ("1.5Mi", "1536Ki", 1572864, 1572864000),
    ("1.5Gi", "1536Mi", 1610612736, 1610612736000),
    ("1.5Ti", "1536Gi", 1649267441664, 1649267441664000),
    ("0.1Ki", "102400m", 103, 102400),
    ("0.1Mi", "104857600m", 104858, 104857600),
    ("0.1Gi", "107374182400m", 107374183, 107374182400),
    ("-1Gi", "-1Gi", -1073741824, -1073741824000),
    ("-1Ki", "-1Ki", -1024, -1024000),
    ("-1024Mi", "-1Gi", -1073741824, -1073741824000),
    ("1e3", "1e3", 1000, 1000000),
    ("1e0", "1", 1, 1000),
    ("1E3", "1e3", 1000, 1000000),
    ("1E+2", "100", 100, 100000),
    ("12e5", "1200e3", 1200000, 1200000000),
    ("12e-2", "120e-3", 1, 120),
    ("1.5E+2", "150", 150, 150000),
    ("1.5e3", "1500", 1500, 1500000),
    (".5e3", "500", 500, 500000),
    ("1000e3", "1e6", 1000000, 1000000000),
    ("1024e3", "1024e3", 1024000, 1024000000),
    ("1e-2", "10e-3", 1, 10),
    ("1.5e-2", "15e-3", 1, 15),
    ("100e-2", "1", 1, 1000),
    ("1e-12", "1e-9", 1, 1),
    ("-1e3", "-1e3", -1000, -1000000),
    ("0.000", "0", 0, 0),
    ("1.000", "1", 1, 1000),
    ("1000000k", "1G", 1000000000, 1000000000000),
    ("1000000m", "1k", 1000, 1000000),
    ("1000M", "1G", 1000000000, 1000000000000),
    ("1000000Ki", "1000000Ki", 1024000000, 1024000000000),
    ("128Ki", "128Ki", 131072, 131072000),
    ("2048Ki", "2Mi", 2097152, 2097152000),
    ("4096Mi", "4Gi", 4294967296, 4294967296000),
    ("8Gi", "8Gi", 8589934592, 8589934592000),
)


@pytest.mark.parametrize(("text", "canonical", "value", "milli"), GOLDEN)
def test_text_value_and_milli_are_those_of_kubernetes(text: str, canonical: str, value: int, milli: int) -> None:
    parsed = Quantity.parse(text)
    assert (str(parsed), parsed.value(), parsed.milli()) == (canonical, value, milli)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000E", "1000E"),
        ("1000000P", "1000E"),
        ("100Ei", "9223372036854775807"),
        ("-100Ei", "-9223372036854775807"),
    ],
)
def test_large_amounts_keep_their_suffix_and_binary_text_is_capped(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


def test_nothing_overflows() -> None:
    assert Quantity.parse("1Ei").milli() == 2**60 * 1000
    assert Quantity.parse("1000E").value() == 10**21


def test_negative_amounts_round_away_from_zero() -> None:
    assert Quantity.parse("-1.5").value() == -2
    assert Quantity.parse("-6.61Gi").value() == -7097433457
    assert Quantity.parse("-0.1n").milli() == -1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "12 Gi",
            " 1",
            "1 ",
            "-",
            "+",
            ".",
            "Ki",
            "e3",
            "1e",
            "1e+",
            "1K",
            "1ki",
            "1GiB",
            "1gi",
            "0x10",
        ),
        *("1_000", "1..2", "--1", "+-1", "1e1.5", "1E3Mi", "five", "1,5", "٣", "NaN", "inf", "-Ki", ".Gi"),
        *("1e100", "1e1000", "1e2147483648", "9" * 129),
    ],
)
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity: write "):
        Quantity.parse(text)


def test_the_refusal_says_what_was_found_and_what_to_write() -> None:
    with pytest.raises(QuantityError) as caught:
        Quantity.parse("twelve")
    assert str(caught.value) == (
        '"twelve" is not a quantity: write a number with an optional suffix, such as 500m, 2, 1.5Gi'
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [("12 Gi", "12Gi"), ("4GB", "4G"), ("1.5gib", "1.5Gi"), ("512mb", "512M"), ("8K", "8k"), ("1ki", "1Ki")],
)
def test_a_unit_that_is_misspelt_is_shown_as_it_is_written(text: str, meant: str) -> None:
    with pytest.raises(QuantityError) as caught:
        Quantity.parse(text)
    assert str(caught.value) == f'"{text}" is not a quantity: write {meant}'
    Quantity.parse(meant)


@pytest.mark.parametrize(
    ("value", "text"), [(2, "2"), (0, "0"), (0.5, "500m"), (1e22, "10e21"), (" 1Gi ", "1Gi"), (-3, "-3")]
)
def test_json_numbers_and_padded_strings_are_quantities(value: str | float, text: str) -> None:
    assert str(Quantity.of(value)) == text


@pytest.mark.parametrize("value", [True, None, [], float("nan"), float("inf")])
def test_other_json_is_not_a_quantity(value: object) -> None:
    with pytest.raises(QuantityError):
        Quantity.of(value)  # type: ignore[arg-type]


def test_a_quantity_is_its_own() -> None:
    half = Quantity.parse("500m")
    assert Quantity.of(half) is half


def test_equal_amounts_are_equal_however_written() -> None:
    assert Quantity.parse("1Gi") == Quantity.parse("1073741824") == Quantity.parse("1073741824e0")
    assert len({Quantity.parse(text) for text in ("1", "1000m", "1e0", "+1.")}) == 1
    assert Quantity.parse("1") != 1


def test_amounts_are_ordered() -> None:
    texts = ["1Gi", "-1", "1G", "500m", "0", "1n"]
    assert sorted(texts, key=Quantity.parse) == ["-1", "0", "1n", "500m", "1G", "1Gi"]


def test_the_first_operand_gives_the_family_unless_it_is_zero() -> None:
    gibi, mega, half = Quantity.parse("1Gi"), Quantity.parse("1048576"), Quantity.parse("0.5")
    assert str(gibi + mega) == "1025Mi"
    assert str(mega + gibi) == "1074790400"
    assert str(gibi - half) == "1073741823500m"
    assert str(ZERO + gibi) == "1Gi"
    assert str(ZERO - gibi) == "-1Gi"
    assert str(Quantity.parse("1e3") + half) == "1000500e-3"


def test_sum_and_multiples() -> None:
    assert sum([Quantity.parse("250m")] * 3) == Quantity.parse("750m")
    assert str(3 * Quantity.parse("512Mi")) == "1536Mi"
    assert str(Quantity.parse("512Mi") * -2) == "-1Gi"


def test_only_zero_is_false() -> None:
    assert not ZERO
    assert not Quantity.parse("0Gi")
    assert Quantity.parse("-1n")


def test_quantities_do_not_mix_with_numbers() -> None:
    one = Quantity.parse("1")
    with pytest.raises(TypeError):
        one + 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        1 + one
    with pytest.raises(TypeError):
        one - 1  # type: ignore[operator]
    with pytest.raises(TypeError):
        one * 0.5  # type: ignore[operator]
    with pytest.raises(TypeError):
        assert one < 2  # type: ignore[operator]


def test_a_quantity_does_not_change_but_can_be_copied() -> None:
    one = Quantity.parse("1Gi")
    with pytest.raises(AttributeError):
        one.nanos = 2
    with pytest.raises(AttributeError):
        del one.nanos
    assert str(copy.deepcopy(one)) == str(pickle.loads(pickle.dumps(one))) == "1Gi"
    assert repr(one) == "Quantity('1Gi')"


def test_resource_lists_add_name_by_name() -> None:
    a = parse_resources({"cpu": "500m", "memory": "1Gi"})
    b = parse_resources({"cpu": 1, "nvidia.com/gpu": "2"})
    total = {name: str(amount) for name, amount in quantity.add_resources(a, b).items()}
    assert total == {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "2"}


def test_a_request_fits_when_every_part_does() -> None:
    free = parse_resources({"cpu": "2", "memory": "1Gi"})
    assert quantity.fits(parse_resources({"cpu": "2", "memory": "1024Mi"}), free)
    assert quantity.fits({}, free)
    assert not quantity.fits(parse_resources({"cpu": "2001m"}), free)
    assert not quantity.fits(parse_resources({"nvidia.com/gpu": "1"}), free)


def test_a_request_for_nothing_fits_even_where_too_much_is_used() -> None:
    assert quantity.fits(parse_resources({"cpu": "0"}), parse_resources({"cpu": "-1"}))
    assert quantity.fits(parse_resources({"nvidia.com/gpu": 0}), {})


@pytest.mark.parametrize(
    ("amount", "meant"),
    [("4", "4Gi"), ("512", "512Mi"), ("400m", "400Mi"), ("1Mi", ""), ("4M", ""), ("0", ""), ("4Gi", "")],
)
def test_memory_in_which_no_program_runs_has_lost_its_unit(amount: str, meant: str) -> None:
    assert meant_memory(Quantity.of(amount)) == meant


def test_a_bad_resource_list_names_the_resource() -> None:
    with pytest.raises(QuantityError, match=r'nvidia\.com/gpu: "one" is not a quantity'):
        parse_resources({"cpu": "1", "nvidia.com/gpu": "one"})

"""Curves as text and as SVG."""

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.cli.output.curve import (
    LINE_COLOURS,
    MUTED_COLOUR,
    AxisMark,
    Point,
    Stroke,
    change_text,
    chart_svg,
    comparison_svg,
    curve_lines,
    curve_svg,
)

SVG = "{http://www.w3.org/2000/svg}"


def test_a_falling_curve_falls() -> None:
    points = [Point(step, 2.0 * math.exp(-step / 8)) for step in range(40)]
    assert curve_lines(points, width=20, height=4) == [
        " 1.77 ┤─╮",
        " 1.18 ┤ ╰─╮",
        "0.591 ┤   ╰───╮",
        "    0 ┤       ╰────────────",
    ]


def test_a_level_curve_is_one_line() -> None:
    assert curve_lines([Point(1, 5.0), Point(2, 5.0)], width=4, height=3) == ["  5 ┤────", "2.5 ┤", "  0 ┤"]


def test_one_point_makes_a_curve_and_no_points_make_none() -> None:
    assert curve_lines([Point(1, 0.0)], width=3, height=2) == ["1 ┤", "0 ┤───"]
    assert curve_lines([]) == []


def test_a_curve_below_zero_has_its_own_scale() -> None:
    drawn = curve_lines([Point(0, -4.0), Point(1, -2.0)], width=2, height=2)
    assert drawn == ["-2 ┤ ╭", "-4 ┤─╯"]


NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(st.tuples(st.integers(0, 1000), NUMBERS), min_size=1, max_size=50))
def test_any_points_fit_the_frame(pairs: list[tuple[int, float]]) -> None:
    drawn = curve_lines(sorted(Point(step, value) for step, value in pairs), width=30, height=6)
    assert len(drawn) == 6
    places = {line.index("┤") for line in drawn}
    assert len(places) == 1
    assert all(len(line) - line.index("┤") - 1 <= 30 for line in drawn)
    columns = [{line.ljust(100)[line.index("┤") + 1 + at] for line in drawn} - {" "} for at in range(30)]
    assert all(columns), "a column without a line"


def test_a_chart_has_a_curve_and_a_label_for_every_replica() -> None:
    drawn = curve_svg({"worker-0": [Point(1, 2.0), Point(2, 1.0)], "worker-<1>": [Point(1, 3.0)]}, "loss & more")
    root = ET.fromstring(drawn)
    assert root.findtext(f"{SVG}title") == "loss & more"
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"loss of worker-0", "loss of worker-<1>", "step 2", "3", "0"} <= set(texts)
    assert len([path for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]) == 2


@pytest.mark.parametrize("lines", [{}, {"worker-0": []}, {"worker-0": [Point(1, 1.0)]}])
def test_few_or_no_points_make_a_valid_chart(lines: dict[str, list[Point]]) -> None:
    assert ET.fromstring(curve_svg(lines, "t")).tag == f"{SVG}svg"


def test_change_text_has_the_first_and_the_last_value() -> None:
    assert change_text([Point(1, 1.92), Point(2, 1.0), Point(3, 0.004)]) == "1.92 → 0.004"
    assert change_text([Point(1, 1.92)]) == ""


def test_the_best_have_colours_and_names_and_the_others_are_grey() -> None:
    best = {"lr=0.1": [Point(0, 4), Point(1, 1)]}
    svg = comparison_svg(best, [[Point(0, 4), Point(1, 3)]], "loss of 2 trials")
    assert svg.count("<path d=") == 5 + 2
    assert svg.index(MUTED_COLOUR + '" stroke-width') < svg.index(LINE_COLOURS[0])
    assert svg.count("lr=0.1") == 1


def test_a_diverging_curve_does_not_flatten_the_others() -> None:
    away = [Point(0, 4), Point(1, 1e30)]
    assert "1.00e+30" not in comparison_svg({}, [away], "")
    assert ">8<" in comparison_svg({}, [away], "")
    assert "1.00e+30" in comparison_svg({}, [away], "", rises=True)


def test_the_legend_is_below_rising_curves() -> None:
    best = {"a": [Point(0, 0.1), Point(1, 0.9)]}
    falling, rising = (comparison_svg(best, [], "", rises=up).splitlines()[-2] for up in (False, True))
    assert 'y="40"' in falling
    assert 'y="276"' in rising


def test_ends_of_the_axis_are_rounded_to_what_can_be_seen() -> None:
    stroke = Stroke([Point(0.0042, 1.0), Point(11.9074, 2.0)], LINE_COLOURS[0], "use")
    chart = chart_svg([stroke], "", unit="hours")
    assert ">0<" in chart
    assert ">hours 11.9<" in chart
    assert 'paint-order="stroke">use<' in chart


def test_a_chart_marks_failures_and_restarts_and_may_be_logarithmic() -> None:
    points = [Point(step, 1000.0 / 10**step) for step in range(4)]
    marks = [AxisMark(1, "failure", "worker-1: exit 137 <SIGKILL>"), AxisMark(2, "restart")]
    root = ET.fromstring(curve_svg({"worker-0": points}, "loss", marks=marks, log=True))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"1000", "31.6", "1"} <= set(texts)
    upright = [path for path in root.iter(f"{SVG}path") if path.get("stroke-dasharray")]
    assert [path.findtext(f"{SVG}title") for path in upright] == ["worker-1: exit 137 <SIGKILL>", "restart"]
    # On a logarithmic axis a tenth is a step of constant height.
    [curve] = [path.get("d") or "" for path in root.iter(f"{SVG}path") if path.get("fill") == "none"]
    heights = [float(pair.split()[1]) for pair in curve.removeprefix("M").split("L")]
    assert [after - before for before, after in pairwise(heights)] == pytest.approx(
        [heights[1] - heights[0]] * 3, abs=0.2
    )

"""The pictures in docs/images are what hack/pictures.py draws from their text."""

import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
SCRIPT = runpy.run_path(str(ROOT / "hack" / "pictures.py"))
DRAWN: dict[str, str] = SCRIPT["drawings"]()
SVG = "{http://www.w3.org/2000/svg}"


def test_every_picture_has_a_text_to_be_drawn_from() -> None:
    assert {file.name for file in IMAGES.glob("*.svg")} == set(DRAWN)


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_committed_picture_is_the_one_its_text_gives(name: str) -> None:
    assert (IMAGES / name).read_text() == DRAWN[name], "run: make pictures"


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_picture_is_well_formed_and_says_what_it_shows(name: str) -> None:
    root = ET.fromstring(DRAWN[name])
    assert root.tag == f"{SVG}svg"
    for part in ("title", "desc"):
        found = root.find(f"{SVG}{part}")
        assert found is not None
        assert found.text


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_picture_needs_nothing_from_elsewhere(name: str) -> None:
    root = ET.fromstring(DRAWN[name])
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "rect", "path", "text", "tspan", "circle"}
    assert "url(" not in DRAWN[name]


def test_package_map_shows_every_layer_of_the_import_contract() -> None:
    root = ET.fromstring(DRAWN["package-map.svg"])
    shown = {element.text for element in root.iter(f"{SVG}text")}
    assert {name for layer in SCRIPT["layers"]() for name in layer} <= shown


def test_the_film_of_the_demo_shows_the_kill_and_ends_with_its_last_screen() -> None:
    source = (IMAGES / "demo.txt").read_text()
    frames = SCRIPT["read_session"](source)
    assert SCRIPT["write_session"](frames) == source
    assert any("SIGKILL to worker-1" in line for frame in frames for line in frame.lines)
    root = ET.fromstring(DRAWN["demo.svg"])
    rules = root.findtext(f"{SVG}style") or ""
    hidden = {rule.split("{", 1)[0] for rule in rules.split("}.") if "{visibility:hidden;" in rule}
    still = [
        "".join(text.itertext()) for text in root.iter(f"{SVG}text") if (text.get("class") or "").startswith("mono")
    ]
    shown = [
        "".join(text.itertext())
        for text in root.iter(f"{SVG}text")
        if (text.get("class") or "").startswith("mono") and (text.get("class") or "").split()[1] not in hidden
    ]
    assert len(shown) < len(still), "nothing moves"
    # Without animation, the last screen and nothing else.
    assert sorted(shown) == sorted(line for line in frames[-1].lines if line)


def test_the_film_is_small_enough_for_a_readme() -> None:
    assert len(DRAWN["demo.svg"].encode()) < 200_000

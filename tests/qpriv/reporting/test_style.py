"""The style sheet: contrast of every pair of colours in use, in light and dark."""

import re
from importlib.resources import files

import pytest

CSS = (files("qpriv.reporting") / "templates" / "report.css").read_text()
TEXT_PAIRS = [
    *[(ink, ground) for ink in ("ink", "muted", "accent") for ground in ("paper", "panel")],
    ("good", "good-panel"),
    ("bad", "bad-panel"),
    ("bad", "paper"),
    ("ink", "bad-panel"),
    ("open", "open-panel"),
]


def _variables(css: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", css))


LIGHT = _variables(CSS[: CSS.index("@media")])
DARK = _variables(CSS[CSS.index("@media") : CSS.index("* {")])


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, success criterion 1.4.3."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_the_formula_gives_the_known_extremes():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_both_schemes_define_the_same_colours():
    assert LIGHT.keys() == DARK.keys()


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT_PAIRS)
def test_text_can_be_read(scheme, ink, ground):
    assert contrast(scheme[ink], scheme[ground]) >= 4.5


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("series", range(1, 7))
def test_lines_can_be_seen(scheme, series):
    assert contrast(scheme[f"series-{series}"], scheme["paper"]) >= 3


def test_colours_come_from_variables_alone():
    rules = CSS[CSS.index("* {") :]
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b", rules)


def test_print_and_phone_have_rules_of_their_own():
    assert "@media print" in CSS and "max-width: 46rem" in CSS

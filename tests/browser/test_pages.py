"""The pages in a real browser: on a phone, on a desk, in the dark, on paper, by keyboard."""

import re
from itertools import pairwise, product
from pathlib import Path

import pytest

from qpriv.reporting import write_report
from tests.qpriv.reporting import fakes

from . import chromium

CHECKS = (Path(__file__).parent / "checks.js").read_text()
WIDTHS = {"phone": 360, "desktop": 1280}
A4 = 717  # pixels between the margins
PAGES = ("study", "run", "documents")
FOCUSED = """(() => {
  const at = document.activeElement, box = at.getBoundingClientRect(), style = getComputedStyle(at);
  return {
    name: at === document.body ? "" : at.tagName.toLowerCase(),
    text: at.textContent.trim().slice(0, 30),
    outlined: parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none",
    inside: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
  };
})()"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.PROGRAM is None,
        reason="no chromium here: apt-get install chromium, to see the pages as readers do",
    ),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """Pages of figures that nobody measured: of a study, of one run, of a document study."""
    folder = tmp_path_factory.mktemp("pages")
    run = fakes.write_run(folder / "one", fakes.policy_results("off", seed=0))
    documents = fakes.write_document_study(folder / "documents")
    return {
        "study": write_report([fakes.write_study(folder / "study")], folder / "of-study"),
        "run": write_report([run], folder / "of-run"),
        "documents": write_report([documents], folder / "of-documents"),
    }


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with chromium.browser(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture(scope="module")
def shots(tmp_path_factory) -> Path:
    """Where screenshots go: with ``--basetemp`` they can be looked at afterwards."""
    return tmp_path_factory.mktemp("screenshots", numbered=False)


@pytest.mark.parametrize(("page", "width", "dark"), [*product(PAGES, WIDTHS, (False, True))])
def test_it_can_be_read(tab, pages, shots, page, width, dark):
    tab.open(pages[page], width=WIDTHS[width], dark=dark)
    tab.screenshot(shots / f"{page}-{width}-{'dark' if dark else 'light'}.png")
    for opened in ("false", "true"):
        tab.run(f"document.querySelectorAll('details').forEach(each => each.open = {opened})")
        seen = tab.run(CHECKS)
        assert tab.told == []
        assert seen["window"] == WIDTHS[width] and seen["width"] <= seen["window"]
        for trouble in ("outside", "faint", "small", "targets", "images"):
            assert seen[trouble] == [], trouble
        if width == "phone":
            assert seen["scrolling"] == []
        assert seen["headings"][0] == 1 and seen["headings"].count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(seen["headings"]))


def test_the_checks_see_what_is_wrong(tab, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><title>bad</title><h1>a</h1><h3>b</h3><nav><a href='#'>c</a></nav>"
        "<p style='color:#aaa;background:#fff'>faint</p><p style='font-size:7px'>small</p>"
        "<div style='width:2000px'>wide</div><img src='gone.png' alt='gone' width=9 height=9>"
        "<script>console.error('broken')</script>"
    )
    tab.open(page, width=360)
    seen = tab.run(CHECKS)
    for trouble in ("outside", "faint", "small", "targets", "images"):
        assert seen[trouble], trouble
    assert seen["headings"] == [1, 3] and seen["width"] > 360
    assert any("broken" in line for line in tab.told)


@pytest.mark.parametrize("page", PAGES)
def test_all_of_it_is_reached_by_keyboard(tab, pages, page):
    tab.open(pages[page], width=1280)
    expected = tab.run(CHECKS)["reachable"]
    stops = []
    while not stops or stops[-1]["name"]:
        tab.press("Tab", 9)
        stops.append(tab.run(FOCUSED))
        assert len(stops) < 500, "the keyboard is caught"
    assert stops[0]["text"].startswith("Skip to") and len(stops) - 1 >= expected
    assert [stop for stop in stops[:-1] if not (stop["outlined"] and stop["inside"])] == []


def test_the_keyboard_opens_what_is_folded(tab, pages):
    tab.open(pages["study"], width=1280)
    tab.run("document.querySelector('summary').focus()")
    tab.press("Enter", 13)
    assert tab.run("document.querySelector('details').open") is True


def test_a_screen_reader_is_told_tables_pictures_and_regions(tab, pages):
    tab.open(pages["study"], width=360)
    tab.call("Accessibility.enable")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    told = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if "role" in n]
    roles = [role for role, _ in told]
    # on a phone the tables are laid out as cards, and must be read as tables all the same
    assert {"table", "row", "rowheader", "cell", "main", "banner", "navigation"} <= set(roles)
    pictures = [name for role, name in told if role in ("image", "img", "figure")]
    assert len(pictures) > 6
    named = {"image", "img", "link", "heading", "table", "region"}
    assert [role for role, name in told if role in named and not name] == []


@pytest.mark.parametrize("page", PAGES)
def test_it_prints_dark_on_white_without_what_needs_a_screen(tab, pages, shots, page):
    tab.open(pages[page], width=A4, dark=True)
    tab.as_printed(dark=True)
    seen = tab.run(CHECKS)
    assert seen["faint"] == [] and seen["outside"] == [] and seen["scrolling"] == []
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run("getComputedStyle(document.querySelector('.skip')).display") == "none"
    paper = tab.printed()
    (shots / f"{page}.pdf").write_bytes(paper)
    assert paper.startswith(b"%PDF") and 1 <= len(re.findall(rb"/Type\s*/Page\b", paper)) < 60

"""The parts of the documentation that are made of declarations are as they are declared."""

from pathlib import Path

import pytest

from qpriv.reporting.pages import written

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_a_page_says_what_is_declared(path):
    page = path.read_text(encoding="utf-8")
    assert written(page) == page, "run: python -m qpriv.reporting.pages"


def test_the_pages_have_declared_parts():
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    for part in ("attacks", "figures", "headlines"):
        assert f"<!-- declared: {part} -->" in pages
    assert (
        "`ForaProbe" in pages and "`attack/supervised_inversion/psnr_sensitive`, headline" in pages
    )

"""Matplotlib figures as inline SVG that follows the page: its colours, its light and dark."""

import io
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

# Matplotlib wants colours; the page wants variables. Each stand-in is replaced by its variable.
INK, MUTED, RULE = "#010101", "#010102", "#010103"
SERIES = tuple(f"#0202{index:02x}" for index in range(1, 7))
_VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"} | {
    colour: f"--series-{index}" for index, colour in enumerate(SERIES, start=1)
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: selectable, searchable, read aloud
    "svg.hashsalt": "qpriv",  # the same figures give the same file
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Picture:
    """A drawn figure for the page.

    Args:
        key: Identifier within the page.
        title: What it shows, its caption's first words.
        caption: How to read it.
        svg: The inline SVG element.
    """

    key: str
    title: str
    caption: str
    svg: str

    def told_apart(self, mark: str, place: str) -> "Picture":
        """Return the picture under another key and title, for a page with several of its kind.

        Args:
            mark: What is added to the key.
            place: What is added to the title, such as the data set.
        """
        key, title = f"{self.key}{mark}", f"{self.title}{place}"
        svg = self.svg.replace(f"{self.key}-", f"{key}-")
        svg = svg.replace(f">{escape(self.title)}</title>", f">{escape(title)}</title>")
        return replace(self, key=key, title=title, svg=svg)


def style() -> AbstractContextManager[None]:
    """Return the context in which figures are made."""
    return mpl.rc_context(_STYLE)


def inline(canvas: Canvas, key: str, title: str, alternative: str) -> str:
    """Return a figure as an ``<svg>`` element without any outside reference.

    Args:
        canvas: The Matplotlib figure; must be made within `style`.
        key: Prefix of all identifiers, since several figures share a page.
        title: Accessible name.
        alternative: What a reader who cannot see the figure is told.
    """
    file = io.StringIO()
    with style():
        canvas.savefig(file, format="svg")
    body = re.sub(r"<metadata>.*?</metadata>", "", file.getvalue(), flags=re.DOTALL)
    body = body[body.index("<svg") :]
    body = re.sub(r' xmlns(:xlink)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r' (id="|href="#)', rf" \g<1>{key}-", body).replace("url(#", f"url(#{key}-")
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    view_box = re.search(r'viewBox="[^"]*"', body)
    inside = body[body.index(">") + 1 :]
    return (
        f'<svg {view_box[0] if view_box else ""} role="img" '
        f'aria-labelledby="{key}-title {key}-desc">'
        f'<title id="{key}-title">{escape(title)}</title>'
        f'<desc id="{key}-desc">{escape(alternative)}</desc>{inside}'
    )

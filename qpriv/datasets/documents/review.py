"""The review sheet: shows a person every canary before and after its erasure."""

import base64
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from jinja2 import Environment
from PIL import Image

from qpriv.datasets.sample import VQASample

from .canaries import Canary, Curation
from .page import Word

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Canaries: review</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body { font: 16px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 70rem; padding: 0 1rem }
article { border-top: 1px solid #888; padding: 1rem 0 }
img { max-width: 100%; border: 1px solid #888; margin: .25rem 0 } dt { font-weight: 600 }
</style></head><body>
<h1>{{ rows | length }} canaries to review</h1>
<p>This page shows personal data: keep it where it is. A canary stays if its answer cannot be read
or worked out from the second picture. Otherwise write <code>no</code> under <code>keep</code> in
<code>review.csv</code>; correct the kind there, too.</p>
{% for canary, before, after in rows %}<article>
<h2>{{ canary.answer }}</h2>
<dl><dt>Question</dt><dd>{{ canary.question }}</dd>
<dt>Kind</dt><dd>{{ canary.pii or "not personal" }} ({{ canary.rule }})</dd>
<dt>Occurs</dt><dd>{{ canary.train_count }} times as an answer, on {{ canary.text_count }} pages</dd>
<dt>Key</dt><dd><code>{{ canary.key }}</code></dd></dl>
<p><img src="{{ before }}" alt="around the answer, before"><br>
<img src="{{ after }}" alt="the same place, after"></p>
</article>
{% endfor %}</body></html>
"""
_REACH = 150
"""Pixels shown around an answer."""


def write_review_sheet(
    canaries: Iterable[Canary],
    samples: Mapping[str, VQASample],
    folder: Path,
    settings: Curation,
    limit: int = 500,
) -> Path:
    """Write ``review.html`` with the surroundings of each canary, and return its path.

    Args:
        canaries: The canaries.
        samples: The training samples by key.
        folder: Where the sheet goes.
        settings: How the pages were erased.
        limit: Most canaries on a sheet; a browser cannot show thousands of pictures.
    """
    rows = []
    for canary in list(canaries)[:limit]:
        image = samples[canary.key].image.load()
        erased = canary.erased(image, settings.fill, settings.margin)
        box = _around(canary, image.size)
        rows.append((canary, _embedded(image.crop(box)), _embedded(erased.crop(box))))
    page = Environment(autoescape=True).from_string(_PAGE).render(rows=rows)
    path = folder / "review.html"
    path.write_text(page, encoding="utf-8")
    return path


def _around(canary: Canary, size: tuple[int, int]) -> tuple[int, int, int, int]:
    boxes = [Word("", quad).box for quad in canary.quads]
    left, top = min(b[0] for b in boxes), min(b[1] for b in boxes)
    right, bottom = max(b[2] for b in boxes), max(b[3] for b in boxes)
    return (
        max(0, left - _REACH),
        max(0, top - _REACH),
        min(size[0], right + _REACH),
        min(size[1], bottom + _REACH),
    )


def _embedded(image: Image.Image) -> str:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()

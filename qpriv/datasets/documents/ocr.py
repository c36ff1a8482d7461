"""OCR files as they come: Microsoft Read v2 and v3, the form inside parquet mirrors, Tesseract."""

import csv
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

import msgspec
from PIL import Image

from qpriv.datasets.encodings import text_of
from qpriv.datasets.files import DataFile, read_data
from qpriv.datasets.sample import VQASample
from qpriv.errors import DataError, reason

from .page import PageText, Quad, Word, quad_of

_FARTHEST = 1e6
"""Pixels, or inches, beyond which nothing is on a page."""

_REMEDY = "download the OCR files again"


class _Word(msgspec.Struct, gc=False):
    text: str
    boundingBox: list[float] | None = None
    bounding_box: list[float] | None = None  # in parquet mirrors


class _Line(msgspec.Struct, gc=False):
    words: list[_Word] | None = None
    text: str | None = None
    boundingBox: list[float] | None = None
    bounding_box: list[float] | None = None


class _Page(msgspec.Struct, gc=False):
    width: float
    height: float
    lines: list[_Line]
    clockwiseOrientation: float | None = None
    clockwise_orientation: float | None = None
    angle: float | None = None


class OCREngine(Protocol):
    """Reads the words of a page."""

    def __call__(self, image: Image.Image) -> PageText:
        """Return the text of an image, in its pixels."""
        ...


def parse_ocr(content: bytes, where: str) -> tuple[PageText, ...]:
    """Return the pages of an OCR file in JSON, whichever version wrote it.

    Args:
        content: The file's bytes.
        where: The file's name, for messages.

    Raises:
        DataError: If it is not JSON, or in none of the known forms, or the engine had failed.
    """
    try:
        document = msgspec.json.decode(text_of(content, where))
    except (msgspec.DecodeError, RecursionError) as error:
        raise DataError(f"not JSON: {reason(error)}", where=where, remedy=_REMEDY) from error
    return parse_ocr_document(document, where)


def parse_ocr_document(document: object, where: str) -> tuple[PageText, ...]:
    """Return the pages of decoded OCR output.

    Raises:
        DataError: If it is in none of the known forms, or the engine had failed.
    """
    pages = _pages(document, where)
    if pages is None:
        raise DataError(
            "neither Microsoft Read v2 (recognitionResults) nor v3 (analyzeResult.readResults)",
            where=where,
            remedy="use the OCR files of the release, or none and have Tesseract read the pages",
        )
    try:
        return tuple(_page(page) for page in msgspec.convert(pages, list[_Page]))
    except (msgspec.ValidationError, RecursionError, ValueError) as error:
        raise DataError(f"broken OCR page: {reason(error)}", where=where, remedy=_REMEDY) from error


def _pages(document: object, where: str) -> object:
    """Return what should be a list of pages, None where the form is unknown."""
    if not isinstance(document, Mapping):
        return None
    status = document.get("status") or "succeeded"
    if not isinstance(status, str) or status.lower() != "succeeded":
        raise DataError(
            f"OCR ended with status {status!r}", where=where, remedy="have the page read again"
        )
    if "recognitionResults" in document:
        return document["recognitionResults"]
    if isinstance(result := document.get("analyzeResult"), Mapping):
        return result.get("readResults") or []
    return [document] if "lines" in document and "width" in document else None


def _page(page: _Page) -> PageText:
    words = []
    for number, line in enumerate(page.lines):
        # the fields of a line without words would be lost with it
        parts: Sequence[_Word | _Line] = line.words or [line]
        for word in parts:
            if word.text is None:
                raise ValueError(f"line {number} has neither words nor a text")
            quad = _quad(word.boundingBox or word.bounding_box)
            words.append(Word(word.text, quad, number))
    turns = (page.clockwiseOrientation, page.clockwise_orientation, page.angle, 0.0)
    angle = next(turn for turn in turns if turn is not None)
    if not (0 < page.width <= _FARTHEST and 0 < page.height <= _FARTHEST and isfinite(angle)):
        raise ValueError(f"a page of {page.width} x {page.height}, turned by {angle} degrees")
    return PageText(page.width, page.height, tuple(words), angle)


def _quad(numbers: Sequence[float] | None) -> Quad:
    """Return eight numbers as corners; four are left, top, right, bottom."""
    values = tuple(numbers or ())
    if not all(abs(value) <= _FARTHEST for value in values):  # also what is no number
        raise ValueError(f"a bounding box beyond any page: {values}")
    if len(values) == 4:
        left, top, right, bottom = values
        return (left, top, right, top, right, bottom, left, bottom)
    if len(values) != 8:
        raise ValueError(f"a bounding box of {len(values)} numbers")
    return values


def read_v2(page: PageText) -> dict[str, Any]:
    """Return a page as the Microsoft Read v2 JSON that DocVQA ships."""
    lines: dict[int, list[Word]] = {}
    for word in page.words:
        lines.setdefault(word.line, []).append(word)
    return {
        "status": "Succeeded",
        "recognitionResults": [
            {
                "page": 1,
                "clockwiseOrientation": page.angle % 360,
                "width": page.width,
                "height": page.height,
                "unit": "pixel",
                "lines": [_line_json(words) for words in lines.values()],
            }
        ],
    }


def _line_json(words: list[Word]) -> dict[str, Any]:
    boxes = [word.box for word in words]
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    around = quad_of((min(lefts), min(tops), max(rights), max(bottoms)))
    return {
        "boundingBox": list(around),
        "text": " ".join(word.text for word in words),
        "words": [{"boundingBox": list(w.quad), "text": w.text} for w in words],
    }


def parse_tesseract_tsv(text: str, width: int, height: int) -> PageText:
    """Return the words of Tesseract's TSV output."""
    words, lines = [], dict[tuple[str, str, str], int]()
    for row in csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE):
        if row["level"] != "5" or not row["text"].strip():
            continue
        line = (row["block_num"], row["par_num"], row["line_num"])
        left, top = int(row["left"]), int(row["top"])
        box = (left, top, left + int(row["width"]), top + int(row["height"]))
        words.append(Word(row["text"], quad_of(box), lines.setdefault(line, len(lines))))
    return PageText(width, height, tuple(words))


class Tesseract:
    """The ``tesseract`` program, where it is installed.

    Read pages at their native resolution: at 640 pixels of height one word in thirty is lost, at
    480 every second one.

    Args:
        page_segmentation: Tesseract's ``--psm``; 6 takes the page as one block and 11 looks for
            sparse text, both better on forms than the default.
        language: Tesseract's ``-l``.

    Raises:
        DataError: If the program is not installed.
    """

    def __init__(self, page_segmentation: int = 6, language: str = "eng") -> None:
        self.page_segmentation, self.language = page_segmentation, language
        self.program = shutil.which("tesseract")
        if self.program is None:
            raise DataError(
                "there is no OCR file, and the program tesseract is not installed",
                where="documents without OCR",
                remedy="put the release's OCR files below its root, or apt-get install tesseract-ocr",
            )

    def __call__(self, image: Image.Image) -> PageText:
        """Return the text of an image.

        Raises:
            DataError: If the program fails; carries what it said.
        """
        assert self.program is not None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "page.png")
            image.convert("L").save(path)
            command = [self.program, str(path), "stdout", "-l", self.language]
            run = subprocess.run(
                [*command, "--psm", str(self.page_segmentation), "tsv"],
                capture_output=True,
                text=True,
                check=False,
                # more threads than pages only slow each other down
                env={"OMP_THREAD_LIMIT": "1", "PATH": str(Path(self.program).parent)},
            )
        if run.returncode:
            raise DataError(
                f"tesseract failed: {run.stderr.strip()[:200]}",
                where=self.program,
                remedy=f"try it by hand: tesseract PAGE.png stdout -l {self.language}",
            )
        return parse_tesseract_tsv(run.stdout, *image.size)


@dataclass(frozen=True, slots=True)
class OCRFile:
    """An OCR file of a release, read when asked for.

    Args:
        file: The JSON file.
        page: Number of the page in it, from 0.
    """

    file: DataFile
    page: int = 0

    def load(self) -> PageText:
        """Return the words of the page.

        Raises:
            DataError: If the file is broken or has no such page.
        """
        pages = parse_ocr(read_data(self.file), self.file.name)
        if self.page >= len(pages):
            raise DataError(
                f"no page {self.page} among {len(pages)}", where=self.file.name, remedy=_REMEDY
            )
        return pages[self.page]


def page_text(sample: VQASample, engine: OCREngine | None = None) -> tuple[Image.Image, PageText]:
    """Return a sample's page and its words, in the pixels of the page.

    Args:
        sample: A sample of a document set.
        engine: Reads the page where the release has no words for it.

    Raises:
        DataError: If there are neither words nor an engine.
    """
    image = sample.image.load()
    source = sample.meta.get("text")
    if source is not None:
        return image, source.load().scaled_to(*image.size)
    if engine is None:
        raise DataError(
            "no OCR for this page",
            where=sample.key,
            remedy="put the release's OCR files below its root, or read pages without them by Tesseract: "
            "`qpriv prepare canaries --tesseract`",
        )
    return image, engine(image)

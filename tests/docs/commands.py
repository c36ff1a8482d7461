"""Every command that the documentation shows, and what the tests do with each."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("qpriv", "make", "pip", "python", "flwr", "flower-supernode")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*(?:qpriv|make|python|pip) [^`]+)`")


@dataclass(frozen=True)
class Command:
    """One command of one page.

    Args:
        page: Name of the page.
        text: What it shows.
        whole: Whether it stands in a block, to be typed as it is.
    """

    page: str
    text: str
    whole: bool

    @property
    def words(self) -> list[str]:
        """Return what a shell makes of it, without settings of the environment before it."""
        words = shlex.split(self.text, comments=True)
        return [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]

    @property
    def is_name(self) -> bool:
        """Return whether it only names a command, as prose does, and gives it nothing to do."""
        return (
            not self.whole
            and self.words[0] == "qpriv"
            and len(self.words) < 4
            and not any(mark in self.text for mark in ("--", "*", "RUN"))
        )


def shown() -> list[Command]:
    """Return the commands of all pages, each once."""
    found: dict[str, Command] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [body for kind, body in _FENCE.findall(text) if kind in ("", "console", "bash")]
        lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
        typed = [line for line in lines if line.split("#")[0].strip()]
        prose = [" ".join(each.split()) for each in _INLINE.findall(_FENCE.sub("", text))]
        for line in typed:
            found.setdefault(line, Command(page.name, line, whole=True))
        for words in prose:
            found.setdefault(words, Command(page.name, words, whole=False))
    return list(found.values())


def python_blocks() -> list[tuple[str, str]]:
    """Return the pages and texts of the Python that is shown."""
    return [
        (page.name, body)
        for page in PAGES
        for kind, body in _FENCE.findall(page.read_text(encoding="utf-8"))
        if kind == "python"
    ]


def recipe(target: str) -> list[str]:
    """Return what ``make`` runs for a target, each line a command of the environment's."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
    assert found, f"make has no target {target}"
    return [line.strip().lstrip("@").replace("$(BIN)/", "") for line in found[1].splitlines()]

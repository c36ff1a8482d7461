"""What tests need to know of a page: its elements in order, and the text of each."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = {"meta", "img", "br", "link", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    parents: tuple["Element", ...] = ()

    def inside(self, tag: str) -> bool:
        return any(parent.tag == tag for parent in self.parents)


@dataclass
class Page(HTMLParser):
    source: str
    elements: list[Element] = field(default_factory=list)
    declaration: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Element] = []
        self.feed(self.source)
        self.close()
        self.unclosed = [element.tag for element in self._open]

    def handle_decl(self, decl: str) -> None:
        self.declaration = decl

    def handle_starttag(self, tag, attrs) -> None:
        element = Element(tag, {k: v or "" for k, v in attrs}, parents=tuple(self._open))
        self.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs) -> None:
        self.elements.append(Element(tag, dict(attrs), parents=tuple(self._open)))

    def handle_endtag(self, tag) -> None:
        assert self._open and self._open[-1].tag == tag, f"</{tag}> closes {self._open[-1].tag}"
        self._open.pop()

    def handle_data(self, data) -> None:
        for element in self._open:
            element.text += data

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def rows(self, table: str) -> list[str]:
        """Return the text of each body row of a table, by its id."""
        return [
            " ".join(element.text.split())
            for element in self.all("tr")
            if element.inside("tbody")
            and any(parent.attributes.get("id") == table for parent in element.parents)
        ]

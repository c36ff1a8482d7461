"""The pictures of the runs, put into the page itself; private ones can be withheld."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qpriv.key import Key, apart

from .condition import Condition
from .run_folder import Medium, Run

# a page of more would take a phone minutes to open; the run folders hold the rest
MAX_PICTURES = 24
_TITLES = {
    "reconstruction": "What the attacker rebuilds",
    "kept_tokens": "Which patches leave the client",
}


@dataclass(frozen=True)
class Exhibit:
    """One picture as the page shows it.

    Args:
        heading: Policy and what else tells it from others, epoch and seed.
        caption: What it shows; empty where it is withheld.
        alternative: Text for a reader who cannot see it.
        source: A ``data:`` address, or empty where the picture is withheld.
    """

    heading: str
    caption: str
    alternative: str
    source: str


@dataclass(frozen=True)
class Gallery:
    """All shown pictures of one kind, and how many there are in all.

    Args:
        key: Identifier within the page.
        title: Heading.
        exhibits: The pictures shown.
        note: What is not shown, and where it is.
    """

    key: str
    title: str
    exhibits: tuple[Exhibit, ...]
    note: str


def galleries(runs: Iterable[Run], *, redact: bool) -> list[Gallery]:
    """Return a gallery for each kind of picture: each policy's last epoch, side by side.

    Args:
        runs: The runs whose pictures are shown.
        redact: Withhold every private picture with its caption, for publication.
    """
    kinds: dict[str, list[tuple[Run, Medium]]] = defaultdict(list)
    for run in runs:
        for medium in run.media:
            kinds[medium.kind].append((run, medium))
    return [_gallery(kind, kinds[kind], redact) for kind in sorted(kinds, key=_place)]


def _gallery(kind: str, media: Sequence[tuple[Run, Medium]], redact: bool) -> Gallery:
    groups = _last_epochs(media)
    names = apart(key.setting for key in groups)
    chosen = [
        (run, medium, _heading(key, names, run if several else None))
        for key, drawn in groups.items()
        for several in [len({run.folder for run, _ in drawn}) > 1]
        for run, medium in drawn
    ]
    exhibits = tuple(_exhibit(*each, redact) for each in chosen[:MAX_PICTURES])
    more = len(media) - len(exhibits)
    note = f"{more} more (earlier epochs, other seeds) are in the media folders of the runs."
    title = _TITLES.get(kind, kind.replace("_", " ").capitalize())
    return Gallery(kind.replace("_", "-"), title, exhibits, note if more else "")


def _last_epochs(media: Sequence[tuple[Run, Medium]]) -> dict[Key, list[tuple[Run, Medium]]]:
    """Keep the pictures of each key's last epoch in its first seed."""
    keys: dict[Key, list[tuple[Run, Medium]]] = defaultdict(list)
    for run, medium in media:
        keys[medium.key(run.tags)].append((run, medium))
    kept: dict[Key, list[tuple[Run, Medium]]] = {}
    for key in sorted(keys, key=lambda key: (Condition.of(key).order, str(key.setting))):
        epoch = max(_number(medium.epoch) for _, medium in keys[key])
        last = [each for each in keys[key] if _number(each[1].epoch) == epoch]
        seed = min(_number(medium.seed) for _, medium in last)
        kept[key] = [each for each in last if _number(each[1].seed) == seed]
    return kept


def _heading(key: Key, names: Iterable[str], run: Run | None) -> str:
    """Say under what a picture was drawn; of several runs, by which."""
    label = Condition.of(key).label or "no policy named"
    return " · ".join(filter(None, (label, key.setting.phrase(names), run.name if run else "")))


def _exhibit(run: Run, medium: Medium, heading: str, redact: bool) -> Exhibit:
    heading = " · ".join(
        [
            heading,
            *([f"epoch {medium.epoch}"] if medium.epoch is not None else []),
            *([f"seed {medium.seed}"] if medium.seed is not None else []),
        ]
    )
    if redact and medium.private:
        return Exhibit(heading, "", "", "")
    content = base64.b64encode((run.folder / medium.path).read_bytes()).decode()
    source = f"data:image/png;base64,{content}"
    return Exhibit(heading, medium.caption, medium.alt or medium.caption, source)


def _number(value: int | None) -> int:
    return -2 if value is None else value


def _place(kind: str) -> tuple[int, str]:
    known = list(_TITLES)
    return (known.index(kind) if kind in known else len(known)), kind

"""The pictures of the runs, put into the page itself; private ones can be withheld."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
        heading: Policy, epoch and seed.
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
    chosen = _last_epochs(media)
    shown = chosen[:MAX_PICTURES]
    exhibits = tuple(_exhibit(run.folder, medium, redact) for run, medium in shown)
    more = len(media) - len(shown)
    note = f"{more} more (earlier epochs, other seeds) are in the media folders of the runs."
    title = _TITLES.get(kind, kind.replace("_", " ").capitalize())
    return Gallery(kind.replace("_", "-"), title, exhibits, note if more else "")


def _last_epochs(media: Sequence[tuple[Run, Medium]]) -> list[tuple[Run, Medium]]:
    """Keep each policy's pictures of its last epoch in its first seed."""
    policies: dict[str, list[tuple[Run, Medium]]] = defaultdict(list)
    for run, medium in media:
        policies[medium.policy].append((run, medium))
    kept: list[tuple[Run, Medium]] = []
    for _, policy in sorted(policies.items(), key=lambda item: Condition(item[0]).order):
        epoch = max(_number(medium.epoch) for _, medium in policy)
        last = [each for each in policy if _number(each[1].epoch) == epoch]
        seed = min(_number(medium.seed) for _, medium in last)
        kept += [each for each in last if _number(each[1].seed) == seed]
    return kept


def _exhibit(folder: Path, medium: Medium, redact: bool) -> Exhibit:
    heading = " · ".join(
        [
            medium.policy or "no policy named",
            *([f"epoch {medium.epoch}"] if medium.epoch is not None else []),
            *([f"seed {medium.seed}"] if medium.seed is not None else []),
        ]
    )
    if redact and medium.private:
        return Exhibit(heading, "", "", "")
    content = base64.b64encode((folder / medium.path).read_bytes()).decode()
    source = f"data:image/png;base64,{content}"
    return Exhibit(heading, medium.caption, medium.alt or medium.caption, source)


def _number(value: int | None) -> int:
    return -2 if value is None else value


def _place(kind: str) -> tuple[int, str]:
    known = list(_TITLES)
    return (known.index(kind) if kind in known else len(known)), kind

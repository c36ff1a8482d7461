"""What was measured and what it means: cards and sentences made from the figures themselves."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qpriv.errors import DataError
from qpriv.pruning.label import PolicyLabel
from qpriv.quantity import Quantity

from .claims import Claim
from .condition import HYPOTHETICAL, Condition, headline
from .evidence import Evidence, Figure
from .numbers import basis, interval, number
from .quantities import headlines, leaks
from .run_folder import Run
from .sentences import join, membership, other_attacks, recognition, reconstruction, utility
from .strongest import by_whom, failures, held_against, strongest_figure


@dataclass(frozen=True)
class Tile:
    """One headline figure of a policy: value, interval, and what to hold it against."""

    label: str
    value: str
    interval: str
    note: str


@dataclass(frozen=True)
class Card:
    """The headline figures of one policy.

    Args:
        title: Label of the policy.
        meaning: The label in plain words.
        tiles: What was measured.
        supposed: What would be read at a cut that the run does not have; no headlines.
    """

    title: str
    meaning: str
    tiles: tuple[Tile, ...]
    supposed: tuple[Tile, ...] = ()


def describe_runs(runs: Sequence[Run], evidence: Evidence) -> str:
    """Say how many runs there are, on which data, what is pruned, and whether anybody attacked."""
    seeds = sorted({str(r.seed) for run in runs for r in run.results if r.seed is not None})
    sets = ", ".join(name or "unnamed data" for name in evidence.datasets) or "no data yet"
    seeds_text = (
        f"{_count(len(seeds), 'seed')} ({', '.join(seeds)})" if seeds else "no recorded seed"
    )
    found = f"{_count(len(runs), 'run')} over {seeds_text} on {sets}."
    if any(figure.name.startswith("extraction/") for figure in evidence.figures):
        return (
            f"{found} Document models answer questions about pages. Answers they were trained on "
            "are erased from the pages, and attackers ask for them all the same."
        )
    pruned = _pruning({result.policy for run in runs for result in run.results})
    answer = "A vision-language model answers questions about images."
    return " ".join(filter(None, (found, answer, pruned, _attackers(evidence))))


def findings(evidence: Evidence, claims: Sequence[Claim]) -> list[str]:
    """Return what the figures mean, one sentence or two each."""
    shown = _shown(evidence)
    sentences = [
        *utility(evidence, shown),
        *reconstruction(evidence, shown),
        *recognition(evidence, shown),
        *membership(evidence, shown),
        *other_attacks(evidence),
        *_not_on_a_card(evidence, shown),
    ]
    verdicts = Counter(claim.verdict for claim in claims)
    if claims:
        sentences.append(
            f"Claims put to the test: {len(claims)}. Reproduced: {verdicts['reproduced']}. Not "
            f"reproduced: {verdicts['not reproduced']}. Undecided: {verdicts['undecided']}."
        )
    return sentences


def cards(evidence: Evidence) -> list[Card]:
    """Return the headline figures of no pruning, half the tokens and the dynamic threshold.

    Of a few policies, whatever they are, every one has a card.
    """
    made = [_card(evidence, condition) for condition in _shown(evidence)]
    return [card for card in made if card.tiles or card.supposed]


def troubles(runs: Sequence[Run]) -> list[str]:
    """Return what failed or is missing, so that a gap is not read as a good result."""
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    failed: Counter[str] = Counter()
    for run in runs:
        for result in run.results:
            if result.status in ("failed", "skipped"):
                note = f" ({result.note})" if result.note else ""
                failed[f"{run.name}: {result.name} {result.status}{note}"] += 1
    return [*problems, *(f"{text}, {_count(times, 'time')}" for text, times in failed.items())]


CARDS = 4
"""Most cards of a data set: a phone shows one at a time."""


def _shown(evidence: Evidence) -> list[Condition]:
    """Return the policies that cards and sentences speak of."""
    told = [c for c in evidence.conditions if _speaks(evidence, c)]
    if len(told) <= CARDS:
        return told
    chosen = headline(told)
    return ([each for each in chosen if each.rank_by in ("", "fused")] or chosen)[:CARDS]


def _speaks(evidence: Evidence, condition: Condition) -> bool:
    """Return whether a policy has a headline figure, or one that failed."""
    return any(
        failures(evidence, own, condition)
        or strongest_figure(evidence, own, condition)
        or strongest_figure(evidence, own, condition, supposed=True)
        for own in headlines()
    )


def _card(evidence: Evidence, condition: Condition) -> Card:
    tiles = _tiles(evidence, condition, supposed=False)
    supposed = _tiles(evidence, condition, supposed=True)
    return Card(condition.label, condition.meaning, tuple(tiles), tuple(supposed))


def _tiles(evidence: Evidence, condition: Condition, *, supposed: bool) -> list[Tile]:
    """Return a tile for each headline; recognition stands wherever a reconstruction does."""
    made: list[Tile] = []
    rebuilt = False
    for own in headlines():
        figure = strongest_figure(evidence, own, condition, supposed=supposed)
        if figure:
            made.append(_tile(evidence, own, figure))
            rebuilt = rebuilt or own.question.endswith("reconstruction")
        elif not supposed and (failed := failures(evidence, own, condition)):
            made.append(Tile(own.short, failed[0].example.status, "", failed[0].example.note))
        elif own.question == "recognition" and rebuilt:
            made.append(_unknown(evidence, own, condition))
    return made


def _tile(evidence: Evidence, own: Quantity, figure: Figure) -> Tile:
    estimate, unit = figure.estimate, figure.example.unit
    assert estimate is not None  # the strongest figure has a value
    notes = (
        held_against(evidence, figure),
        by_whom(evidence, own, figure),
        f"on {figure.dataset}" if own.direction == "use" and figure.dataset else "",
        own.caution,
        figure.channel if figure.hypothetical else "",
        "short attacker" if figure.short else "",
        f"failed in {_count(len(figure.failed), 'seed')}" if figure.failed else "",
        basis(estimate),
    )
    value = number(estimate.value, unit) + (" dB" if unit == "dB" else "")
    return Tile(
        own.short, value, interval(estimate.interval, unit), " · ".join(filter(None, notes))
    )


def _unknown(evidence: Evidence, own: Quantity, condition: Condition) -> Tile:
    """Return the tile of what was not told beside a reconstruction, and why."""
    tried = [f for f in evidence.named(own.name) if f.condition == condition]
    why = next((f.example.note for f in tried if f.example.note), "")
    value = "n/a" if tried else "not measured"
    return Tile(
        own.short, value, "", why or "PSNR alone does not tell whether a face is recognised"
    )


def _not_on_a_card(evidence: Evidence, shown: Sequence[Condition]) -> list[str]:
    """Say how many policies have no card, and which of these gives away more than any that has."""
    rest = [c for c in evidence.conditions if c not in shown and _speaks(evidence, c)]
    if not rest:
        return []
    told = [f"Not on a card: {_count(len(rest), 'other policy')}, in the tables."]
    for own in leaks():
        inside, outside = (_most(evidence, own, conditions) for conditions in (shown, rest))
        if outside and outside[0] > (inside[0] if inside else float("-inf")):
            value, condition = outside
            unit = " dB" if own.unit == "dB" else ""
            told.append(
                f"{own.short} is highest there: {number(value, own.unit)}{unit} under {condition.label}."
            )
    return [" ".join(told)]


def _most(
    evidence: Evidence, own: Quantity, conditions: Iterable[Condition]
) -> tuple[float, Condition] | None:
    found = [(strongest_figure(evidence, own, each), each) for each in conditions]
    values = [(f.estimate.value, each) for f, each in found if f and f.estimate]
    return max(values, key=lambda pair: pair[0], default=None)


def _pruning(policies: Iterable[str]) -> str:
    """Say whether any visual token is dropped in these runs."""
    drops = {_drops(policy) for policy in policies if policy}
    if drops == {True, False}:
        return (
            "Some runs keep every visual token; in the others a pruning policy drops or merges "
            "part of them before the language model reads them."
        )
    return {
        frozenset({False}): "Nothing is pruned: every visual token is kept.",
        frozenset({True}): "A pruning policy drops or merges part of the visual tokens before the "
        "language model reads them.",
    }.get(frozenset(drops), "")


def _drops(policy: str) -> bool:
    try:
        label = PolicyLabel.parse(policy)
    except DataError:
        return True
    return label.name != "off" and label.ratio != 0


def _attackers(evidence: Evidence) -> str:
    """Say whom the attackers read, or that there was none."""
    attacks = [figure for figure in evidence.figures if figure.name.startswith("attack/")]
    if not attacks:
        return "No attacker was tried: nothing here says what leaks."
    told = "Attackers try to take what they should not have."
    read = sorted({f.channel.removeprefix(HYPOTHETICAL) for f in attacks if f.hypothetical})
    if not read:
        return told
    return (
        f"{told} Some read a cut that the run does not have ({join(read)}): their figures are "
        "hypothetical."
    )


def _count(number_of: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number_of} {noun if number_of == 1 else plural}"

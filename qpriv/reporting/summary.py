"""What was measured and what it means, in sentences made from the figures themselves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from qpriv.attacks.gradient_report import GRADIENT, PICTURE
from qpriv.attacks.membership import MEMBERSHIP
from qpriv.metrics.answers import ACCURACY
from qpriv.metrics.membership import AUC
from qpriv.pruning.decision import KEPT_TOKENS
from qpriv.quantity import Quantity

from .claims import Claim
from .claims.comparison import FACE_FLOOR, FACE_PSNR, strongest
from .condition import HYPOTHETICAL, Condition, headline
from .evidence import Evidence, Figure
from .numbers import basis, interval, number
from .quantities import headlines, quantity
from .run_folder import Run


@dataclass(frozen=True)
class Tile:
    """One headline figure of a policy: value, interval, and what to hold it against."""

    label: str
    value: str
    interval: str
    note: str


@dataclass(frozen=True)
class Card:
    """The headline figures of one policy."""

    title: str
    meaning: str
    tiles: tuple[Tile, ...]


def describe_runs(runs: Sequence[Run], evidence: Evidence) -> str:
    """Say how many runs there are, over which seeds and on which data."""
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
    return (
        f"{found} A vision-language model answers "
        "questions about images. Before anything leaves the client, a pruning policy drops part of "
        "the visual tokens. Attackers then try to take from what crosses, or from the trained "
        "model, what they should not have."
    )


def findings(evidence: Evidence, claims: Sequence[Claim]) -> list[str]:
    """Return what the figures mean, one sentence or two each."""
    chosen = headline(evidence.conditions)
    off = next((each for each in chosen if each.family == "off"), None)
    chosen = [each for each in chosen if each.rank_by in ("", "fused")] or chosen
    sentences = [*_utility(evidence, off, chosen), *_faces(evidence, chosen)]
    sentences += [*_membership(evidence, chosen), *_gradients(evidence, chosen)]
    verdicts = Counter(claim.verdict for claim in claims)
    if claims:
        sentences.append(
            f"Claims put to the test: {len(claims)}. Reproduced: {verdicts['reproduced']}. Not "
            f"reproduced: {verdicts['not reproduced']}. Undecided: {verdicts['undecided']}."
        )
    return sentences


def cards(evidence: Evidence) -> list[Card]:
    """Return the headline figures of no pruning, half the tokens and the dynamic threshold."""
    chosen = headline(evidence.conditions)
    fused = [each for each in chosen if each.rank_by in ("", "fused")]
    made = [Card(c.label, c.meaning, tuple(_tiles(evidence, c))) for c in fused or chosen]
    return [card for card in made if card.tiles][:4]


def troubles(runs: Sequence[Run]) -> list[str]:
    """Return what failed or is missing, so that nobody takes a gap for a good result."""
    problems = [f"{run.name}: {problem}" for run in runs for problem in run.problems]
    failed: Counter[str] = Counter()
    for run in runs:
        for result in run.results:
            if result.status in ("failed", "skipped"):
                note = f" ({result.note})" if result.note else ""
                failed[f"{run.name}: {result.name} {result.status}{note}"] += 1
    return [*problems, *(f"{text}, {_count(times, 'time')}" for text, times in failed.items())]


def _tiles(evidence: Evidence, condition: Condition) -> list[Tile]:
    tiles = []
    for own in headlines():
        figure = evidence.figure(own.name, condition, **strongest(evidence, own.name))
        estimate = figure.estimate if figure else None
        if figure and estimate:
            unit = figure.example.unit
            value = number(estimate.value, unit) + (" dB" if unit == "dB" else "")
            notes = (
                _beside(evidence, own, condition),
                _query(figure),
                HYPOTHETICAL.rstrip(":") if figure.channel.startswith(HYPOTHETICAL) else "",
                "short attacker" if figure.short else "",
                basis(estimate),
            )
            ends = interval(estimate.interval, unit)
            tiles.append(Tile(own.short, value, ends, " · ".join(filter(None, notes))))
    return tiles


def _beside(evidence: Evidence, own: Quantity, condition: Condition) -> str:
    """Say what a headline figure is to be held against."""
    if own.baseline:
        floor, name = evidence.estimate(own.baseline, condition), quantity(own.baseline).short
        unit = " dB" if own.unit == "dB" else ""
        told = f"{name} {number(floor.value, own.unit)}{unit}" if floor else f"{name} not measured"
        return told if own.chance is None else f"{told} · guessing {own.chance:g}"
    return "" if own.chance is None else f"guessing {own.chance:g}"


def _utility(evidence: Evidence, off: Condition | None, chosen: Sequence[Condition]) -> list[str]:
    whole = evidence.estimate(ACCURACY.name, off) if off else None
    if whole is None:
        return []
    parts = []
    for each in chosen:
        accuracy = evidence.estimate(ACCURACY.name, each)
        kept = evidence.estimate(KEPT_TOKENS.name, each)
        if each != off and accuracy and kept:
            parts.append(
                f"{_percent(accuracy.value)} under {each.label} "
                f"({number(kept.value, 'tokens')} tokens kept)"
            )
    against = f", against {_join(parts)}" if parts else ""
    return [
        f"Utility: {_percent(whole.value)} of the questions are answered right without pruning{against}."
    ]


def _faces(evidence: Evidence, chosen: Sequence[Condition]) -> list[str]:
    setting = strongest(evidence, FACE_PSNR)
    parts, short = [], False
    for each in chosen:
        figure = evidence.figure(FACE_PSNR, each, **setting)
        floor = evidence.estimate(FACE_FLOOR, each)
        if figure and figure.estimate:
            gap = f" ({_gap(figure.estimate.value - floor.value)})" if floor else ""
            parts.append(f"{each.label} {number(figure.estimate.value, 'dB')} dB{gap}")
            short = short or figure.short
    if not parts:
        return []
    lower = " The attackers had little time: read these as lower bounds." if short else ""
    return [
        "Faces: how well an attacker repaints the face from what crosses, against the floor of "
        f"painting an average face: {'; '.join(parts)}.{lower}"
    ]


def _gap(difference: float) -> str:
    return f"{abs(difference):.1f} dB {'above' if difference > 0 else 'below'} it"


def _membership(evidence: Evidence, chosen: Sequence[Condition]) -> list[str]:
    figures = [
        f
        for f in evidence.named(MEMBERSHIP.figure(AUC.name))
        if f.condition in chosen and f.estimate
    ]
    asked: dict[str, list[str]] = {}
    for figure in figures:
        query = str(dict(figure.setting).get("query_policy", "not recorded"))
        query = "same" if figure.condition.family == "off" else query
        where = _whose(evidence, figure)
        value = f"{where} {number(figure.estimate.value)}" if figure.estimate else ""
        # where nothing is pruned, all query policies are one question with one answer
        if value not in asked.setdefault(query, []):
            asked[query].append(value)
    if not asked:
        return []
    parts = [
        f"{_QUERIES.get(query, query)}: {', '.join(values)}" for query, values in asked.items()
    ]
    return [
        "Membership: how well an attacker tells training images from others (AUC; 0.5 is "
        f"guessing). {'; '.join(parts)}."
    ]


def _gradients(evidence: Evidence, chosen: Sequence[Condition]) -> list[str]:
    parts = []
    for figure in evidence.named(_GRADIENT):
        if figure.condition in chosen and figure.estimate:
            chance = figure.example.attack.get("prior")
            against = f" (guessing {number(float(chance))})" if chance is not None else ""
            where = _whose(evidence, figure)
            parts.append(f"{where} {number(figure.estimate.value)}{against}")
    if not parts:
        return []
    return [
        "Gradients: how often the gradient at the cut tells which of some candidate pictures was "
        f"trained on: {'; '.join(parts)}."
    ]


_GRADIENT = GRADIENT.figure(PICTURE.name)
_QUERIES = {
    "same": "Asking through the same masks as in training",
    "off": "Asking with all tokens",
    "resampled": "Asking through random masks",
}


def _whose(evidence: Evidence, figure: Figure) -> str:
    """Return the condition, and of several attackers which."""
    return ", ".join(filter(None, (figure.condition.label, evidence.attacker(figure))))


def _query(figure: Figure) -> str:
    query = figure.example.attack.get("query_policy")
    return f"query policy {query}" if query else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _join(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"

"""`Condition`: under what a figure was measured, and the order in which readers meet them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from qpriv.errors import DataError
from qpriv.key import Key
from qpriv.lines import Line, agree
from qpriv.pruning.label import PolicyLabel

HYPOTHETICAL = "hypothetical:"
"""What the label of a channel begins with that the run does not have."""

# the order of the rows: no pruning first, then what the study compares, then the controls
_FAMILIES = ("off", "fixed", "dtp", "constant", "oracle", "random", "downsample")
_RANKINGS = {
    "fused": "utility minus sensitivity",
    "utility": "utility",
    "sensitivity": "low sensitivity",
}


@dataclass(frozen=True)
class Condition:
    """What is held fixed over the seeds of one row: policy, paradigm, defence and study tags.

    Args:
        policy: Label of the pruning policy, ``off`` or ``fixed(0.5,fused,alpha=0)``.
        paradigm: Who owns which layers.
        defence: Label of the defence, or ``none``.
        tags: What a study varies besides, as sorted ``(name, value)`` pairs.
        channel: Label of the channel, where conditions differ in nothing else.
        stage: Stage of the study or name of the run, where conditions differ in nothing else.
    """

    policy: str
    paradigm: str = "centralized"
    defence: str = "none"
    tags: tuple[tuple[str, str], ...] = ()
    channel: str = ""
    stage: str = ""

    @classmethod
    def of(cls, key: Key, *, channel: str = "", stage: bool = False) -> "Condition":
        """Return the condition that a key speaks of.

        What trains no victim has no policy, and is known by its stage. The constant control has
        another ratio in each seed and is one condition all the same.

        Args:
            key: Key of a figure.
            channel: Label of the channel the run was trained with, to be told.
            stage: Tell the stage.
        """
        made = cls(
            key.policy or key.stage,
            key.paradigm,
            key.defence,
            key.tags,
            channel,
            key.stage if stage and key.policy else "",
        )
        if made.family != "constant":
            return made
        return replace(made, policy=str(replace(made.parts, ratio=None)))

    @cached_property
    def parts(self) -> PolicyLabel:
        """Return the label in parts; a label of another form is a name and nothing else."""
        try:
            return PolicyLabel.parse(self.policy)
        except DataError:
            return PolicyLabel(self.policy)

    @property
    def family(self) -> str:
        """Return the name before the bracket.

        >>> Condition("fixed(0.5,fused)").family
        'fixed'
        """
        return self.parts.name

    @property
    def ratio(self) -> float | None:
        """Return the fixed pruning ratio, 0 for ``off``, None where it varies per sample."""
        return 0.0 if self.family == "off" else self.parts.ratio

    @property
    def rank_by(self) -> str:
        """Return what the patches are ranked by, or an empty string."""
        return self.parts.rank_by or ""

    @cached_property
    def options(self) -> dict[str, str]:
        """Return the named settings of the label and the tags; the label goes first.

        >>> Condition("dtp(fused,alpha=0)", tags=(("utility", "random"),)).options
        {'utility': 'random', 'alpha': '0'}
        """
        named = (setting.partition("=") for setting in self.parts.settings)
        return dict(self.tags) | {name: value for name, _, value in named}

    @property
    def alpha(self) -> float:
        """Return the weight of utility in a fused ranking: 1 where the label names none."""
        try:
            return float(self.options.get("alpha", 1.0))
        except ValueError:
            return 1.0

    @property
    def ranking(self) -> tuple[tuple[str, str], ...]:
        """Return all that orders the patches: two policies of one ranking differ in ratio only.

        >>> Condition("dtp(fused)").ranking == Condition("fixed(0.5,fused)").ranking
        True
        """
        whole = {"rank_by": self.rank_by, "in": self.paradigm, "behind": self.defence}
        whole |= {"through": self.channel} if self.channel else {}
        whole |= {"stage": self.stage} if self.stage else {}
        return tuple(sorted({**self.options, **whole}.items()))

    @property
    def label(self) -> str:
        """Return the name of the row: the policy, then what else differs.

        >>> Condition("off", defence="nopeek(0.1)", tags=(("utility", "random"),)).label
        'off · utility random · nopeek(0.1)'
        """
        parts = [self.policy, *(f"{name} {value}" for name, value in self.tags)]
        parts += [self.paradigm] if self.paradigm != "centralized" else []
        parts += [self.defence] if self.defence != "none" else []
        parts += [part for part in (self.channel, self.stage) if part]
        return " · ".join(parts)

    @property
    def meaning(self) -> str:
        """Say in plain words what the policy does; empty where it is not one of ours.

        >>> Condition("fixed(0.5,fused)").meaning
        'drops 50 % of the tokens, ranked by utility minus sensitivity'
        """
        by = f", ranked by {_RANKINGS[self.rank_by]}" if self.rank_by in _RANKINGS else ""
        share = "" if self.ratio is None else f"{100 * self.ratio:.0f} % of the tokens"
        return {
            "off": "keeps every token",
            "fixed": f"drops {share}{by}",
            "dtp": f"drops a share predicted for each image and question{by}",
            "constant": f"drops the mean predicted share of every image{by}",
            "oracle": "drops what a search with the right answer allows; for reference",
            "random": f"drops {share or 'tokens'} at random",
            "downsample": f"drops {share or 'tokens'} by lowering the resolution",
        }.get(self.family, "")

    @property
    def order(self) -> tuple[int, str, str, float, str]:
        """Return the key that sorts conditions for a reader."""
        family = self.family
        rank = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)
        ratio = self.ratio
        ranking = f"{self.rank_by} {self.options.get('utility', '')}"
        return (rank, family, ranking, -1.0 if ratio is None else ratio, self.label)


def conditions_of(lines: Sequence[Line]) -> list[Condition]:
    """Return the condition of each figure or curve.

    Channel and stage are told where conditions differ in nothing else: runs of one condition and
    several seeds are one row, whatever they are called, and two runs of one seed are two. A
    condition's channel is the one its run was trained with, also where an attack reads another.
    """
    plain = [Condition.of(line.spot[0]) for line in lines]
    trained: dict[object, str] = {}
    read: dict[Condition, set[str]] = defaultdict(set)
    stages: dict[object, dict[str, Line]] = defaultdict(dict)
    clashing = set[Condition]()
    for condition, line in zip(plain, lines, strict=True):
        key, seed, epoch = line.spot
        if not key.channel.startswith(HYPOTHETICAL) and not key.name.startswith("attack/"):
            trained.setdefault((condition, key.stage, seed), key.channel)
        if not key.channel.startswith(HYPOTHETICAL):
            read[condition].add(key.channel)
        held = stages[replace(key, stage=""), seed, epoch]
        held.setdefault(key.stage, line)
        if not line.varies and not all(agree(line, other) for other in held.values()):
            clashing.add(condition)
    channels = [
        trained.get(
            (condition, line.spot[0].stage, line.spot[1]),
            _read_from(line.spot[0].channel, read[condition]),
        )
        for condition, line in zip(plain, lines, strict=True)
    ]
    several: dict[Condition, set[str]] = defaultdict(set)
    for condition, channel in zip(plain, channels, strict=True):
        several[condition].add(channel)
    return [
        Condition.of(
            line.spot[0],
            channel=channel if len(several[condition]) > 1 else "",
            stage=condition in clashing,
        )
        for condition, channel, line in zip(plain, channels, lines, strict=True)
    ]


def _read_from(channel: str, others: set[str]) -> str:
    """Return the channel of a run that only attacks tell of: a supposed one is nobody's."""
    if not channel.startswith(HYPOTHETICAL):
        return channel
    return next(iter(others)) if len(others) == 1 else ""


def headline(conditions: Sequence[Condition]) -> list[Condition]:
    """Return the few conditions that figures and summary speak of.

    No pruning, half the tokens by each ranking, and the dynamic threshold.
    """
    chosen = [
        c for c in conditions
        if c.family in ("off", "dtp") or (c.family == "fixed" and c.ratio == 0.5)
    ]  # fmt: skip
    plain = [c for c in chosen if "alpha" not in c.options]
    default = [c for c in plain if not c.tags]
    return (default or plain or chosen or list(conditions))[:6]

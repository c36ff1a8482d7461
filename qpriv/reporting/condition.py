"""`Condition`: under what a figure was measured, and the order in which readers meet them."""

import re
from dataclasses import dataclass
from functools import cached_property

from qpriv.result import Result

# the order of the rows: no pruning first, then what the study compares, then the controls
_FAMILIES = ("off", "fixed", "dtp", "constant", "oracle", "random", "downsample")
_LABEL = re.compile(r"(?P<family>[\w-]+)\s*(?:\((?P<arguments>.*)\))?")


@dataclass(frozen=True)
class Condition:
    """What is held fixed over the seeds of one row: policy, paradigm, defence and study tags.

    Args:
        policy: Label of the pruning policy, ``off`` or ``fixed(0.5,fused,alpha=0)``.
        paradigm: Who owns which layers.
        defence: Label of the defence, or ``none``.
        tags: What a study varies besides, as sorted ``(name, value)`` pairs.
    """

    policy: str
    paradigm: str = "centralized"
    defence: str = "none"
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, result: Result, tags: dict[str, str]) -> "Condition":
        """Return the condition of a result from a run with these study tags."""
        return cls(
            result.policy or "off", result.paradigm, result.defence, tuple(sorted(tags.items()))
        )

    @cached_property
    def family(self) -> str:
        """Return the name before the bracket.

        >>> Condition("fixed(0.5,fused)").family
        'fixed'
        """
        match = _LABEL.fullmatch(self.policy.strip())
        return match["family"] if match else self.policy

    @cached_property
    def options(self) -> dict[str, str]:
        """Return what the label and the tags say, by name; a tag does not override the label.

        >>> Condition("fixed(0.5,fused,alpha=0)", tags=(("utility", "random"),)).options
        {'utility': 'random', 'ratio': '0.5', 'rank_by': 'fused', 'alpha': '0'}
        """
        match = _LABEL.fullmatch(self.policy.strip())
        options = dict(self.tags)
        for part in (match["arguments"] or "").split(",") if match else ():
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if equals:
                options[name] = value
            elif _number(name) is not None:
                options["ratio"] = name
            elif name:
                options["rank_by"] = name
        return options

    @property
    def ratio(self) -> float | None:
        """Return the fixed pruning ratio, 0 for ``off``, None where it varies per sample."""
        return 0.0 if self.family == "off" else _number(self.options.get("ratio", ""))

    @property
    def rank_by(self) -> str:
        """Return what the patches are ranked by, or an empty string."""
        return self.options.get("rank_by", "")

    def number(self, option: str) -> float | None:
        """Return an option as a number, or None where it is absent or no number."""
        return _number(self.options.get(option, ""))

    @property
    def ranking(self) -> tuple[tuple[str, str], ...]:
        """Return all that orders the patches: two policies of one ranking differ in ratio only.

        >>> Condition("dtp(fused)").ranking == Condition("fixed(0.5,fused)").ranking
        True
        """
        options = {name: value for name, value in self.options.items() if name != "ratio"}
        return tuple(sorted({**options, "in": self.paradigm, "behind": self.defence}.items()))

    @property
    def label(self) -> str:
        """Return the name of the row: the policy, then what else differs.

        >>> Condition("off", defence="nopeek(0.1)", tags=(("utility", "random"),)).label
        'off · utility random · nopeek(0.1)'
        """
        parts = [self.policy, *(f"{name} {value}" for name, value in self.tags)]
        parts += [self.paradigm] if self.paradigm != "centralized" else []
        parts += [self.defence] if self.defence != "none" else []
        return " · ".join(parts)

    @property
    def order(self) -> tuple[int, str, str, float, str]:
        """Return the key that sorts conditions for a reader."""
        family = self.family
        rank = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES)
        ratio = self.ratio
        ranking = f"{self.rank_by} {self.options.get('utility', '')}"
        return (rank, family, ranking, -1.0 if ratio is None else ratio, self.label)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

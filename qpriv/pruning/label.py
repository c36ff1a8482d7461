"""`PolicyLabel`: a policy's name as it stands in results, tables and file names."""

import re
from dataclasses import dataclass
from typing import Literal, Self, get_args

from qpriv.errors import DataError

RankBy = Literal["utility", "fused", "sensitivity"]
"""What patches are ranked by: u, alpha u - beta s, or -s."""

_FORM = re.compile(r"(?P<name>[\w-]+)(\((?P<arguments>[^()]*)\))?")


@dataclass(frozen=True)
class PolicyLabel:
    """A label in parts; `str` writes it and `parse` reads it.

    Args:
        name: ``off``, ``fixed``, ``dtp``, ``constant``, ``oracle``, ``random``, ``downsample``.
        ratio: Pruning ratio, where the policy has one for all samples.
        rank_by: What patches are ranked by, where they are.
        settings: Whatever else tells the policy from its default, such as ``alpha=0.25``.

    >>> str(PolicyLabel("fixed", 0.5, "fused", ("alpha=0.25",)))
    'fixed(0.5,fused,alpha=0.25)'
    >>> PolicyLabel.parse("dtp(fused)")
    PolicyLabel(name='dtp', ratio=None, rank_by='fused', settings=())
    """

    name: str
    ratio: float | None = None
    rank_by: RankBy | None = None
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the label: the name, with what applies in parentheses."""
        ratio = () if self.ratio is None else (f"{self.ratio:g}",)
        rank_by = () if self.rank_by is None else (self.rank_by,)
        arguments = ",".join((*ratio, *rank_by, *self.settings))
        return f"{self.name}({arguments})" if arguments else self.name

    @classmethod
    def parse(cls, label: str) -> Self:
        """Return the parts of a label.

        Raises:
            DataError: If it is none.
        """
        match = _FORM.fullmatch(label)
        if match is None:
            raise DataError(f"not a policy label: {label!r}")
        ratio: float | None = None
        rank_by: RankBy | None = None
        settings = []
        for argument in filter(None, (match["arguments"] or "").split(",")):
            if re.fullmatch(r"[\d.]+(e-?\d+)?", argument):
                ratio = float(argument)
            elif argument in get_args(RankBy):
                rank_by = argument
            else:
                settings.append(argument)
        return cls(match["name"], ratio, rank_by, tuple(settings))

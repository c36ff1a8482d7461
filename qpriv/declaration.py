"""`Attack`: what every page says of an attack. It is declared beside the attack, and nowhere else."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from qpriv.quantity import Quantity


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the table of the attacks says of one attacker.

    Args:
        what: Name of the attack, with the probe that runs it.
        who: ``server``, ``client`` or ``outsider``, and whether it departs from the protocol.
        holds: Data and models of its own.
        knows: What it knows of policy and kept positions.
        measures: What is measured.
        beside: What its figures are held against.
        source: Where it was published.
    """

    what: str
    who: str
    holds: str
    knows: str
    measures: str
    beside: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A claim about a figure of an attack, which a report puts to the test.

    Args:
        topic: The group it belongs to, such as ``Re-identification``.
        statement: The claim in one sentence; the policy's name goes before it.
        quantity: Name of the figure, without the attack's.
        tested: What is tested, in words.
        under: The policies it speaks of: those that prune nothing (``unpruned``), or half of the
            tokens and the dynamic threshold (``pruned``).
        against: What the figure is less or divided by: its baseline (``baseline``), what guessing
            gives (a multiple of ``chance``), the same attack without pruning (``unpruned``).
        above: Threshold of a claim that says "more than".
        below: Threshold of a claim that says "less than"; exactly one of the two is given.
        paired: Name of a figure that holds the difference to the baseline paired by image, which
            is tested instead where it was measured.
        strongest: Whether it speaks of the strongest of all attacks that answer the same question,
            and not of the attack that declares it.
        without: What must be run where the figure is missing altogether; empty where the claim
            is then not made.
    """

    topic: str
    statement: str
    quantity: str
    tested: str
    under: Literal["unpruned", "pruned"] = "unpruned"
    against: Literal["nothing", "baseline", "chance", "unpruned"] = "nothing"
    above: float | None = None
    below: float | None = None
    paired: str = ""
    strongest: bool = False
    without: str = ""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """An attack as reports, dashboards and the documentation know it.

    Args:
        name: What the names of its figures begin with, after ``attack/``.
        family: What stands before the name, where that is not ``attack``.
        title: Heading of its tables.
        topic: The same in a word or two, before a sentence; empty for the title.
        quantities: Its figures, in the order of a table.
        rows: Its rows in the table of the attacks.
        claims: What is claimed of it.
        bound: Name of the attack whose server is granted more: of what that one gains over its
            floor the report shows the share that this one recovers. Empty where there is none.
    """

    name: str
    title: str
    quantities: tuple[Quantity, ...] = ()
    rows: tuple[Row, ...] = ()
    claims: tuple[Claimed, ...] = ()
    bound: str = ""
    family: str = "attack"
    topic: str = ""

    def figure(self, name: str) -> str:
        """Return the whole name of one of its figures.

        >>> Attack(name="fora", title="").figure("psnr")
        'attack/fora/psnr'
        """
        return "/".join(filter(None, (self.family, self.name, name)))

    def declared(self, name: str) -> Quantity:
        """Return one of its quantities under its whole name."""
        return next(own for own in self.figures if own.name == self.figure(name))

    @property
    def figures(self) -> tuple[Quantity, ...]:
        """Return its quantities under their whole names."""
        return tuple(
            replace(
                own,
                name=self.figure(own.name),
                baseline=self.figure(own.baseline) if own.baseline else "",
            )
            for own in self.quantities
        )


def aside(quantities: Iterable[Quantity], *leading: str) -> tuple[Quantity, ...]:
    """Return quantities for an attack that speaks of some of them only in its main table.

    No headline is among them: a weaker attacker of the same kind has none.
    """
    return tuple(replace(own, headline=False, leading=own.name in leading) for own in quantities)


def answered(quantities: Iterable[Quantity], by: str) -> tuple[Quantity, ...]:
    """Return quantities that name their attacker where others answer the same question."""
    return tuple(replace(own, by=by) if own.question else own for own in quantities)


def prefixed(quantities: Iterable[Quantity], prefix: str, title: str) -> tuple[Quantity, ...]:
    """Return the same quantities of a variant of an attack, whose names begin with a prefix.

    >>> auc = Quantity(name="auc", title="AUC", meaning="Area.", baseline="blind_auc")
    >>> [(own.name, own.title) for own in prefixed([auc], "lira_", "LiRA")]
    [('lira_auc', 'LiRA: AUC')]
    """
    return tuple(
        replace(
            own,
            name=f"{prefix}{own.name}",
            title=f"{title}: {own.title}",
            label="",
            headline=False,
            by=title if own.question else "",
        )
        for own in quantities
    )

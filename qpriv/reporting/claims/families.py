"""Families of claims: the more are put to the test together, the more each has to show."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from qpriv.errors import ConfigError

from .verdict import LEVEL, Claim

Families = Mapping[str, Sequence[str]]
"""Topics of the claims of each family, by the family's name."""

REST = "all claims"
"""The family of claims whose topic no family names."""


def check_families(families: Families, topics: Iterable[str]) -> None:
    """Check that each family names topics that there are, and none twice.

    Args:
        families: The families.
        topics: Every topic that a claim can have.

    Raises:
        ConfigError: If a family is empty, or a topic is unknown or in two families.
    """
    known = list(topics)
    counts = Counter(topic for named in families.values() for topic in named)
    for name, named in families.items():
        if not named:
            raise ConfigError(f"claim family {name} names no topic", remedy="name one or more")
    for topic, times in counts.items():
        if topic not in known:
            choice = f"choose among {', '.join(known)}"
            raise ConfigError(f"no claim has the topic {topic}", remedy=choice)
        if times > 1:
            raise ConfigError(f"topic {topic} is in several families", remedy="keep it in one")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number by Holm's step-down rule (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted


def adjusted_claims(claims: Sequence[Claim], families: Families) -> list[Claim]:
    """Return claims in their order, with Holm's p-values and the verdicts that follow from them.

    Claims without a p-value, such as those that were not measured, count in no family.

    Args:
        claims: Claims as they were judged one by one.
        families: The families; claims of other topics are one more.
    """
    family_of = {topic: name for name, named in families.items() for topic in named}
    members: dict[str, list[int]] = defaultdict(list)
    made = [replace(each, family=family_of.get(each.topic, REST)) for each in claims]
    for at, each in enumerate(made):
        if each.p is not None:
            members[each.family].append(at)
    for group in members.values():
        for at, p in zip(group, holm([made[at].p or 0.0 for at in group]), strict=True):
            verdict = made[at].unadjusted if p <= LEVEL else "undecided"
            made[at] = replace(made[at], adjusted=p, tests=len(group), verdict=verdict)
    return made

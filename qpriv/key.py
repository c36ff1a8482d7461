"""`Key`: what makes a figure this figure and no other, for all that writes, reads or shows figures."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from qpriv.errors import ConfigError

Scalar = str | int | float | bool | None
ASIDE = {"aside": True}
"""Metadata of a dataclass field that changes no figure: it is no part of a setting."""

# what `attack` says of a figure without telling it from others: who attacks follows from the
# figure's name and its settings, and the rest was measured
_FACTS = frozenset(
    {
        *("attacker", "active", "auxiliary", "knows_policy", "access", "surface", "trained_head"),
        *("steps", "steps_done", "short", "chance", "gallery", "prior", "gradient_norm"),
        *("members", "nonmembers", "queries", "refusal_phrases", "classes", "classifier", "known"),
        *("delta", "protected", "found"),
    }
)


@dataclass(frozen=True)
class AttackSetting:
    """The settings under which an attack ran: who attacks, with what knowledge, on which budget.

    Names are those of the attack's own arguments, so that a reader finds them in a configuration.

    Args:
        parts: Names and values, in the order of the names.

    >>> str(AttackSetting.given({"steps": 60, "client": "supervised"}))
    'client=supervised, steps=60'
    """

    parts: tuple[tuple[str, Scalar], ...] = ()

    @classmethod
    def of(cls, attack: Any) -> Self:  # noqa: ANN401 - any dataclass
        """Return the setting of an attack: its dataclass fields, but for those marked `ASIDE`.

        Raises:
            ConfigError: If a field has a value that cannot stand in a line of results.
        """
        own = [each for each in fields(attack) if not each.metadata.get("aside")]
        return cls.given({each.name: plain(getattr(attack, each.name)) for each in own})

    @classmethod
    def given(cls, parts: Mapping[str, Scalar]) -> Self:
        """Return the setting with these parts."""
        return cls(tuple(sorted(parts.items())))

    @cached_property
    def by_name(self) -> dict[str, Scalar]:
        """Return the parts by name."""
        return dict(self.parts)

    def unlike(self, other: "AttackSetting") -> tuple[str, ...]:
        """Return the names in which two settings differ.

        >>> AttackSetting.given({"cut": 4}).unlike(AttackSetting.given({"cut": 2, "steps": 60}))
        ('cut', 'steps')
        """
        return tuple(sorted({name for name, _ in set(self.parts) ^ set(other.parts)}))

    def phrase(self, names: Iterable[str]) -> str:
        """Return some of the parts as a reader finds them in a heading; empty where none is there.

        >>> AttackSetting.given({"query_policy": "off"}).phrase(["query_policy", "cut"])
        'query policy off'
        """
        own = self.by_name
        return ", ".join(f"{name.replace('_', ' ')} {own[name]}" for name in names if name in own)

    def __str__(self) -> str:
        """Return the parts as ``name=value``."""
        return ", ".join(f"{name}={value}" for name, value in self.parts)


def apart(settings: Iterable[AttackSetting]) -> tuple[str, ...]:
    """Return the names in which any of some settings differ.

    >>> apart(AttackSetting.given({"cut": 4, "steps": steps}) for steps in (60, 600))
    ('steps',)
    """
    given = set(settings)
    first = next(iter(given), AttackSetting())
    return tuple(sorted({name for each in given for name in first.unlike(each)}))


@dataclass(frozen=True)
class Key:
    """What makes a figure this figure and no other. Seed and epoch say where it was taken.

    Args:
        name: Name of the figure.
        dataset: Data set and split.
        policy: Label of the pruning policy.
        paradigm: Label of the paradigm.
        channel: Label of what an attacker between the parties reads.
        defence: Label of the defence.
        stage: Stage of the study, or name of the run.
        tags: What a study varies besides, in the order of the names.
        setting: Setting of the attack; empty for what is no attack.
    """

    name: str
    dataset: str = ""
    policy: str = ""
    paradigm: str = "centralized"
    channel: str = ""
    defence: str = "none"
    stage: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    setting: AttackSetting = AttackSetting()

    def __str__(self) -> str:
        """Return the name and all that is not as usual.

        >>> str(Key("accuracy", "FaceScenes/test", policy="off", defence="noise(0.1)"))
        'accuracy (FaceScenes/test, off, noise(0.1))'
        """
        usual = Key(self.name)
        told = [str(getattr(self, each.name)) for each in fields(self)[1:-2]
                if getattr(self, each.name) != getattr(usual, each.name)]  # fmt: skip
        told += [f"{name} {value}" for name, value in self.tags]
        told += [str(self.setting)] if self.setting.parts else []
        return f"{self.name} ({', '.join(told)})" if told else self.name


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What every figure and every curve says of itself.

    Args:
        name: Such as ``accuracy``, ``kept_tokens`` or ``attack/fora/psnr``.
        n: Number of independent units it rests on (images, groups), not of rows.
        seed: Seed of the run.
        epoch: Epoch after which it was measured, counted from 0; -1 is before training.
        dataset: Name of the data set, with the split after a slash (``FaceScenes/test``).
        policy: Label of the pruning policy (``off``, ``fixed(0.5,fused)``, ``dtp``).
        paradigm: ``centralized``, ``federated``, ``split`` or ``u_shaped``.
        channel: What an attacker between the parties reads: ``up@4``, ``up@2+down@6/int8/bucket16``;
            ``hypothetical:up@4`` where the run has no such cut; empty where nothing is cut.
        defence: Label of the defence, or ``none``.
        stage: Stage of the study that the run belongs to, or name of the run; filled in by readers.
        tags: What a study varies besides; filled in by readers.
        setting: What tells the attack from another of its name: the settings it was given.
        attack: What else is known of the attack: threat model, steps done, chance and the like.
        measured_by: Who measured it; a run that goes on replaces its own lines by this.
    """

    name: str
    n: int
    seed: int | None = None
    epoch: int | None = None
    dataset: str = ""
    policy: str = ""
    paradigm: str = "centralized"
    channel: str = ""
    defence: str = "none"
    stage: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    setting: dict[str, Scalar] = field(default_factory=dict)
    attack: dict[str, Scalar] = field(default_factory=dict)
    measured_by: str = ""

    @property
    def key(self) -> Key:
        """Return what makes this figure this one and no other.

        A result that names no setting, as those of earlier versions, is told by what its ``attack``
        says beside the threat model and measured facts.
        """
        told = {name: value for name, value in self.attack.items() if name not in _FACTS}
        return Key(
            name=self.name,
            dataset=self.dataset,
            policy=self.policy,
            paradigm=self.paradigm,
            channel=self.channel,
            defence=self.defence,
            stage=self.stage,
            tags=tuple(sorted(self.tags.items())),
            setting=AttackSetting.given(self.setting or told),
        )

    @property
    def spot(self) -> tuple[Key, int | None, int | None]:
        """Return key, seed and epoch: there is one value for each."""
        return self.key, self.seed, self.epoch


def plain(value: object) -> Scalar:
    """Return a setting as it stands in a line of results.

    Of a file or folder that is its own name: no path of this machine stands in a result.

    >>> plain(("same", "off")), plain(Path("/home/ada/predictor")), plain(None), plain(0.5)
    ('same,off', 'predictor', None, 0.5)

    Raises:
        ConfigError: If it can only be told by its place in memory.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Mapping):
        return ",".join(f"{name}={plain(inner)}" for name, inner in value.items())
    if isinstance(value, set | frozenset):
        return ",".join(sorted(str(plain(inner)) for inner in value))
    if isinstance(value, Iterable):
        return ",".join(str(plain(inner)) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return plain({each.name: getattr(value, each.name) for each in fields(value)})
    if type(value).__str__ is object.__str__ and type(value).__repr__ is object.__repr__:
        raise ConfigError(
            f"a setting is {type(value).__name__}, which cannot be told in a result",
            remedy="give the class a __str__, or the probe a setting of numbers and words",
        )
    return str(value)

"""`Curve`: a measured line, such as an attack's error rates at every threshold."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from qpriv.errors import DataError
from qpriv.result import Scalar
from qpriv.writing import append_lines

CURVES_FILE = "curves.jsonl"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a figure; it tells rates and of no sample.

    Args:
        name: Key such as ``attack/membership/roc``.
        x: Where it was measured.
        y: What was measured there, as many values.
        n: Number of independent units.
        seed: Seed of the run.
        epoch: Epoch after which it was measured.
        policy: Label of the pruning policy.
        attack: Settings of the attack.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    n: int
    seed: int | None = None
    epoch: int | None = None
    policy: str = ""
    attack: dict[str, Scalar] = field(default_factory=dict)

    @property
    def identity(self) -> bytes:
        """Return what two measurements of the same thing have in common."""
        return msgspec.json.encode((self.name, self.seed, self.epoch, self.policy, self.attack))


def append_curves(path: Path, curves: Iterable[Curve]) -> None:
    """Append curves to a ``.jsonl`` file, one a line, and force them to the disk."""
    append_lines(path, map(msgspec.json.encode, curves))


def read_curves(path: Path) -> list[Curve]:
    """Read a file of curves; a line without its newline is what a killed run leaves behind.

    Of two measurements of the same thing the later holds: the earlier was of a run that died.

    Raises:
        DataError: If a complete line is not a `Curve`.
    """
    if not path.is_file():
        return []
    found: dict[bytes, Curve] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            curve = msgspec.json.decode(line, type=Curve)
        except msgspec.DecodeError as error:
            raise DataError(
                f"not a curve: {error}", where=f"{path}, line {number}", remedy="remove the line"
            ) from error
        found[curve.identity] = curve
    return list(found.values())

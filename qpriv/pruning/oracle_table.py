"""`OracleTable`: what the oracle search found, a ratio for each sample."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import msgspec

from qpriv.errors import DataError

OracleMode = Literal["min", "max"]


@dataclass(frozen=True)
class OracleTable:
    """Ratios by sample key, with the settings that made them.

    Args:
        ratios: Oracle ratio rho* of each sample key, in [0, 1].
        mode: ``min`` or ``max``; see `OracleSearch`.
        grid: Ratios that were tried.
        k_min: Safety floor in patches.
        scorer_seed: Seed of the random scorer patches were ranked by; None for a trained one.
    """

    ratios: Mapping[str, float]
    mode: OracleMode
    grid: tuple[float, ...]
    k_min: int
    scorer_seed: int | None

    def ratio_of(self, key: str) -> float:
        """Return the ratio of a sample.

        Raises:
            DataError: If the search did not see it.
        """
        try:
            return self.ratios[key]
        except KeyError:
            raise DataError(
                f"no oracle ratio for sample {key}",
                remedy=f"search on its split too; the table holds {len(self.ratios)} samples",
            ) from None

    def save(self, path: str | Path) -> None:
        """Write the table as JSON."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: If the file is missing or no oracle table.
        """
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except FileNotFoundError as error:
            raise DataError(
                "oracle table is missing", where=str(path), remedy="run the oracle search first"
            ) from error
        except (msgspec.DecodeError, IsADirectoryError) as error:
            raise DataError(f"not an oracle table: {error}", where=str(path)) from error

"""`Result`: one measured figure. Everything logged, tabled or plotted is one."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypedDict

import msgspec

from qpriv.errors import DataError
from qpriv.writing import append_lines

Scalar = str | int | float | bool | None
Status = Literal["ok", "failed", "skipped", "not applicable"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One figure with all that is needed to trust it.

    Args:
        name: Key such as ``accuracy``, ``kept_tokens`` or ``attack/fora/psnr``.
        value: The figure; None where it failed or does not apply (see ``status``).
        unit: ``dB``, ``tokens``, ``bytes``, or empty for shares in [0, 1].
        n: Number of independent units the figure rests on (images, groups), not of rows.
        ci: Lower and upper end of the 95 % interval, or None where there is none.
        seed: Seed of the run.
        epoch: Epoch after which it was measured, counted from 0; -1 is before training.
        dataset: Name of the data set, with the split after a slash (``FaceScenes/test``).
        policy: Label of the pruning policy (``off``, ``fixed(0.5,fused)``, ``dtp``).
        paradigm: ``centralized``, ``federated``, ``split`` or ``u_shaped``.
        channel: What an attacker between the parties reads: ``up@4``, ``up@2+down@6/int8/bucket16``;
            ``hypothetical:up@4`` where the run has no such cut; empty where nothing is cut.
        defence: Label of the defence, or ``none``.
        attack: Settings of the attack: threat model, budget, ``query_policy`` and the like.
        status: ``ok``, or why ``value`` is None.
        note: One sentence for the reader, such as ``short attacker``.
        prompt: Template of the question the model was asked, where the figure depends on it.
    """

    name: str
    value: float | None
    n: int
    unit: str = ""
    ci: tuple[float, float] | None = None
    seed: int | None = None
    epoch: int | None = None
    dataset: str = ""
    policy: str = ""
    paradigm: str = "centralized"
    channel: str = ""
    defence: str = "none"
    attack: dict[str, Scalar] = field(default_factory=dict)
    status: Status = "ok"
    note: str = ""
    prompt: str = ""


class Circumstances(TypedDict):
    """Under what a run measures; see the fields of `Result` of the same names."""

    seed: int
    policy: str
    paradigm: str
    channel: str
    defence: str


def stamp(
    results: Iterable[Result],
    *,
    epoch: int | None,
    seed: int,
    policy: str,
    paradigm: str,
    channel: str,
    defence: str,
) -> list[Result]:
    """Attach to results when and under what they were measured.

    A result that names a channel keeps it: it was read from another one than the run's own.

    >>> given = {"seed": 0, "policy": "off", "paradigm": "split", "channel": "up@4"}
    >>> (result,) = stamp([Result(name="a", value=1.0, n=1)], epoch=2, defence="none", **given)
    >>> result.epoch, result.paradigm, result.channel
    (2, 'split', 'up@4')
    """
    return [
        replace(
            result,
            epoch=epoch,
            seed=seed,
            policy=policy,
            paradigm=paradigm,
            channel=result.channel or channel,
            defence=defence,
        )
        for result in results
    ]


CLOCK_FILE = "clock.jsonl"
"""Results of a run that are times: no two runs have the same."""


def append_results(path: Path, results: Iterable[Result]) -> None:
    """Append results to a ``.jsonl`` file, one a line, and force them to the disk."""
    append_lines(path, map(msgspec.json.encode, results))


def read_results(path: Path) -> list[Result]:
    """Read a ``.jsonl`` file of results.

    A last line without its newline is what a killed run leaves behind; it is not a result.

    Raises:
        DataError: If a complete line is not a `Result`; names the file and the line.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    decoder = msgspec.json.Decoder(Result)
    results = []
    for number, line in enumerate(lines, start=1):
        try:
            results.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise DataError(
                f"not a result: {error}", where=f"{path}, line {number}", remedy="remove the line"
            ) from error
    return results

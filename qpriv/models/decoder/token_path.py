"""`TokenPath`: how the rows of a batch get shorter on their way through the decoder."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qpriv.errors import ModelError

from .sequences import IGNORED, Positions, TokenSequences, compact_positions, pad_rows
from .stages import Stage, StageChoice


@dataclass(frozen=True)
class Shortening:
    """What one stage does to the rows of a batch.

    Args:
        stage: The stage.
        choices: What goes on of each row's visual tokens.
        before: The rows that arrive.
        after: The rows that go on, padded on the same side.
        columns: For each row the columns of ``before`` that its tokens come from, ``[T']``; those
            of merged tokens have no meaning.
    """

    stage: Stage
    choices: tuple[StageChoice, ...]
    before: TokenSequences
    after: TokenSequences
    columns: tuple[Tensor, ...]

    @property
    def changes(self) -> bool:
        """Return whether anything is dropped or merged in any row."""
        arriving = self.before.visual_counts.tolist()
        pairs = zip(self.choices, arriving, strict=True)
        return not all(choice.keeps_all(count) for choice, count in pairs)

    def apply(self, hidden: Tensor) -> Tensor:
        """Return the hidden states that go on, ``[R, S', d]``; padding is zero.

        Gradients find their way back to the tokens that went on or were merged.

        Args:
            hidden: Hidden states that arrive, ``[R, S, d]``. Where ``R`` is a multiple of the
                batch, as in beam search, as many rows in a row are one sample's.
        """
        repeats = len(hidden) // len(self.columns)
        rows = [self._row(number // repeats, states) for number, states in enumerate(hidden)]
        return pad_rows(rows, 0, self.before.side)

    def _row(self, number: int, states: Tensor) -> Tensor:
        columns, choice = self.columns[number], self.choices[number]
        if choice.merging is None:
            return states[columns]
        start, stop = self.before.image_spans[number]
        merged = choice.merging.to(states) @ states[start:stop]
        # merged tokens are the last of the image
        text = len(columns) - int(self.before.attention_mask[number, stop:].sum())
        kept, behind = columns[: text - len(merged)], columns[text:]
        return torch.cat((states[kept], merged, states[behind]))


def shorten_at(
    stage: Stage, before: TokenSequences, choices: Sequence[StageChoice], positions: Positions
) -> Shortening:
    """Return what a stage does to some rows.

    Args:
        stage: The stage.
        before: The rows that arrive.
        choices: What goes on of each row's visual tokens.
        positions: ``compact`` numbers what goes on without gaps; ``original`` keeps the numbers,
            which merged tokens have none of.

    Raises:
        ModelError: If a choice does not fit its row.
    """
    columns, spans = [], []
    for row, (choice, (start, stop)) in enumerate(zip(choices, before.image_spans, strict=True)):
        _check(choice, stop - start, f"{stage}, row {row} of the batch", positions)
        real = before.attention_mask[row].nonzero().squeeze(1)
        fronts, behind = real[real < start], real[real >= stop]
        own = start + choice.kept.to(real.device)
        merged = real.new_full((choice.count - len(own),), start)
        columns.append(torch.cat((fronts, own, merged, behind)))
        spans.append((len(fronts), len(fronts) + choice.count, len(behind)))

    def gather(values: Tensor, filler: int) -> Tensor:
        picked = [row[index] for row, index in zip(values, columns, strict=True)]
        return pad_rows(picked, filler, before.side)

    mask = pad_rows([torch.ones_like(index) for index in columns], 0, before.side)
    numbers = before.position_ids.expand_as(before.attention_mask)
    shift = mask.shape[1] if before.side == "left" else 0
    after = TokenSequences(
        input_ids=gather(before.input_ids, 0),
        attention_mask=mask,
        position_ids=gather(numbers, 0)
        if positions == "original"
        else compact_positions(mask, before.side),
        labels=gather(before.labels, IGNORED),
        image_spans=tuple(
            (start + offset, stop + offset)
            for start, stop, behind in spans
            for offset in [shift and shift - stop - behind]
        ),
        side=before.side,
    )
    return Shortening(stage, tuple(choices), before, after, tuple(columns))


@dataclass(frozen=True)
class TokenPath:
    """The rows of a batch at every depth of the decoder.

    Args:
        start: The rows that enter the first layer.
        shortenings: What each stage does to them, in the order of the stages.
    """

    start: TokenSequences
    shortenings: tuple[Shortening, ...] = ()

    @property
    def end(self) -> TokenSequences:
        """Return the rows that leave the last layer."""
        return self.shortenings[-1].after if self.shortenings else self.start

    @property
    def changes(self) -> tuple[Shortening, ...]:
        """Return the stages at which any row gets shorter."""
        return tuple(shortening for shortening in self.shortenings if shortening.changes)

    def at(self, cut: int) -> TokenSequences:
        """Return the rows that cross before a layer; a stage at its entry comes afterwards."""
        passed = [each for each in self.shortenings if each.stage.layer < cut]
        return passed[-1].after if passed else self.start

    def inside(self, layer: int) -> TokenSequences:
        """Return the rows that a layer computes on."""
        passed = [each for each in self.shortenings if each.stage.depth <= layer]
        return passed[-1].after if passed else self.start


def _check(choice: StageChoice, arriving: int, where: str, positions: Positions) -> None:
    try:
        choice.check(arriving)
    except ModelError as error:
        raise ModelError(error.what, where=where) from error
    if choice.merging is not None and positions == "original":
        raise ModelError(
            "merged tokens have no original position",
            where=where,
            remedy="number the tokens anew: positions compact",
        )

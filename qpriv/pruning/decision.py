"""`PruningDecision`: which visual tokens of each sample stay, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qpriv.errors import ModelError
from qpriv.models.decoder.stages import StagePruner
from qpriv.quantity import Quantity

KEPT_TOKENS = Quantity(
    name="kept_tokens",
    title="Kept tokens",
    meaning="Visual tokens that leave the client, mean per image.",
    unit="tokens",
    headline=True,
)
KEPT_TOKENS_MEAN = Quantity(
    name="kept_tokens_mean",
    title="Kept tokens, mean over layers",
    meaning="Visual tokens in a decoder layer, mean over layers and images: what computing costs.",
    unit="tokens",
)


@dataclass(frozen=True)
class PruningDecision:
    """The visual tokens of a batch that stay.

    A policy that merges gives the tokens themselves (``merged``), and with which weights the
    patches entered each of them (``mixing``): ``merged = mixing @ patches``. Without the weights
    nobody can tell what a merged token gives away, and `qpriv.metrics.sensitivity` refuses it.
    A token that is no mixture of patches, such as the class token, has a row of zeros.

    Args:
        kept: For each sample the patches that stay as they are, sorted and unique, ``[k_b]``
            int64. Where a method merges into as many tokens, those whose places these take.
        num_patches: Number of patches ``N`` before pruning.
        ratio: The pruning ratio rho that was asked for, ``[B]``, in [0, 1].
        utility: Utility u of every patch, ``[B, N]``, in (0, 1); None where a policy has none.
        sensitivity: Sensitivity s of every patch on the CLIP grid, ``[B, N]``, in (0, 1), or None.
        score: The score the patches were ranked by, ``[B, N]``, or None.
        merged: Tokens that stand in place of the kept patches where a method merges, each
            ``[t_b, D]``.
        mixing: With which weights the patches enter each of these tokens, each ``[t_b, N]``; the
            model computes the tokens from them where ``merged`` is not given.
        inside: The policy that goes on inside the decoder, or None.

    Raises:
        ModelError: If shapes do not fit, or kept indices are not sorted, unique and within the
            patches: anything else would put features at the wrong places without a sign.
    """

    kept: tuple[Tensor, ...]
    num_patches: int
    ratio: Tensor
    utility: Tensor | None = None
    sensitivity: Tensor | None = None
    score: Tensor | None = None
    merged: tuple[Tensor, ...] | None = None
    mixing: tuple[Tensor, ...] | None = None
    inside: StagePruner | None = None

    def __post_init__(self) -> None:
        """Check shapes and kept indices."""
        for row, indices in enumerate(self.kept):
            _check_type(row, indices)
        self._check_order()
        batch = len(self.kept)
        _check_shape("ratio", self.ratio, (batch,))
        for name in ("utility", "sensitivity", "score"):
            _check_shape(name, getattr(self, name), (batch, self.num_patches))
        _check_rows("merged", self.merged, batch, None)
        _check_rows("mixing", self.mixing, batch, self.num_patches)
        for row, (tokens, weights) in enumerate(zip(self.merged or (), self.mixing or ())):
            if len(tokens) != len(weights):
                raise ModelError(
                    f"row {row} has {len(tokens)} merged tokens and weights for {len(weights)}"
                )

    def __len__(self) -> int:
        """Return the number of samples ``B``."""
        return len(self.kept)

    @property
    def counts(self) -> Tensor:
        """Return the number of tokens that stay of each sample, ``[B]`` int64.

        Where a method merges it is that of the merged tokens.
        """
        tokens = self.merged or self.mixing or self.kept
        return torch.tensor([len(row) for row in tokens], dtype=torch.int64)

    @property
    def mask(self) -> Tensor:
        """Return True where a patch is kept, ``[B, N]``.

        >>> PruningDecision((torch.tensor([0, 2]),), 3, torch.tensor([0.3])).mask.tolist()
        [[True, False, True]]
        """
        mask = torch.zeros(len(self.kept), self.num_patches, dtype=torch.bool)
        if self.kept:
            mask[self._rows(), torch.cat(self.kept).cpu()] = True
        return mask

    def _rows(self) -> Tensor:
        """Return the row of each kept patch, rows one after another."""
        counts = torch.tensor([len(indices) for indices in self.kept], dtype=torch.int64)
        return torch.arange(len(self.kept)).repeat_interleave(counts)

    def _check_order(self) -> None:
        """Check all rows at once: a search makes hundreds of thousands of decisions."""
        if not self.kept:
            return
        indices, rows = torch.cat(self.kept).cpu(), self._rows()
        wrong = (indices < 0) | (indices >= self.num_patches)
        wrong[1:] |= (indices.diff() <= 0) & (rows.diff() == 0)
        if wrong.any():
            raise ModelError(
                f"kept patches of row {int(rows[wrong][0])} are not sorted, unique and below "
                f"{self.num_patches}"
            )


def _check_type(row: int, indices: Tensor) -> None:
    if indices.dtype != torch.int64 or indices.dim() != 1:
        raise ModelError(
            f"kept patches of row {row} are {indices.dtype} of shape {list(indices.shape)}",
            remedy="give their indices as int64, one dimension",
        )


def _check_shape(name: str, values: Tensor | None, shape: tuple[int, ...]) -> None:
    if values is not None and tuple(values.shape) != shape:
        raise ModelError(f"{name} of a decision has shape {list(values.shape)}, not {list(shape)}")


def _check_rows(name: str, rows: Sequence[Tensor] | None, batch: int, width: int | None) -> None:
    """Check the tokens of each sample, ``[t, width]``; None as width allows any."""
    if rows is None:
        return
    if len(rows) != batch:
        raise ModelError(f"{name} tokens of {len(rows)} samples, kept patches of {batch}")
    for row, tokens in enumerate(rows):
        if tokens.dim() != 2 or width not in (None, tokens.shape[1]):
            expected = "[tokens, D]" if width is None else f"[tokens, {width}]"
            raise ModelError(f"{name} of row {row} has shape {list(tokens.shape)}, not {expected}")
        if not bool(tokens.isfinite().all()):
            raise ModelError(f"{name} of row {row} holds numbers that are not finite")

"""`ImageLedger`: which patches of each image have crossed, and what may cross of it from now on.

A policy that decides by the question gives whoever asks a say in what crosses, and every further
question adds to what is known of an image. A ledger ends both: it holds on to the first decision
on an image, or lets no more than a budget of patches cross of it, whatever is asked.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from qpriv.errors import ConfigError

from .budget import top_k

Mask = Literal["per_question", "first_question", "per_image"]
"""Whether each question decides anew (the source's text), the first question about an image
decides for all later ones, or none is seen."""

MASKS: tuple[Mask, ...] = get_args(Mask)


@dataclass(frozen=True)
class Wish:
    """Which patches a question would let cross of an image.

    Args:
        image: The image, `VQASample.image_key`.
        patches: Indices of patches, the best first.
    """

    image: str
    patches: tuple[int, ...]


class ImageLedger(nn.Module):
    """What has crossed of each image, over all questions, epochs and processes of a run.

    It is a module so that whoever isolates an attack finds it; it has no weights.

    Args:
        first_decides: Let nothing cross later that did not cross for the first question.
        budget: Most patches that may ever cross of an image; None is no limit.

    Raises:
        ConfigError: If the budget is below 1.
    """

    def __init__(self, *, first_decides: bool = False, budget: int | None = None) -> None:
        super().__init__()
        if budget is not None and budget < 1:
            raise ConfigError(f"image_budget is {budget}", remedy="choose 1 or more, or null")
        self.first_decides, self.budget = first_decides, budget
        self._crossed: dict[str, int] = {}  # a bit for each patch: there may be 100,000 images

    def __len__(self) -> int:
        """Return the number of images of which something has crossed."""
        return len(self._crossed)

    def crossed(self, image: str) -> tuple[int, ...]:
        """Return the patches of an image that have crossed, ascending."""
        bits = self._crossed.get(image, 0)
        return tuple(patch for patch in range(bits.bit_length()) if bits >> patch & 1)

    def record(self, wishes: Iterable[Wish]) -> None:
        """Note what crosses of each image, in turn: as much of each wish as may.

        Of patches that have not crossed before, the best ones do while the budget lasts.
        """
        for wish in wishes:
            known = wish.image in self._crossed
            bits = self._crossed.setdefault(wish.image, 0)
            if not (known and self.first_decides):
                fresh = [patch for patch in wish.patches if not bits >> patch & 1]
                # an image may have more than the budget behind it: from a run with a larger one
                room = None if self.budget is None else max(0, self.budget - bits.bit_count())
                for patch in fresh[:room]:
                    bits |= 1 << patch
                self._crossed[wish.image] = bits

    def settle(self, score: Tensor, wishes: Sequence[Wish]) -> tuple[Tensor, ...]:
        """Return what crosses of each row, and note it: its best patches among those that may.

        A row keeps as many patches as it wished for, where so many may cross; after a first
        question has decided, those that crossed then.

        Args:
            score: Score of every patch, ``[B, N]``.
            wishes: What each row would let cross.
        """
        self.record(wishes)
        allowed = torch.zeros_like(score, dtype=torch.bool)
        for row, wish in enumerate(wishes):
            allowed[row, list(self.crossed(wish.image))] = True
        if self.first_decides:
            return tuple(row.nonzero()[:, 0] for row in allowed)
        most = allowed.sum(dim=1).tolist()
        counts = [min(len(wish.patches), own) for wish, own in zip(wishes, most, strict=True)]
        return top_k(score.masked_fill(~allowed, -torch.inf), counts)

    @contextmanager
    def forgotten(self) -> Iterator[None]:
        """Know of no image meanwhile; set aside, not copied: a search does it for every question."""
        known, self._crossed = self._crossed, {}
        try:
            yield
        finally:
            self._crossed = known

    def get_extra_state(self) -> dict[str, int]:
        """Return what has crossed, by image: bit ``i`` of the number stands for patch ``i``."""
        return dict(self._crossed)

    def set_extra_state(self, state: Mapping[str, int]) -> None:
        """Take over what has crossed."""
        self._crossed = dict(state)


@contextmanager
def anew(ledger: ImageLedger | None) -> Iterator[None]:
    """Forget meanwhile what has crossed: so an attacker finds a ledger who asks first."""
    if ledger is None:
        yield
        return
    with ledger.forgotten():
        yield


def wishes_of(images: Sequence[str], score: Tensor, kept: Sequence[Tensor]) -> list[Wish]:
    """Return what rows would let cross, the patches with the highest scores first.

    Args:
        images: The image of each row.
        score: Score of every patch, ``[B, N]``.
        kept: What each row would keep, ``[k_b]``.

    >>> wishes_of(["a"], torch.tensor([[0.1, 0.9, 0.5]]), [torch.tensor([0, 1])])
    [Wish(image='a', patches=(1, 0))]
    """
    wishes = []
    for image, own, patches in zip(images, score, kept, strict=True):
        order = own[patches].argsort(descending=True, stable=True)
        wishes.append(Wish(image, tuple(patches[order].tolist())))
    return wishes


def ledger_for(mask: Mask, budget: int | None) -> ImageLedger | None:
    """Return the ledger that some settings need; None where each question decides for itself.

    Raises:
        ConfigError: If there is no such mask, or the budget is below 1.
    """
    if mask not in MASKS:
        raise ConfigError(f"mask is {mask!r}", remedy=f"choose {', '.join(MASKS)}")
    first = mask == "first_question"
    return ImageLedger(first_decides=first, budget=budget) if first or budget is not None else None

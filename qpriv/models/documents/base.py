"""`DocumentModel`: what every reader of documents does, whatever its family."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from PIL import Image
from torch import Generator, LongTensor, Tensor, nn
from torch.nn import functional as F

from qpriv.datasets.documents.scan import ScanNoise, scan
from qpriv.errors import ModelError

Stock = Any
"""A model, processor or tokenizer of the transformers library, which is not typed."""

IGNORED = -100
"""Label of a position that is not scored."""


@dataclass(frozen=True)
class EncodedPages:
    """Pages as the decoder of a family sees them.

    Args:
        states: Encoder output, one row a page (or one a question where the question is drawn
            into the image): ``[P, N, D]``.
        mask: Which of the N positions are real ``[P, N]``, or None where all are.
        row_of: For each question the row of its page ``[B]``.
    """

    states: Tensor
    mask: Tensor | None
    row_of: LongTensor

    def for_rows(self, rows: Tensor) -> "EncodedPages":
        """Return the same pages for some of the questions."""
        return EncodedPages(self.states, self.mask, self.row_of[rows])  # type: ignore[arg-type]

    def expanded(self) -> tuple[Tensor, Tensor | None]:
        """Return states and mask with one row a question."""
        return self.states[self.row_of], None if self.mask is None else self.mask[self.row_of]


@dataclass(frozen=True)
class TokenisedAnswers:
    """Questions with their answers, ready for teacher forcing.

    Args:
        ids: What the decoder reads ``[B, S]``, padded on the right.
        labels: What it should say at each position ``[B, S]``; -100 where nothing is scored.
        mask: Real positions ``[B, S]``.
    """

    ids: LongTensor
    labels: LongTensor
    mask: Tensor


@dataclass(frozen=True)
class Generated:
    """An answer as generated.

    Args:
        text: The answer without its markers.
        ended: Whether the model ended it; False where it ran into the token limit.
    """

    text: str
    ended: bool


class DocumentModel(nn.Module, ABC):
    """A model that answers questions about a page.

    Args:
        network: The stock model of the library, or one with adapters in it.
        processor: Its processor.
        resolution: Share of the height and width of a page whose detail reaches the model.
        max_tokens: Longest question with its answer, in tokens.
    """

    family: Literal["donut", "pix2struct", "paligemma"]

    def __init__(
        self, network: Stock, processor: Stock, resolution: float = 1.0, max_tokens: int = 128
    ) -> None:
        super().__init__()
        self.network = network
        self.processor = processor
        self.resolution = resolution
        self.max_tokens = max_tokens

    @property
    def device(self) -> torch.device:
        """Return where the weights are."""
        return torch.device(next(self.network.parameters()).device)

    @property
    def base(self) -> Stock:
        """Return the stock model, inside its adapters where it has some."""
        unwrap = getattr(self.network, "get_base_model", None)
        return unwrap() if unwrap else self.network

    @property
    def tokenizer(self) -> Stock:
        """Return the tokenizer."""
        return self.processor.tokenizer

    @abstractmethod
    def page(self, image: Image.Image) -> Tensor:
        """Return a page as pixels ``[3, H, W]`` in [0, 255], resized as the processor does."""

    @abstractmethod
    def encode(
        self, pages: Sequence[Tensor], questions: Sequence[str], page_of: Sequence[int]
    ) -> EncodedPages:
        """Encode pages once for all questions about them.

        Args:
            pages: P pages as `page` returns them.
            questions: B questions.
            page_of: For each question the number of its page.
        """

    @abstractmethod
    def tokenise(self, questions: Sequence[str], answers: Sequence[str]) -> TokenisedAnswers:
        """Return questions and answers as token ids.

        Raises:
            ModelError: If a question with its answer exceeds ``max_tokens``.
        """

    @abstractmethod
    def logits(self, pages: EncodedPages, tokens: TokenisedAnswers) -> Tensor:
        """Return the logits ``[B, S, V]`` at every position of ``tokens.labels``."""

    @abstractmethod
    def answer(
        self,
        pages: EncodedPages,
        questions: Sequence[str],
        max_new_tokens: int | None = None,
        banned: Sequence[str] = (),
    ) -> list[Generated]:
        """Return the greedy answers.

        Args:
            pages: The encoded pages of the questions.
            questions: B questions.
            max_new_tokens: Limit of the answer; what ``max_tokens`` leaves where None.
            banned: Texts an answer must not begin with.
        """

    @abstractmethod
    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer up to and including its end marker."""

    def scanned(
        self,
        pages: Sequence[Tensor],
        noise: ScanNoise | None = None,
        generator: Generator | None = None,
    ) -> list[Tensor]:
        """Return pages at the model's resolution, with scan noise where training asks for it."""
        return [scan(page, self.resolution, noise, generator) for page in pages]

    def round_trips(self, answer: str) -> bool:
        """Return whether the vocabulary can spell an answer; if not, nothing can extract it."""
        ids = self.answer_ids(answer)
        return self.tokenizer.unk_token_id not in ids and self.decode(ids) == answer.strip()

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of answer ids, markers left out."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def loss(self, logits: Tensor, tokens: TokenisedAnswers) -> Tensor:
        """Return the mean cross-entropy over the scored positions."""
        return F.cross_entropy(logits.flatten(0, 1), tokens.labels.flatten(), ignore_index=IGNORED)

    def check_lengths(self, lengths: Sequence[int], texts: Sequence[str]) -> None:
        """Check that sequences fit into the decoder.

        Raises:
            ModelError: If one does not; names it.
        """
        for length, text in zip(lengths, texts, strict=True):
            if length > self.max_tokens:
                raise ModelError(
                    f"{length} tokens, the limit is {self.max_tokens}: {text[:60]!r}",
                    where=f"question for {self.family}",
                    remedy="drop the sample, or raise max_tokens as far as the model's positions go",
                )


def pad_right(rows: Sequence[Sequence[int]], value: int, device: torch.device) -> LongTensor:
    """Return rows of unequal length as one tensor ``[B, S]``.

    >>> pad_right([[1, 2], [3]], 0, torch.device("cpu")).tolist()
    [[1, 2], [3, 0]]
    """
    length = max(map(len, rows))
    padded = [[*row, *[value] * (length - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.long, device=device)  # type: ignore[return-value]

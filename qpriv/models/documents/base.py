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
from qpriv.models.precision import new_tensors, widened

from .decoding import GreedySettings, buckets, kept_tokens

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
        prompt: Positions of the prompt ``[B, S]``.
    """

    ids: LongTensor
    labels: LongTensor
    mask: Tensor
    prompt: Tensor


@dataclass(frozen=True)
class Replies:
    """How a model replies to questions whose answers are known.

    Args:
        exact: Whether its greedy answer is the known one, letter by letter ``[B]``.
        log_prob: Log-probability of the known answer and its end ``[B]``.
    """

    exact: Tensor
    log_prob: Tensor


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
    def dtype(self) -> torch.dtype:
        """Return the type of the weights, and so of the pages that the encoder reads."""
        dtype: torch.dtype = next(self.network.parameters()).dtype
        return dtype

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
    def prompt_ids(self, question: str) -> list[int]:
        """Return the token ids up to where the answer begins; at least one."""

    @abstractmethod
    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer, without anything that ends it."""

    @property
    @abstractmethod
    def end_ids(self) -> tuple[int, ...]:
        """Return what the model is trained to say after an answer; either of them ends it."""

    @abstractmethod
    def logits(self, pages: EncodedPages, tokens: TokenisedAnswers) -> Tensor:
        """Return the logits ``[B, S, V]`` at every position of ``tokens.labels``."""

    @abstractmethod
    def generate(
        self, pages: EncodedPages, ids: Tensor, max_new_tokens: int, settings: GreedySettings
    ) -> list[list[int]]:
        """Return the greedy new tokens for prompts of equal length ``[b, T]``."""

    def tokenise(self, questions: Sequence[str], answers: Sequence[str]) -> TokenisedAnswers:
        """Return decoder inputs and labels, shifted against each other by one.

        Raises:
            ModelError: If a question with its answer exceeds ``max_tokens``.
        """
        prompts = [self.prompt_ids(question) for question in questions]
        ends = [[*self.answer_ids(answer), *self.end_ids] for answer in answers]
        lengths = [len(p) + len(e) for p, e in zip(prompts, ends, strict=True)]
        self.check_lengths(lengths, questions)
        pairs = list(zip(prompts, ends, strict=True))
        padding = self.tokenizer.pad_token_id
        return TokenisedAnswers(
            ids=pad_right([(p + e)[:-1] for p, e in pairs], padding, self.device),
            labels=pad_right(
                [[IGNORED] * (len(p) - 1) + e for p, e in pairs], IGNORED, self.device
            ),
            mask=pad_right([[1] * (n - 1) for n in lengths], 0, self.device),
            prompt=pad_right([[1] * len(p) + [0] * (len(e) - 1) for p, e in pairs], 0, self.device),
        )

    def answer(
        self, pages: EncodedPages, questions: Sequence[str], max_new_tokens: int | None = None
    ) -> list[Generated]:
        """Return the greedy answers, see `hypotheses`."""
        return [best for (best,) in self.hypotheses(pages, questions, max_new_tokens)]

    # the library's processors of scores make float32 of what has no type
    @new_tensors(torch.float32)
    @torch.no_grad()
    def hypotheses(
        self,
        pages: EncodedPages,
        questions: Sequence[str],
        max_new_tokens: int | None = None,
        banned: Sequence[str] = (),
        beams: int = 1,
    ) -> list[tuple[Generated, ...]]:
        """Return the most likely answers to each question, prompts of equal length together.

        Decoders count positions from the start of the row, padding included: prompts of unequal
        length in one batch would give wrong text whichever side is padded.

        Args:
            pages: The encoded pages of the questions.
            questions: B questions.
            max_new_tokens: Limit of the answer; what ``max_tokens`` leaves where None.
            banned: Texts whose first word is never said.
            beams: Width of the beam search, all of whose answers are returned; 1 is greedy.
        """
        prompts = [self.prompt_ids(question) for question in questions]
        banned_ids = [self._beginning(text) for text in banned]
        found: dict[int, tuple[Generated, ...]] = {}
        for rows in buckets([len(prompt) for prompt in prompts]):
            ids = torch.tensor([prompts[row] for row in rows], device=self.device)
            room = self.max_tokens - ids.shape[1]
            settings = GreedySettings(
                pad_token_id=self.tokenizer.pad_token_id,
                eos_token_id=list(self.end_ids),
                bad_words_ids=[[self.tokenizer.unk_token_id], *banned_ids],
                num_beams=beams,
                num_return_sequences=beams,
            )
            part = pages.for_rows(torch.tensor(rows, device=self.device))
            new = self.generate(part, ids, min(room, max_new_tokens or room), settings)
            for number, row in enumerate(rows):
                found[row] = tuple(map(self._generated, new[number * beams : (number + 1) * beams]))
        return [found[row] for row in range(len(questions))]

    def _generated(self, tokens: Sequence[int]) -> Generated:
        kept, ended = kept_tokens(tokens, set(self.end_ids))
        return Generated(self.decode(kept), ended)

    def _beginning(self, text: str) -> list[int]:
        """Return the first tokens of a text that say more than that a word begins."""
        ids = self.answer_ids(text)
        spoken = (n for n, token in enumerate(ids, start=1) if self.decode([token]))
        return ids[: next(spoken)]

    def scanned(
        self,
        pages: Sequence[Tensor],
        noise: ScanNoise | None = None,
        generator: Generator | None = None,
    ) -> list[Tensor]:
        """Return pages at the model's resolution, with scan noise where training asks for it."""
        return [scan(page, self.resolution, noise, generator) for page in pages]

    def fits(self, question: str, answer: str) -> bool:
        """Return whether a question with its answer is short enough for the decoder."""
        used = len(self.prompt_ids(question)) + len(self.answer_ids(answer)) + len(self.end_ids)
        return used <= self.max_tokens

    def spells(self, answer: str) -> bool:
        """Return whether the vocabulary can spell an answer; if not, nothing can extract it."""
        ids = self.answer_ids(answer)
        return self.tokenizer.unk_token_id not in ids and self.decode(ids) == answer.strip()

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of answer ids."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def loss(self, logits: Tensor, tokens: TokenisedAnswers) -> Tensor:
        """Return the mean cross-entropy over the scored positions."""
        scores = widened(logits.flatten(0, 1))
        return F.cross_entropy(scores, tokens.labels.flatten(), ignore_index=IGNORED)

    def replies(self, logits: Tensor, tokens: TokenisedAnswers) -> Replies:
        """Return whether greedy decoding would give the answers, without decoding.

        Greedy decoding says an answer if and only if the most likely token at every position is
        the answer's own, given those before it: one forward pass tells, for a whole batch.
        Either end marker ends an answer, and ``<unk>`` is never said, as in `hypotheses`.
        """
        scored = tokens.labels != IGNORED
        ends = torch.tensor(self.end_ids, device=logits.device)
        ending = torch.isin(tokens.labels, ends)
        after_end = ending.cumsum(1) > 1
        spoken = logits.float().clone()
        if self.tokenizer.unk_token_id is not None:
            spoken[..., self.tokenizer.unk_token_id] = -torch.inf
        said = spoken.argmax(-1)
        right = (said == tokens.labels) | (ending & torch.isin(said, ends))
        counted = scored & ~after_end
        log_probs = logits.float().log_softmax(-1)
        gold = log_probs.gather(-1, tokens.labels.clamp(min=0)[..., None])[..., 0]
        return Replies((right | ~counted).all(1), (gold * counted).sum(1))

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

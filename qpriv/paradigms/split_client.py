"""The client of a split: it owns the data, and asks the server for what it cannot compute."""

import torch
from torch import Tensor
from transformers import DynamicCache

from qpriv.boundary.codecs import Codec
from qpriv.boundary.padding import fill_rows
from qpriv.boundary.parties import Head, Tail, TokenLayout
from qpriv.models.batch import VQABatch
from qpriv.models.prepared import PreparedInputs
from qpriv.models.sequences import IGNORED, TokenSequences
from qpriv.models.vision_language import VisionLanguageModel
from qpriv.pruning.policy import PruningPolicy

from .centralized import Encode, answer_tokens, split
from .clipping import square_norm
from .exchange import Answers, Packet, Party, scalar
from .recipe import LoraRecipe


class SplitClient(Party):
    """Embeddings, projector and layers before the (first) cut; with a tail, those after a second.

    Args:
        model: Where its parts, preprocessor and encoders come from.
        cuts: ``(C,)`` of a split, or ``(C_A, C_B)`` of a U-shaped split.
        server: The other party.
        policy: The pruning policy, run before anything crosses.
        encode: The frozen encoders.
        recipe: How adapters are trained.
        steps: Optimiser steps of the whole run.
        codec: How activations and gradients are written; None as they are computed.
        bucket: Messages are filled to a multiple of so many tokens a sample.
    """

    def __init__(
        self,
        model: VisionLanguageModel,
        cuts: tuple[int, ...],
        server: Answers,
        policy: PruningPolicy,
        encode: Encode,
        recipe: LoraRecipe,
        steps: int,
        codec: Codec | None = None,
        bucket: int = 1,
    ) -> None:
        policy.check_parties(cuts)
        self.model, self.server, self.cut = model, server, cuts[0]
        self.policy, self.encode = policy, encode
        self.head = Head(model, cuts[0])
        self.tail = Tail(model, cuts[1]) if len(cuts) == 2 else None
        parts = (self.head,) if self.tail is None else (self.head, self.tail)
        super().__init__(recipe, steps, *parts, codec=codec, bucket=bucket)

    def step(self, batch: VQABatch) -> float:
        """Take one optimiser step together with the server, and go on in the schedule."""
        loss = self.turn(batch)
        self.server(Packet("schedule"))
        self.scheduler.step()
        return loss

    def turn(self, batch: VQABatch) -> float:
        """Take one optimiser step together with the server; return the loss."""
        tokens = answer_tokens(batch)
        loss = sum(self._learn(part, tokens) for part in split(batch, self.recipe.micro_batch_size))
        own = square_norm(self.trained)
        answer = self.server(Packet("step", {"scalar/norm": scalar(own)}))
        self.update(float(answer.tensors["scalar/norm"]))
        return loss

    def answer(self, batch: VQABatch, max_new_tokens: int = 10) -> list[str]:
        """Return greedy answers; special tokens and outer space removed."""
        found = self.generate(batch, max_new_tokens)
        texts = self.model.preprocessor.tokenizer.batch_decode(found, skip_special_tokens=True)
        return [text.strip() for text in texts]

    @torch.no_grad()
    def generate(self, batch: VQABatch, max_new_tokens: int = 10) -> Tensor:
        """Return the tokens of greedy answers ``[B, T]``, each party with a cache of its layers."""
        inputs = self._prepare(batch)
        path, end = inputs.prompt, self.model.preprocessor.tokenizer.eos_token_id
        entering, crossing = TokenLayout.of(path.start), TokenLayout.of(path.at(self.cut))
        caches = (self.head.new_cache(), self.head.new_cache())
        with self.model.following(path, self.cut):
            ids = self._next(path.start.input_ids, entering, crossing, caches, list(inputs.kept))
            found = [ids]
            done = ids == end
            while len(found) < max_new_tokens and not bool(done.all()):
                entering, crossing = entering.longer(), crossing.longer()
                ids = self._next(ids[:, None], entering, crossing, caches)
                ids = ids.where(~done, self.model.preprocessor.pad_token)
                done |= ids == end
                found.append(ids)
        return torch.stack(found, 1)

    def _learn(self, batch: VQABatch, tokens: int) -> float:
        inputs = self._prepare(batch)
        path = inputs.answered
        # rows that get shorter in the client's own layers cross as they are behind them
        rows, sequences = path.start, path.at(self.cut)
        layout = TokenLayout.of(sequences)
        embedded = self.head.embed(rows.input_ids, list(inputs.kept))
        with self.model.following(path, self.cut):
            hidden = self.head(embedded, rows.attention_mask, rows.position_ids)
        sent = self._activation("forward", layout.pack(hidden), layout)
        if self.tail is None:
            labels = layout.pack(sequences.labels).int()
            labels = fill_rows(labels, layout.lengths, self.bucket, IGNORED)
            extra = {"labels": labels, "scalar/tokens": scalar(tokens)}
            answer = self.server(Packet("forward", {**sent.tensors, **extra}, layout.side))
            loss = float(answer.tensors["scalar/loss"])
        else:
            loss, answer = self._finish(self.tail, sent, sequences, layout, tokens)
        hidden.backward(layout.unpack(self.read("gradient", answer, layout.lengths)))
        return loss

    def _finish(
        self,
        tail: Tail,
        sent: Packet,
        sequences: TokenSequences,
        layout: TokenLayout,
        tokens: int,
    ) -> tuple[float, Packet]:
        """Compute the loss behind the server's body; return it, and the gradient for the head."""
        leaf = self.read("activation", self.server(sent), layout.lengths).requires_grad_()
        hidden = tail(layout.unpack(leaf), layout.mask, layout.position_ids)
        share = int((sequences.labels != IGNORED).sum()) / tokens
        loss = tail.loss(hidden, sequences.labels) * share
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        return float(loss.detach()), self.server(
            Packet("backward", self.write("gradient", leaf.grad, layout.lengths))
        )

    def _activation(self, verb: str, rows: Tensor, layout: TokenLayout | None) -> Packet:
        # after a prompt, every row of an answer is one token long
        lengths = torch.ones(len(rows), dtype=torch.int64) if layout is None else layout.lengths
        tensors = self.write("activation", rows, lengths)
        if layout is not None:
            tensors["lengths"] = layout.lengths
            if layout.positions is not None:
                tensors["positions"] = layout.positions
        side = "right" if layout is None else layout.side
        return Packet("forward" if verb == "forward" else "generate", tensors, side)

    def _prepare(self, batch: VQABatch) -> PreparedInputs:
        features = self.encode(batch, self.policy.needs)
        decision = self.policy.decide(features, batch.samples)
        return self.model.prepare(batch, features, decision)

    def _next(
        self,
        ids: Tensor,
        entering: TokenLayout,
        crossing: TokenLayout,
        caches: tuple[DynamicCache, DynamicCache],
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """Return the next token of every row, ``[B]``.

        Args:
            ids: The prompts ``[B, S]``, or the last token of each row ``[B, 1]``.
            entering: How the rows enter the head, generated tokens included.
            crossing: How they cross.
            caches: Keys and values of head and tail.
            kept: What of the image enters the projector; None behind the prompt.
        """
        first = kept is not None
        positions = entering.position_ids[:, -ids.shape[1] :]
        hidden = self.head(self.head.embed(ids, kept), entering.mask, positions, caches[0])
        rows = crossing.pack(hidden) if first else hidden[:, 0]
        answer = self.server(self._activation("generate", rows, crossing if first else None))
        if self.tail is None:
            return answer.tensors["labels"].long()
        lengths = crossing.lengths if first else torch.ones_like(crossing.lengths)
        rows = self.read("activation", answer, lengths)
        hidden = crossing.unpack(rows) if first else rows[:, None]
        positions = crossing.position_ids[:, -hidden.shape[1] :]
        return self.tail.next_ids(self.tail(hidden, crossing.mask, positions, caches[1]))

"""`SplitClient`: the client of a split, which owns the data and sends messages to the server."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from qpriv.models.batch import VQABatch
from qpriv.models.decoder.sequences import IGNORED, TokenSequences
from qpriv.models.llava.forward_pass import Mode
from qpriv.models.llava.prepared import PreparedInputs
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Direction, RandomKey, Site, StageContext
from qpriv.split.codecs import Codec
from qpriv.split.layers import Head, Tail
from qpriv.split.layout import TokenLayout, image_spans
from qpriv.split.padding import fill_rows
from qpriv.split.stages import places_by_sample

from .centralized import Encode, Pass, answer_tokens, passes, prepared
from .clipping import square_norm
from .guards import Guards
from .own_gradient import OwnGradient
from .party_adapters import client_name
from .recipe import LoraRecipe
from .split_server import Answers, Message, MessageType, Party, scalar

_VERBS: dict[Mode, MessageType] = {"train": "forward", "generate": "generate"}


@dataclass(frozen=True)
class _Sent:
    """What the client sent, and its context.

    Args:
        rows: The rows that crossed, ``[sum T_i, w]``.
        context: The client's context of the rows.
        sequences: The padded sequences with labels; in training without withdrawn tokens.
    """

    rows: Tensor
    context: StageContext
    sequences: TokenSequences

    @property
    def layout(self) -> TokenLayout:
        return self.context.layout


class SplitClient(Party):
    """The client: embeddings, projector and layers before the (first) cut, and perhaps a tail.

    In a U-shaped split the client also owns the layers after the second cut (its tail).

    Args:
        model: The model that provides layers, preprocessor and encoders.
        cuts: ``(C,)`` of a split, or ``(C_A, C_B)`` of a U-shaped split.
        server: The server, or a connection to it.
        policy: The pruning policy, run before anything crosses.
        encode: The frozen encoders.
        recipe: Training recipe of the adapters.
        steps: Optimiser steps of the whole run.
        codec: Codec of activations and gradients; None sends them as computed.
        bucket: Messages are padded to a multiple of this many tokens per sample.
        guards: The defence at the cuts, with the client's own weights first.
        number: The client's number.
        seed: Seed of the random numbers of the client's stages. None draws a secret one and keeps
            it in the client's state, because a server that knows the seed could subtract noise.
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
        guards: Guards | None = None,
        number: int = 0,
        seed: int | None = None,
    ) -> None:
        policy.check_parties(cuts)
        self.model, self.server, self.cut = model, server, cuts[0]
        self.policy, self.encode = policy, encode
        self.number, self.seed = number, secrets.randbits(62) if seed is None else seed
        self.head = Head(model, cuts[0])
        self.tail = Tail(model, cuts[1]) if len(cuts) == 2 else None
        parts = (self.head,) if self.tail is None else (self.head, self.tail)
        own = client_name(0)  # its own guard is the first one, whatever the client's number
        super().__init__(recipe, steps, *parts, codec=codec, bucket=bucket, guards=guards, name=own)
        self._exit = Site(cuts[0], Direction.UP, self.width)
        self._entrance = Site(cuts[-1], Direction.DOWN, self.width)

    def state(self) -> dict[str, Any]:
        """Return the state that the client must keep between rounds."""
        return {**super().state(), "seed": self.seed}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned, and drop any step in progress."""
        super().load_state(state)
        self.seed = state.get("seed", self.seed)

    def step(self, batch: VQABatch) -> float:
        """Take one optimiser step together with the server, and advance the schedule."""
        loss = self.turn(batch)
        self.server(Message("schedule"))
        self.scheduler.step()
        return loss

    def turn(self, batch: VQABatch) -> float:
        """Take one optimiser step together with the server; return the loss."""
        tokens, own = answer_tokens(batch), OwnGradient(self.trained, self.recipe.clip)
        loss = 0.0
        for part in passes(batch, self.recipe.micro_batch_size):
            loss += self._learn(part, tokens, own)
        norm = square_norm(self.trained)
        answer = self.server(Message("step", {"scalar/norm": scalar(norm)}))
        # the norm of both parties; the server cannot push it below the client's own norm
        self.update(max(norm, float(answer.tensors["scalar/norm"])), own)
        return loss

    def answer(self, batch: VQABatch, max_new_tokens: int = 10) -> list[str]:
        """Return greedy answers without special tokens and surrounding whitespace."""
        found = self.generate(batch, max_new_tokens)
        texts = self.model.preprocessor.tokenizer.batch_decode(found, skip_special_tokens=True)
        return [text.strip() for text in texts]

    @torch.no_grad()
    def generate(self, batch: VQABatch, max_new_tokens: int = 10) -> Tensor:
        """Return the tokens of greedy answers, ``[B, T]``; each party caches its own layers."""
        inputs = self._prepare(batch)
        path, end = inputs.prompt, self.model.preprocessor.tokenizer.eos_token_id
        entering = TokenLayout.of(path.start)
        caches = (self.head.new_cache(), self.head.new_cache())
        with self.model.following(path, self.cut):
            hidden = self._enter(path.start.input_ids, entering, caches[0], list(inputs.kept))
            sent = self._send(hidden, path.at(self.cut), inputs, "generate", 0)
            crossing = sent.layout
            ids = self._next(sent, crossing, caches[1])
            found = [ids]
            done = ids == end
            while len(found) < max_new_tokens and not bool(done.all()):
                entering, crossing = entering.longer(), crossing.longer()
                hidden = self._enter(ids[:, None], entering, caches[0])
                sent = self._send_token(hidden, sent, inputs, len(found))
                ids = self._next(sent, crossing, caches[1])
                ids = ids.where(~done, self.model.preprocessor.pad_token)
                done |= ids == end
                found.append(ids)
        return torch.stack(found, 1)

    def _learn(self, part: Pass, tokens: int, own: OwnGradient) -> float:
        """Add the gradient of one pass; return its part of the loss.

        Args:
            part: The pass.
            tokens: Answer tokens of the whole batch.
            own: Takes the gradient of the defence's term.
        """
        inputs = self._prepare(part.batch)
        path = inputs.answered
        # a policy may drop tokens in the client's layers: what crosses is what is left after them
        rows, sequences = path.start, path.at(self.cut)
        embedded = self.head.embed(rows.input_ids, list(inputs.kept))
        with self.model.following(path, self.cut):
            hidden = self.head(embedded, rows.attention_mask, rows.position_ids)
        sent = self._send(hidden, sequences, inputs, "train", part.number)
        message, layout = self._activation(sent), sent.layout
        if self.tail is None:
            labels = layout.pack(sent.sequences.labels).int()
            labels = fill_rows(labels, layout.lengths, self.bucket, IGNORED)
            extra = {"labels": labels, "scalar/tokens": scalar(tokens)}
            answer = self.server(Message("forward", {**message.tensors, **extra}, layout.side))
            loss = float(answer.tensors["scalar/loss"])
        else:
            loss, answer = self._finish(self.tail, message, sent, tokens)
        term = self.ends.term(sent.rows, sent.context)
        own.learn([] if term is None else [term], part.share)
        gradient = self.read("gradient", answer, layout.lengths)
        gradient = self.ends.decode_gradient(gradient, sent.context)
        sent.rows.backward(gradient)  # type: ignore[no-untyped-call]
        return loss

    def _finish(
        self, tail: Tail, message: Message, sent: _Sent, tokens: int
    ) -> tuple[float, Message]:
        """Compute the loss after the server's body; return it and the server's gradient message."""
        layout, labels, context = sent.layout, sent.sequences.labels, self._behind(sent)
        leaf = self.read("activation", self.server(message), layout.lengths).requires_grad_()
        arrived = self.ends.decode(leaf, context)
        hidden = tail(layout.unpack(arrived), layout.mask, layout.position_ids)
        share = int((labels != IGNORED).sum()) / tokens
        loss = tail.loss(hidden, labels) * share
        loss.backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        gradient = self.ends.encode_gradient(leaf.grad, context)
        return float(loss.detach()), self.server(
            Message("backward", self.write("gradient", gradient, layout.lengths))
        )

    def _behind(self, sent: _Sent) -> StageContext:
        """Return the client's context of its rows at the second cut."""
        return replace(sent.context, site=self._entrance, patches=())

    def _send(
        self,
        hidden: Tensor,
        sequences: TokenSequences,
        inputs: PreparedInputs,
        mode: Mode,
        number: int,
    ) -> _Sent:
        """Encode whole sequences ``[B, S, d]`` for the wire."""
        layout, real = TokenLayout.of(sequences), sequences.attention_mask.bool()
        image = self.model.preprocessor.image_token
        key = RandomKey(self.seed, int(self.scheduler.last_epoch), number, self.number)
        known = StageContext(
            self._exit,
            layout,
            spans=image_spans(sequences.input_ids, real, image),
            mode=mode,
            key=key,
        ).about(inputs)
        rows, context, places = self.ends.encode(layout.pack(hidden), known)
        if places is not None and mode == "train":  # prompts have no labels
            sequences = sequences.only(places_by_sample(places, layout.lengths, context))
        return _Sent(rows, context, sequences)

    def _send_token(
        self, hidden: Tensor, before: _Sent, inputs: PreparedInputs, number: int
    ) -> _Sent:
        """Encode one more token per sample, ``[B, 1, d]``, for the wire."""
        layout = TokenLayout(torch.ones(len(hidden), dtype=torch.int64))
        context = StageContext(
            self._exit,
            layout,
            spans=((0, 0),) * len(hidden),
            mode="generate",
            token=number,
            key=before.context.key,
        ).about(inputs)
        rows, context, _ = self.ends.encode(hidden[:, 0], context)
        return _Sent(rows, context, before.sequences)

    def _activation(self, sent: _Sent) -> Message:
        """Return the message of activations; only whole sequences include their lengths."""
        layout, type = sent.layout, _VERBS[sent.context.mode]
        tensors = self.write("activation", sent.rows, layout.lengths)
        if not sent.context.token:
            tensors["lengths"] = layout.lengths
            if layout.positions is not None:
                tensors["positions"] = layout.positions
        return Message(type, tensors, layout.side)

    def _prepare(self, batch: VQABatch) -> PreparedInputs:
        return prepared(self.model, batch, self.policy, self.encode)

    def _enter(
        self,
        ids: Tensor,
        entering: TokenLayout,
        cache: DynamicCache,
        kept: list[Tensor] | None = None,
    ) -> Tensor:
        """Run the head and return the hidden states before the first cut, ``[B, S, d]``.

        Args:
            ids: The prompts ``[B, S]``, or the last token of each row ``[B, 1]``.
            entering: Layout of the rows at the head, including generated tokens.
            cache: Keys and values of the head.
            kept: Features of the kept patches; None after the prompt.
        """
        positions = entering.position_ids[:, -ids.shape[1] :]
        hidden: Tensor = self.head(self.head.embed(ids, kept), entering.mask, positions, cache)
        return hidden

    def _next(self, sent: _Sent, crossing: TokenLayout, cache: DynamicCache) -> Tensor:
        """Return the next token of every row, ``[B]``.

        Args:
            sent: What the client sends.
            crossing: Layout of the rows at the cut, including generated tokens.
            cache: Keys and values of the tail.
        """
        answer = self.server(self._activation(sent))
        if self.tail is None:
            return answer.tensors["labels"].long()
        rows = self.read("activation", answer, sent.layout.lengths, "generate")
        rows = self.ends.decode(rows, self._behind(sent))
        hidden = rows[:, None] if sent.context.token else crossing.unpack(rows)
        positions = crossing.position_ids[:, -hidden.shape[1] :]
        return self.tail.next_ids(self.tail(hidden, crossing.mask, positions, cache))

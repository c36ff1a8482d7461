"""`VisionLanguageModel`: LLaVA with its frozen encoders, and pruning between tower and projector.

The language model is the stock ``LlavaForConditionalGeneration``. Pruned features enter through
its own ``mm_encoder_outputs``; with everything kept, logits and loss are bit-equal to the stock
call with ``pixel_values``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from transformers import CLIPTextModel, LlavaForConditionalGeneration

from ..batch import VQABatch
from ..decoder.sequences import Positions, TokenSelection, TokenSequences, image_features, shorten
from ..decoder.stages import Decision
from ..decoder.token_path import TokenPath
from ..features import VisualFeatures
from ..registry import Backbone, locate, resolve_backbone
from ..scores import AnswerScores, score_answers
from .deciding import decide_stages, evaluating
from .decoder_hooks import shortening_hooks
from .encoders import SensitivityEncoder, load_sensitivity_encoder, load_text_encoder
from .encoding import EncodingLlava
from .forward_pass import ForwardPass, Mode
from .loading import (
    DTYPES,
    DType,
    load_llava,
    load_processor,
    load_question_tokenizer,
    patch_grid,
    read_config,
)
from .prepared import PreparedInputs
from .preprocessing import DEFAULT_PROMPT, Preprocessor
from .quantization import Quantization
from .sharding import is_sharded


@dataclass(frozen=True)
class LanguageOutput:
    """What the language model made of a batch, at the pruned length.

    Args:
        loss: Mean cross-entropy of answer and end tokens over the batch, in nats.
        logits: Scores of the next token, ``[B, S, V]``.
        labels: Gold ids, -100 where there is no loss, ``[B, S]``.
        image_spans: First and one past the last column of each row's image tokens.
        sequences: The rows the figures belong to: those that leave the last layer.
        path: The rows at every depth of the decoder, as the policy shortens them.
        kept: Which of their tokens were not withdrawn at a cut; None is all of them.
    """

    loss: Tensor
    logits: Tensor
    labels: Tensor
    image_spans: tuple[tuple[int, int], ...]
    sequences: TokenSequences
    path: TokenPath
    kept: tuple[Tensor, ...] | None = None

    def at(self, cut: int) -> TokenSequences:
        """Return the rows that crossed before a layer."""
        return self.path.at(cut).only(self.kept)


class VisionLanguageModel(EncodingLlava):
    """LLaVA, CLIP's text tower and the sensitivity encoder.

    All weights are frozen; `add_lora` adds the only ones that train. The encoders stay in
    evaluation mode whatever `train` is told.

    Args:
        llava: The stock model.
        text_encoder: Encodes the question for the pruner.
        sensitivity_encoder: Encodes the image for the pruner's sensitivity branch.
        preprocessor: Makes batches for this model.
        backbone: Names of the checkpoints, kept for the record.
    """

    def __init__(
        self,
        llava: LlavaForConditionalGeneration,
        text_encoder: CLIPTextModel,
        sensitivity_encoder: SensitivityEncoder,
        preprocessor: Preprocessor,
        backbone: Backbone,
    ) -> None:
        super().__init__(llava, text_encoder, sensitivity_encoder, preprocessor, backbone)
        self._path: TokenPath | None = None
        self.under_way: ForwardPass | None = None

    @classmethod
    def from_pretrained(
        cls,
        backbone: str = "tiny",
        text_encoder: str | None = None,
        sensitivity_encoder: str | None = None,
        prompt: str = DEFAULT_PROMPT,
        dtype: DType = "float32",
        quantization: Quantization = "none",
        sensitivity_grid: int = 16,
        device: str = "cpu",
    ) -> Self:
        """Load a model by name, hub id or folder.

        Args:
            backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with ``llava``, ``clip``
                and ``dino`` in it.
            text_encoder: CLIP in place of the backbone's, by hub id or folder.
            sensitivity_encoder: timm ViT in place of the backbone's, by hub id or folder.
            prompt: Template with ``<image>`` and ``{question}``.
            dtype: Type of the weights.
            quantization: bitsandbytes format of the decoder's projections.
            sensitivity_grid: Largest number of sensitivity patches along a side.
            device: Where quantised weights are made; others can be moved at any time.

        Raises:
            ModelError: If a checkpoint is missing, broken or of another kind.
            ConfigError: If the prompt template lacks a part.
        """
        names = resolve_backbone(backbone, text_encoder, sensitivity_encoder)
        llava_folder = locate(names.llava)
        read_config(str(llava_folder))  # refuses another model before anything is fetched
        text_folder, sensitivity_folder = (
            locate(name) for name in (names.text_encoder, names.sensitivity_encoder)
        )
        llava = load_llava(llava_folder, dtype=dtype, quantization=quantization, device=device)
        text = load_text_encoder(text_folder, dtype=DTYPES[dtype])
        sensitivity = load_sensitivity_encoder(
            sensitivity_folder, dtype=DTYPES[dtype], max_side=sensitivity_grid
        )
        preprocessor = Preprocessor(
            load_processor(llava_folder),
            load_question_tokenizer(text_folder),
            sensitivity,
            grid=patch_grid(llava.config),
            max_tokens=llava.config.text_config.max_position_embeddings,
            max_question_tokens=text.config.max_position_embeddings,
            prompt=prompt,
        )
        return cls(llava, text, sensitivity, preprocessor, names)

    def prepare(
        self,
        batch: VQABatch | PreparedInputs,
        features: VisualFeatures | None = None,
        decision: Decision | None = None,
        positions: Positions = "compact",
    ) -> PreparedInputs:
        """Return a batch as the language model reads it, for anything that follows.

        The rows are shortened and what is kept is projected once. A pruner that goes on inside
        the decoder decides here, in a pass of its own.

        Args:
            batch: Samples; inputs that are prepared already are handed back.
            features: What `encode` returned for them; encoded here where None.
            decision: What is kept; None keeps everything.
            positions: How rows with the gold answer are numbered before the decoder: ``compact``,
                or ``original`` as if the dropped patches were masked.

        Raises:
            ModelError: If the decision is for another batch, or a pruner's choice does not fit.
        """
        if isinstance(batch, PreparedInputs):
            return batch
        patches = (self.encode(batch) if features is None else features).patches
        kept = image_features(patches, decision)

        def rows(selection: TokenSelection | None, *, prompt: bool) -> TokenSequences:
            if prompt:
                return self.prompts(batch, selection)
            return self.sequences(batch, selection, positions)

        inputs = PreparedInputs(batch, decision, kept, self._project, rows, self.num_patches)
        pruner = None if decision is None else decision.inside
        if pruner is None:
            return inputs
        choices = decide_stages(
            self, pruner, inputs.prompt.start, inputs.tokens, inputs.patches(0), self.grid
        )
        return inputs.decided(pruner, choices)

    def forward(
        self,
        batch: VQABatch | PreparedInputs,
        features: VisualFeatures | None = None,
        decision: Decision | None = None,
        positions: Positions = "compact",
    ) -> LanguageOutput:
        """Run the language model over question and gold answer.

        Args:
            batch: Samples with their answers, or what `prepare` made of them and the rest.
            features: What `encode` returned for them; encoded here where None.
            decision: What is kept; None keeps everything.
            positions: ``compact``, or ``original`` as if the dropped patches were masked.

        Raises:
            ModelError: If a row's image tokens and features differ in number.
        """
        inputs = self.prepare(batch, features, decision, positions)
        path = inputs.answered
        with (
            self._pass(inputs, "train" if self.training else "evaluate") as current,
            self.following(path),
        ):
            logits = self.llava(
                **_text_inputs(path.start),
                mm_encoder_outputs=inputs.image_outputs,
                use_cache=False,
            ).logits
        left = path.end.only(current.kept)
        # as the stock model computes it, of the tokens that are left at its end
        loss = self.stock.loss_function(
            logits=logits, labels=left.labels, vocab_size=self.stock.config.text_config.vocab_size
        )
        return LanguageOutput(loss, logits, left.labels, left.image_spans, left, path, current.kept)

    @torch.no_grad()
    def answer(
        self,
        batch: VQABatch | PreparedInputs,
        features: VisualFeatures | None = None,
        decision: Decision | None = None,
        max_new_tokens: int = 10,
        num_beams: int = 1,
    ) -> list[str]:
        """Return the answers decoded without sampling; special tokens and outer space removed.

        Runs in evaluation mode and leaves the mode as it was.

        Args:
            batch: Samples, or what `prepare` made of them; their answers are not read.
            features: What `encode` returned for them; encoded here where None.
            decision: What is kept; None keeps everything.
            max_new_tokens: Longest answer.
            num_beams: 1 is greedy decoding.
        """
        inputs = self.prepare(batch, features, decision)
        prompt = inputs.prompt.start
        with (
            evaluating(self),
            self._pass(inputs, "generate"),
            self.following(inputs.prompt),
        ):
            ids = self.llava.generate(
                input_ids=prompt.input_ids,
                attention_mask=prompt.attention_mask,
                mm_encoder_outputs=inputs.image_outputs,
                max_new_tokens=max_new_tokens,
                num_beams=num_beams,
                do_sample=False,
                eos_token_id=self.preprocessor.tokenizer.eos_token_id,
                pad_token_id=self.preprocessor.pad_token,
                # a process whose answers have ended goes on until those of all have
                synced_gpus=is_sharded(self),
            )
        new = ids[:, prompt.width :]
        texts = self.preprocessor.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [text.strip() for text in texts]

    @torch.no_grad()
    def answer_log_probs(
        self,
        batch: VQABatch | PreparedInputs,
        features: VisualFeatures | None = None,
        decision: Decision | None = None,
    ) -> AnswerScores:
        """Return how the model scores the gold answers; see `AnswerScores`.

        Runs in evaluation mode and leaves the mode as it was. The head is applied at the answer's
        positions only, so memory does not grow with the prompt.
        """
        inputs = self.prepare(batch, features, decision)
        path = inputs.answered
        with (
            evaluating(self),
            self._pass(inputs, "evaluate") as current,
            self.following(path),
        ):
            hidden = self.stock.model(
                **_text_inputs(path.start),
                mm_encoder_outputs=inputs.image_outputs,
                use_cache=False,
            ).last_hidden_state
            labels = path.end.only(current.kept).labels
            return replace(score_answers(hidden, labels, self.lm_head), kept=current.kept)

    @contextmanager
    def _pass(self, inputs: PreparedInputs, mode: Mode) -> Iterator[ForwardPass]:
        """Tell whoever sits in the decoder what is computed meanwhile."""
        before, self.under_way = self.under_way, ForwardPass(inputs, mode)
        try:
            yield self.under_way
        finally:
            self.under_way = before

    @contextmanager
    def following(self, path: TokenPath, stop: int | None = None) -> Iterator[None]:
        """Let the decoder drop on its way what a path drops, for the rows the path starts with.

        Args:
            path: What is dropped where.
            stop: One past the last layer that runs; None is all of them.
        """
        with shortening_hooks(self, path, stop):
            self._path = path
            try:
                yield
            finally:
                self._path = None

    def entering(self, cut: int, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ids, mask and positions of what is on its way as they stand before a layer.

        Args:
            cut: The layer.
            given: What the model was called with, by the names of its arguments.
        """
        path, ids = self._path, given["input_ids"]
        if path is None or not path.changes or ids.shape[1] != path.start.width:
            return given
        rows, repeats = path.at(cut), len(ids) // len(path.start.input_ids)
        names = ("input_ids", "attention_mask", "position_ids")
        return {
            name: getattr(rows, name).expand_as(rows.input_ids).repeat_interleave(repeats, dim=0)
            for name in names
        }

    def sequences(
        self,
        batch: VQABatch,
        decision: TokenSelection | None = None,
        positions: Positions = "compact",
    ) -> TokenSequences:
        """Return the rows of a batch that enter the decoder, shortened to what is kept."""
        return self._shorten(
            batch.input_ids, batch.attention_mask, batch.labels, decision, positions=positions
        )

    def prompts(self, batch: VQABatch, decision: TokenSelection | None = None) -> TokenSequences:
        """Return the prompts that answers are generated from, shortened to what is kept."""
        return self._shorten(
            batch.prompt_ids, batch.prompt_mask, batch.prompt_ids, decision, left=True
        )

    def _shorten(
        self,
        input_ids: Tensor,
        mask: Tensor,
        labels: Tensor,
        decision: TokenSelection | None,
        *,
        left: bool = False,
        positions: Positions = "compact",
    ) -> TokenSequences:
        return shorten(
            input_ids.to(self.device),
            mask.to(self.device),
            labels.to(self.device),
            image_token=self.preprocessor.image_token,
            pad_token=self.preprocessor.pad_token,
            num_patches=self.num_patches,
            selection=decision,
            side="left" if left else "right",
            positions=positions,
        )

    def _project(self, kept: Sequence[Tensor]) -> list[Tensor]:
        """Return what is kept of each sample behind the projector, in one call."""
        weight = next(self.projector.parameters())
        projected = self.projector(torch.cat(list(kept)).to(weight.device, weight.dtype))
        return list(projected.split([len(tokens) for tokens in kept]))


def _text_inputs(sequences: TokenSequences) -> dict[str, Tensor]:
    # without the mask, positions with gaps would be read as packed sequences that cannot see
    # each other
    return {
        "input_ids": sequences.input_ids,
        "attention_mask": sequences.attention_mask,
        "position_ids": sequences.position_ids,
    }

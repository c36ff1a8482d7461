"""`VisionLanguageModel`: LLaVA with its frozen encoders, and pruning between tower and projector.

The language model is the stock ``LlavaForConditionalGeneration``. Pruned features enter through
its own ``mm_encoder_outputs``; with everything kept, logits and loss are bit-equal to the stock
call with ``pixel_values``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn
from transformers import CLIPTextModel, LlavaForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .adapted_llava import AdaptedLlava
from .batch import VQABatch
from .clip_projections import EMBEDDINGS, ClipProjections, load_projections
from .encoders import SensitivityEncoder, load_sensitivity_encoder, load_text_encoder
from .features import NOTHING, FeatureSizes, Needs, VisualFeatures
from .fingerprint import fingerprint
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
from .preprocessing import DEFAULT_PROMPT, Preprocessor
from .quantization import Quantization
from .registry import Backbone, locate, resolve_backbone
from .scores import AnswerScores, score_answers
from .sequences import Positions, TokenSelection, TokenSequences, image_features, shorten
from .tower import read_tower


@dataclass(frozen=True)
class LanguageOutput:
    """What the language model made of a batch, at the pruned length.

    Args:
        loss: Mean cross-entropy of answer and end tokens over the batch, in nats.
        logits: Scores of the next token, ``[B, S, V]``.
        labels: Gold ids, -100 where there is no loss, ``[B, S]``.
        image_spans: First and one past the last column of each row's image tokens.
        sequences: The input the figures belong to.
    """

    loss: Tensor
    logits: Tensor
    labels: Tensor
    image_spans: tuple[tuple[int, int], ...]
    sequences: TokenSequences


class VisionLanguageModel(AdaptedLlava):
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
        super().__init__(llava)
        self.text_encoder = text_encoder
        self.sensitivity_encoder = sensitivity_encoder
        self.preprocessor = preprocessor
        self.backbone = backbone
        self.under_way: ForwardPass | None = None
        self._projections: ClipProjections | None = None
        self.requires_grad_(False)
        self.eval()

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

    @property
    def grid(self) -> tuple[int, int]:
        """Return rows and columns of the patches."""
        return self.preprocessor.grid

    @property
    def num_patches(self) -> int:
        """Return the number of patches ``N`` before pruning."""
        return self.preprocessor.num_patches

    @property
    def feature_sizes(self) -> FeatureSizes:
        """Return the widths of what `encode` returns, which size a pruner."""
        vision = self.stock.config.vision_config.hidden_size
        question = self.text_encoder.config.hidden_size
        return FeatureSizes(vision, vision, question, self.sensitivity_encoder.width)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the language model; the encoders and the projector stay in eval."""
        super().train(mode)
        for frozen in (self.vision_tower, self.projector, self.text_encoder):
            frozen.eval()
        self.sensitivity_encoder.eval()
        return self

    @torch.no_grad()
    def encode(self, batch: VQABatch, needs: Needs = NOTHING) -> VisualFeatures:
        """Return what the frozen encoders see; one pass of LLaVA's tower gives patches and pooled.

        Patches are those of LLaVA's feature layer without the class token, pooled is the class
        token of the last layer after its norm, and the question is CLIP's end token before the
        text projection.

        Args:
            batch: The samples.
            needs: What a policy asks for besides.
        """
        batch = batch.to(self.device)
        found = {
            **self.encode_images(batch.pixel_values, needs),
            "question": self.encode_questions(batch.question_ids, batch.question_mask),
            "sensitivity": self.encode_sensitivity(batch.sensitivity_pixels),
        }
        return self.complete(found, needs)

    @torch.no_grad()
    def complete(self, found: Mapping[str, Tensor], needs: Needs = NOTHING) -> VisualFeatures:
        """Return the features of a batch, with what is computed from what the encoders gave.

        Row by row: a feature must not depend on its neighbours, not even in its last bit.

        Args:
            found: What the encoders gave, by field.
            needs: What a policy asks for.

        Raises:
            ModelError: If CLIP embeddings are asked for and the CLIP has none for these patches.
        """
        patches, question, made = found["patches"], found["question"], dict[str, Tensor]()
        if "projected" in needs:
            weight = next(self.projector.parameters())
            made["projected"] = torch.stack([self.projector(row.to(weight)) for row in patches])
        if needs & EMBEDDINGS:
            clip = self.clip_projections()
            width = self.stock.config.vision_config.hidden_size
            if "image_embeds" in needs:
                rows = [clip.image_embeds(row[:, -width:]) for row in patches]
                made["image_embeds"] = torch.stack(rows)
            if "text_embeds" in needs:
                made["text_embeds"] = torch.stack([clip.text_embeds(row) for row in question])
        return VisualFeatures(
            **{**found, **made},
            grid=self.grid,
            sensitivity_grid=self.sensitivity_encoder.grid,
        )

    def clip_projections(self) -> ClipProjections:
        """Return the projections of the text encoder's CLIP, loaded when they are first needed.

        Raises:
            ModelError: If it holds none, or LLaVA's tower is not its own.
        """
        if self._projections is None:
            norm = cast(nn.LayerNorm, self.vision_tower.post_layernorm)
            self._projections = load_projections(locate(self.backbone.text_encoder), norm)
        return self._projections

    @torch.no_grad()
    def encode_images(self, pixel_values: Tensor, needs: Needs = NOTHING) -> dict[str, Tensor]:
        """Return what LLaVA's tower gives of images ``[B, 3, H, W]``, by field of the features."""
        layer = self.stock.config.vision_feature_layer
        dtype = next(self.vision_tower.parameters()).dtype
        layers = [layer] if isinstance(layer, int) else layer
        return read_tower(self.vision_tower, pixel_values.to(dtype), layers, needs)

    @torch.no_grad()
    def encode_questions(self, question_ids: Tensor, question_mask: Tensor) -> Tensor:
        """Return CLIP's end token of questions ``[B, Tq]``, before the projection, ``[B, Dt]``."""
        encoded = self.text_encoder(question_ids, attention_mask=question_mask)
        pooled: Tensor = encoded.pooler_output
        return pooled

    @torch.no_grad()
    def encode_sensitivity(self, sensitivity_pixels: Tensor) -> Tensor:
        """Return the sensitivity encoder's patches of images ``[B, 3, h, w]``, ``[B, M, Dd]``."""
        weight = next(self.sensitivity_encoder.parameters())
        features: Tensor = self.sensitivity_encoder(sensitivity_pixels.to(weight.dtype))
        return features

    def forward(
        self,
        batch: VQABatch,
        features: VisualFeatures | None = None,
        decision: TokenSelection | None = None,
        positions: Positions = "compact",
    ) -> LanguageOutput:
        """Run the language model over question and gold answer.

        Args:
            batch: Samples with their answers.
            features: What `encode` returned for them; encoded here where None.
            decision: What is kept; None keeps everything.
            positions: ``compact``, or ``original`` as if the dropped patches were masked.

        Raises:
            ModelError: If a row's image tokens and features differ in number.
        """
        sequences = self.sequences(batch, decision, positions)
        with self._pass(batch, "train" if self.training else "evaluate") as current:
            logits = self.llava(
                **_text_inputs(sequences),
                mm_encoder_outputs=self._image_outputs(batch, features, decision),
                use_cache=False,
            ).logits
        left = sequences.only(current.kept)
        # as the stock model computes it, of the tokens that are left at its end
        loss = self.stock.loss_function(
            logits=logits, labels=left.labels, vocab_size=self.stock.config.text_config.vocab_size
        )
        return LanguageOutput(loss, logits, left.labels, left.image_spans, left)

    @torch.no_grad()
    def answer(
        self,
        batch: VQABatch,
        features: VisualFeatures | None = None,
        decision: TokenSelection | None = None,
        max_new_tokens: int = 10,
        num_beams: int = 1,
    ) -> list[str]:
        """Return the answers decoded without sampling; special tokens and outer space removed.

        Runs in evaluation mode and leaves the mode as it was.

        Args:
            batch: Samples; their answers are not read.
            features: What `encode` returned for them; encoded here where None.
            decision: What is kept; None keeps everything.
            max_new_tokens: Longest answer.
            num_beams: 1 is greedy decoding.
        """
        prompt = self.prompts(batch, decision)
        with _evaluating(self), self._pass(batch, "generate"):
            ids = self.llava.generate(
                input_ids=prompt.input_ids,
                attention_mask=prompt.attention_mask,
                # made anew for every call: beam search repeats its entries in place
                mm_encoder_outputs=self._image_outputs(batch, features, decision),
                max_new_tokens=max_new_tokens,
                num_beams=num_beams,
                do_sample=False,
                eos_token_id=self.preprocessor.tokenizer.eos_token_id,
                pad_token_id=self.preprocessor.pad_token,
            )
        new = ids[:, prompt.input_ids.shape[1] :]
        texts = self.preprocessor.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [text.strip() for text in texts]

    @torch.no_grad()
    def answer_log_probs(
        self,
        batch: VQABatch,
        features: VisualFeatures | None = None,
        decision: TokenSelection | None = None,
    ) -> AnswerScores:
        """Return how the model scores the gold answers; see `AnswerScores`.

        Runs in evaluation mode and leaves the mode as it was. The head is applied at the answer's
        positions only, so memory does not grow with the prompt.
        """
        sequences = self.sequences(batch, decision)
        with _evaluating(self), self._pass(batch, "evaluate") as current:
            hidden = self.stock.model(
                **_text_inputs(sequences),
                mm_encoder_outputs=self._image_outputs(batch, features, decision),
                use_cache=False,
            ).last_hidden_state
            return score_answers(hidden, sequences.only(current.kept).labels, self.lm_head)

    def sequences(
        self,
        batch: VQABatch,
        decision: TokenSelection | None = None,
        positions: Positions = "compact",
    ) -> TokenSequences:
        """Return the language model's text input for a batch, shortened to what is kept."""
        return self._shorten(
            batch.input_ids, batch.attention_mask, batch.labels, decision, positions=positions
        )

    def encoder_fingerprint(self) -> str:
        """Return a hash of what features depend on: encoder weights, crop and tokenizer."""
        modules = (self.vision_tower, self.text_encoder, self.sensitivity_encoder)
        layer = f"feature layer {self.stock.config.vision_feature_layer}"
        return fingerprint(modules, (*self.preprocessor.encoder_settings(), layer))

    def prompts(self, batch: VQABatch, decision: TokenSelection | None = None) -> TokenSequences:
        """Return the prompts that answers are generated from, shortened to what is kept."""
        return self._shorten(
            batch.prompt_ids, batch.prompt_mask, batch.prompt_ids, decision, left=True
        )

    @contextmanager
    def _pass(self, batch: VQABatch, mode: Mode) -> Iterator[ForwardPass]:
        """Tell whoever sits in the decoder what is computed meanwhile."""
        before, self.under_way = self.under_way, ForwardPass(batch.samples, mode)
        try:
            yield self.under_way
        finally:
            self.under_way = before

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

    def _image_outputs(
        self, batch: VQABatch, features: VisualFeatures | None, decision: TokenSelection | None
    ) -> dict[str, BaseModelOutputWithPooling]:
        """Project what is kept, in one call, and wrap it as LLaVA takes it."""
        patches = (self.encode(batch) if features is None else features).patches
        weight = next(self.projector.parameters())
        kept = image_features(patches, decision)
        counts = [len(tokens) for tokens in kept]
        projected = self.projector(torch.cat(kept).to(weight.device, weight.dtype))
        tokens = list(projected.split(counts))
        return {"image": BaseModelOutputWithPooling(pooler_output=tokens)}


def _text_inputs(sequences: TokenSequences) -> dict[str, Tensor]:
    # without the mask, positions with gaps would be read as packed sequences that cannot see
    # each other
    return {
        "input_ids": sequences.input_ids,
        "attention_mask": sequences.attention_mask,
        "position_ids": sequences.position_ids,
    }


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode, and back in its own afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode

"""`EncodingLlava`: LLaVA with the frozen encoders a pruner sees by."""

from collections.abc import Mapping
from typing import Self, cast

import torch
from torch import Tensor, nn
from transformers import CLIPTextModel, LlavaForConditionalGeneration

from ..batch import VQABatch
from ..features import NEUTRAL_QUESTION, NOTHING, FeatureSizes, Needs, VisualFeatures
from ..fingerprint import fingerprint
from ..registry import Backbone, locate
from .adapted import AdaptedLlava
from .clip_projections import EMBEDDINGS, ClipProjections, load_projections
from .encoders import SensitivityEncoder
from .preprocessing import Preprocessor
from .tower import read_tower


class EncodingLlava(AdaptedLlava):
    """LLaVA's vision tower, CLIP's text tower and the sensitivity encoder, all frozen.

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
        self._projections: ClipProjections | None = None
        self.requires_grad_(False)
        self.eval()

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
        if "neutral_question" in needs:
            made["neutral_question"] = self._neutral_question().expand(len(question), -1)
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

    def _neutral_question(self) -> Tensor:
        """Return CLIP's end token of the neutral question, ``[1, Dt]``."""
        tokens = self.preprocessor.question_tokens([NEUTRAL_QUESTION])
        ids, mask = tokens["input_ids"].to(self.device), tokens["attention_mask"].to(self.device)
        return self.encode_questions(ids, mask)

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
        features: Tensor = self.sensitivity_encoder(sensitivity_pixels)
        return features

    def encoder_fingerprint(self) -> str:
        """Return a hash of what features depend on: encoder weights, crop and tokenizer."""
        modules = (self.vision_tower, self.text_encoder, self.sensitivity_encoder)
        layer = f"feature layer {self.stock.config.vision_feature_layer}"
        return fingerprint(modules, (*self.preprocessor.encoder_settings(), layer))

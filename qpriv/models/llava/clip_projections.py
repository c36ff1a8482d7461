"""CLIP's two projections, which put patches and questions into one space."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import AutoConfig, CLIPConfig
from transformers.models.clip.modeling_clip import CLIPPreTrainedModel

from qpriv.errors import ModelError

from ..features import Needs
from .encoders import as_model_error, quiet_loading, require_complete

EMBEDDINGS: Needs = frozenset({"image_embeds", "text_embeds"})
"""What needs the projections."""


@dataclass(frozen=True)
class ClipProjections:
    """The projections of one CLIP.

    Args:
        visual: Weight of the visual projection, ``[P, D]``.
        text: Weight of the text projection, ``[P, Dt]``.
        norm: The norm in front of the visual projection.
    """

    visual: Tensor
    text: Tensor
    norm: nn.LayerNorm

    def image_embeds(self, patches: Tensor) -> Tensor:
        """Return the embedding of every patch, ``[N, P]``, of the tower's features ``[N, D]``."""
        return linear(self.norm(patches), self.visual.to(patches))

    def text_embeds(self, question: Tensor) -> Tensor:
        """Return the embedding of a question, ``[P]``, of its pooled vector ``[Dt]``."""
        return linear(question, self.text.to(question))


def check_projections(name: str) -> None:
    """Check, from its configuration alone, that a CLIP holds its projections.

    Args:
        name: Its folder or hub id.

    Raises:
        ModelError: If it does not.
    """
    with as_model_error(Path(name), "CLIP config"):
        kind = AutoConfig.from_pretrained(name).model_type
    if kind != "clip":
        raise ModelError(
            f"a {kind} has no projections, which the pruning policy needs",
            where=name,
            remedy="give the folder of a whole CLIP as text encoder",
        )


def load_projections(folder: Path, norm: nn.LayerNorm) -> ClipProjections:
    """Load the projections out of a CLIP folder.

    Args:
        folder: The CLIP.
        norm: The last norm of LLaVA's vision tower, which must be this CLIP's own.

    Raises:
        ModelError: If the folder holds none, or LLaVA's tower is another CLIP's: its patches
            would be projected into a space they do not belong to.
    """
    check_projections(str(folder))
    with quiet_loading(), as_model_error(folder, "CLIP"):
        loaded, info = _Projections.from_pretrained(
            folder, dtype=norm.weight.dtype, use_safetensors=True, output_loading_info=True
        )
    require_complete(info["missing_keys"], folder)
    own = loaded.vision_model["post_layernorm"]
    if not _alike(own.weight, norm.weight) or not _alike(own.bias, norm.bias):
        raise ModelError(
            "LLaVA's vision tower is not that of this CLIP, so its patches have no embedding there",
            where=str(folder),
            remedy="give the CLIP the tower comes from as text encoder",
        )
    loaded = loaded.to(norm.weight.device).requires_grad_(False)
    return ClipProjections(loaded.visual_projection.weight, loaded.text_projection.weight, norm)


def _alike(own: Tensor, other: Tensor) -> bool:
    """Return whether two norms are one, but for the type they were stored in."""
    other = other.to(own.device)
    return own.shape == other.shape and torch.allclose(
        own.float(), other.float(), rtol=1e-2, atol=1e-3
    )


class _Projections(CLIPPreTrainedModel):  # type: ignore[misc]
    """The few weights of a CLIP that are wanted here, under the names of its checkpoint."""

    base_model_prefix = ""

    def __init__(self, config: CLIPConfig) -> None:
        super().__init__(config)
        vision, text = config.vision_config, config.text_config
        norm = nn.LayerNorm(vision.hidden_size, eps=vision.layer_norm_eps)
        self.vision_model = nn.ModuleDict({"post_layernorm": norm})
        self.visual_projection = nn.Linear(vision.hidden_size, config.projection_dim, bias=False)
        self.text_projection = nn.Linear(text.hidden_size, config.projection_dim, bias=False)
        self.post_init()

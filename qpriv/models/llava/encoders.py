"""The frozen encoders beside LLaVA: CLIP's text tower and the sensitivity encoder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import timm
import torch
from timm.models import VisionTransformer
from torch import Tensor, nn
from transformers import AutoConfig, CLIPTextModel
from transformers.utils import logging as transformers_logging

from qpriv.errors import ModelError


class SensitivityEncoder(nn.Module):
    """A DINOv2-class ViT that returns normalised patch features.

    Args:
        vit: A timm vision transformer.

    Attributes:
        grid: Rows and columns of the patches.
        size: Height and width of the input in pixels.
        width: Values a patch.
        mean: Channel means its input is normalised with.
        std: Channel standard deviations its input is normalised with.
    """

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.vit: VisionTransformer = vit
        self.grid: tuple[int, int] = tuple(vit.patch_embed.grid_size)
        self.size: tuple[int, int] = tuple(vit.patch_embed.img_size)
        self.width = int(vit.num_features)
        self.mean = tuple(float(value) for value in vit.pretrained_cfg["mean"])
        self.std = tuple(float(value) for value in vit.pretrained_cfg["std"])

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the patches after the final norm, without class and register tokens.

        Args:
            pixels: Normalised images of any float type, ``[B, 3, h, w]``.

        Returns:
            Features ``[B, M, D]``.
        """
        patches: Tensor
        weight = next(self.vit.parameters())
        (patches,) = self.vit.forward_intermediates(
            pixels.to(weight.dtype), indices=1, norm=True, output_fmt="NLC", intermediates_only=True
        )
        return patches


def load_sensitivity_encoder(
    folder: Path, *, dtype: torch.dtype = torch.float32, max_side: int = 16
) -> SensitivityEncoder:
    """Load a timm ViT from a folder in timm's ``local-dir`` layout.

    Args:
        folder: Holds ``config.json`` and ``model.safetensors``.
        dtype: Type of the weights.
        max_side: Largest number of patches along a side. DINOv2's native 37 costs five times
            the source's 16; 24 makes the grid of ViT-S/14 equal to that of CLIP-L/14-336.

    Raises:
        ModelError: If the folder does not hold a ViT that timm knows.
    """
    if not (folder / "model.safetensors").is_file():
        raise ModelError("no model.safetensors for the sensitivity encoder", where=str(folder))
    try:
        vit = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=0)
        patch = vit.patch_embed.patch_size
        side = min(max_side, *vit.patch_embed.grid_size)
        if vit.patch_embed.grid_size != (side, side):
            vit.set_input_size(img_size=(side * patch[0], side * patch[1]))
    except Exception as error:  # timm reports a bad folder by whatever exception it meets first
        raise ModelError(
            f"not a timm vision transformer: {_first_line(error)}",
            where=str(folder),
            remedy="give a folder or hub id such as timm/vit_small_patch14_dinov2.lvd142m",
        ) from error
    return SensitivityEncoder(vit).to(dtype)


def load_text_encoder(folder: Path, *, dtype: torch.dtype = torch.float32) -> CLIPTextModel:
    """Load the text tower out of a CLIP folder.

    Raises:
        ModelError: If the folder does not hold a CLIP.
    """
    encoder: CLIPTextModel
    with quiet_loading(), as_model_error(folder, "CLIP text encoder"):
        kind = AutoConfig.from_pretrained(folder).model_type
        if kind not in {"clip", "clip_text_model"}:
            raise ModelError(f"a {kind} model, not a CLIP", where=str(folder))
        encoder, info = CLIPTextModel.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, output_loading_info=True
        )
    require_complete(info["missing_keys"], folder)
    return encoder


def require_complete(missing: set[str], folder: Path) -> None:
    """Refuse a model some of whose weights came from nowhere, which transformers only logs.

    Raises:
        ModelError: If weights are missing.
    """
    if missing:
        raise ModelError(
            f"{len(missing)} weights are missing, among them {min(missing)}", where=str(folder)
        )


@contextmanager
def as_model_error(folder: Path, what: str) -> Iterator[None]:
    """Turn whatever a loader raises into one line that names the folder.

    Raises:
        ModelError: If the body raises anything.
    """
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # OSError, KeyError, SafetensorError, RuntimeError, JSON errors
        raise ModelError(
            f"cannot load a {what}: {_first_line(error)}", where=str(folder)
        ) from error


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Silence transformers' progress bars and its report of weights that we leave out."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"

"""Names of backbones, and where their folders are.

Everything a user may write (a name, a hub id, a folder) becomes local folders here; the code
behind loads folders only and cannot tell an embedded model from a released one.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from qpriv.errors import ModelError

EMBEDDED = Path(__file__).parent
"""Folder of the backbones that come with the package."""

EMBEDDED_NAMES = ("tiny",)
"""Backbones that come with the package, each a folder of this module's."""

TEXT_ENCODER = "openai/clip-vit-large-patch14-336"
"""The CLIP whose vision tower LLaVA-1.5 holds."""

SENSITIVITY_ENCODER = "timm/vit_small_patch14_dinov2.lvd142m"
"""DINOv2 ViT-S/14, 384 values a patch."""

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# no *.bin and no *.py: neither pickles nor a repository's own code are ever fetched
_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


@dataclass(frozen=True)
class Backbone:
    """The three checkpoints a model is made of, each a hub id or a folder.

    Args:
        llava: A ``LlavaForConditionalGeneration`` with its processor.
        text_encoder: A CLIP with its tokenizer; only its text tower is loaded.
        sensitivity_encoder: A timm ViT: ``config.json`` and ``model.safetensors``.
    """

    llava: str
    text_encoder: str = TEXT_ENCODER
    sensitivity_encoder: str = SENSITIVITY_ENCODER


def resolve_backbone(
    name: str, text_encoder: str | None = None, sensitivity_encoder: str | None = None
) -> Backbone:
    """Return the checkpoints behind a backbone's name.

    Args:
        name: The name of an embedded backbone (``tiny``); a folder that holds ``llava``,
            ``clip`` and ``dino``; or a LLaVA alone, as hub id or folder, which is completed
            with the encoders of LLaVA-1.5 and the source paper.
        text_encoder: CLIP that replaces the backbone's, as hub id or folder.
        sensitivity_encoder: timm ViT that replaces the backbone's, as hub id or folder.

    >>> resolve_backbone("llava-hf/llava-1.5-7b-hf").text_encoder
    'openai/clip-vit-large-patch14-336'
    """
    folder = EMBEDDED / name if name in EMBEDDED_NAMES else Path(name)
    if name in EMBEDDED_NAMES or (folder / "llava").is_dir():
        found = Backbone(*(str(folder / part) for part in ("llava", "clip", "dino")))
    else:
        found = Backbone(name)
    return Backbone(
        found.llava,
        text_encoder or found.text_encoder,
        sensitivity_encoder or found.sensitivity_encoder,
    )


def locate(name: str) -> Path:
    """Return the local folder of a checkpoint; a hub id is downloaded into the hub's cache.

    Raises:
        ModelError: If there is no such folder and no such hub id can be had.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise ModelError(f"{name} is a file", remedy="give the folder it lies in")
    if not _HUB_ID.fullmatch(name):
        raise ModelError(f"model folder is missing: {name}", remedy="check the path")
    return _download(name)


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES))
    except Exception as error:  # the hub's client raises its own, httpx's and OS errors
        reason = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"{hub_id} is no folder here and cannot be had from the hub: {reason}",
            remedy="check the spelling and the network, or give a local folder",
        ) from error

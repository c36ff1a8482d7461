"""Stage 2: the DINOv2-class ViT, trained without any label."""

import json
from pathlib import Path

import timm
import torch
from numpy.random import Generator
from safetensors.torch import save_file
from timm.models import VisionTransformer
from torch import Tensor, nn

from qpriv.datasets.bags import FaceBags
from qpriv.datasets.scenes import SIDE

from .scene_tensors import NUM_PATCHES, PATCH, SceneTensors, patches
from .training import train

ARCHITECTURE = "vit_small_patch14_dinov2"
MODEL_ARGUMENTS = {
    "img_size": SIDE,
    "patch_size": PATCH,
    "embed_dim": 96,
    "depth": 4,
    "num_heads": 4,
    "init_values": 0.1,
    "num_classes": 0,
}
"""What differs from DINOv2's ViT-S/14. Its layer scale of 1e-5 would take too long to grow."""

BATCH = 128
MASKED = 0.5
SCENES_PER_BAG = 5

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def new_model(seed: int) -> VisionTransformer:
    """Return a ViT of 0.45 M parameters with random weights."""
    torch.manual_seed(seed)
    return timm.create_model(ARCHITECTURE, pretrained=False, **MODEL_ARGUMENTS)


class SimMim(nn.Module):
    """Masked image modelling: predict the pixels of hidden patches from the visible ones.

    Targets are normalised patch by patch, as in He et al. (2022), and the loss is L1, as in
    SimMIM, Xie et al. (2022), arXiv:2111.09886. The head is linear and thrown away.

    Args:
        pixels: uint8 images to train on, ``[n, 3, 64, 64]``.
        width: Width of the ViT.
    """

    def __init__(self, pixels: Tensor, width: int = 96) -> None:
        super().__init__()
        self.images = pixels
        self.mask_token = nn.Parameter(torch.zeros(width))
        self.head = nn.Linear(width, 3 * PATCH * PATCH)
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))

    def forward(self, model: VisionTransformer, rng: Generator) -> Tensor:
        """Return the loss of a random batch."""
        pixels = self.images[rng.integers(len(self.images), size=BATCH)]
        hidden = torch.from_numpy(rng.random((BATCH, NUM_PATCHES)) < MASKED)
        embedded = model.patch_embed((pixels.float() / 255 - self.mean) / self.std)
        embedded = torch.where(hidden[..., None], self.mask_token, embedded)
        states = model.norm(model.blocks(model._pos_embed(embedded)))
        predicted = self.head(states[:, model.num_prefix_tokens :])
        target = patches(pixels)
        spread = target.std(-1, keepdim=True) + 0.02
        target = (target - target.mean(-1, keepdim=True)) / spread
        loss: Tensor = (predicted - target).abs().mean(-1)[hidden].mean()
        return loss


def pretrain(
    model: VisionTransformer, scenes: SceneTensors, checkpoint: Path, *, steps: int, seed: int
) -> None:
    """Train the ViT in place, on scenes and on the teacher's bags without their labels."""
    torch.manual_seed(seed)
    task = SimMim(torch.cat([scenes.pixels, _bags(len(scenes) // SCENES_PER_BAG, seed)]))
    modules = nn.ModuleDict({"dino": model.train(), "task": task})
    train(
        "dino",
        modules,
        lambda rng: task(model, rng),
        steps=steps,
        seed=seed,
        checkpoint=checkpoint,
        learning_rate=1e-3,
    )
    model.eval()


def save(model: VisionTransformer, folder: Path) -> None:
    """Write the folder that timm opens as ``local-dir:``, in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architecture": ARCHITECTURE,
        "num_classes": 0,
        "num_features": model.num_features,
        "model_args": MODEL_ARGUMENTS,
        "pretrained_cfg": {
            "input_size": [3, SIDE, SIDE],
            "fixed_input_size": True,
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "mean": IMAGENET_MEAN,
            "std": IMAGENET_STD,
            "num_classes": 0,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    halves = {name: value.half() for name, value in model.state_dict().items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})


def _bags(number: int, seed: int) -> Tensor:
    images = [sample.image.load() for sample in FaceBags("train", number, seed).samples]
    pictures = [torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8) for image in images]
    return torch.stack(pictures).view(-1, SIDE, SIDE, 3).permute(0, 3, 1, 2)

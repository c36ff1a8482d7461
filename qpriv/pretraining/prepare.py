"""`prepare_tiny`: train the embedded models from nothing, stage by stage."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch
from transformers import CLIPModel

from qpriv.errors import ConfigError

from . import clip_stage, dino_stage, llava_stage
from .held_out import Figure, measure
from .scene_tensors import SceneTensors

SCENES = 20_000
HELD_OUT = 300
STEPS = {"clip": 1200, "dino": 500, "llava": 1600}
"""Training steps of each stage at effort 1."""


def prepare_tiny(out: Path, seed: int = 0, effort: float = 1.0) -> list[Figure]:
    """Train the embedded models and save them as the folders ``clip``, ``dino`` and ``llava``.

    One thread needs about 50 CPU-minutes at effort 1. Stopped at any moment, the next call
    goes on from the last checkpoint; a stage whose folder is there is not repeated.

    Args:
        out: Folder for the models; those of the package are in ``qpriv/models/tiny``.
        seed: Seed of scenes, weights and batches.
        effort: Multiplies the number of scenes and steps: 0.01 is a trial of the machinery.

    Returns:
        What the models can do on held-out scenes.

    Raises:
        ConfigError: If the effort is not positive.
    """
    if effort <= 0:
        raise ConfigError(f"effort is {effort}", where="--effort", remedy="choose above 0")
    _Recipe(out, seed, effort).run()
    return measure(out / "llava", max(20, round(HELD_OUT * effort)), seed)


class _Recipe:
    def __init__(self, out: Path, seed: int, effort: float) -> None:
        self.out, self.seed, self.effort = out, seed, effort

    def run(self) -> None:
        """Run the stages that are not done."""
        stages: dict[str, Callable[[Path, int], None]] = {
            "clip": self._clip,
            "dino": self._dino,
            "llava": self._llava,
        }
        for name, stage in stages.items():
            folder, checkpoint = self.out / name, self.out / f"{name}.ckpt"
            if not folder.exists():
                unfinished = self.out / f"{name}.part"
                stage(unfinished, max(1, round(STEPS[name] * self.effort)))
                unfinished.rename(folder)
            checkpoint.unlink(missing_ok=True)

    @cached_property
    def _scenes(self) -> SceneTensors:
        return SceneTensors.draw("train", max(64, round(SCENES * self.effort)), self.seed)

    def _clip(self, folder: Path, steps: int) -> None:
        model = clip_stage.new_model(self.seed)
        clip_stage.pretrain(
            model, self._scenes, self.out / "clip.ckpt", steps=steps, seed=self.seed
        )
        model.half().save_pretrained(folder)
        clip_stage.processor().save_pretrained(folder)

    def _dino(self, folder: Path, steps: int) -> None:
        model = dino_stage.new_model(self.seed)
        dino_stage.pretrain(
            model, self._scenes, self.out / "dino.ckpt", steps=steps, seed=self.seed
        )
        dino_stage.save(model, folder)

    def _llava(self, folder: Path, steps: int) -> None:
        clip = CLIPModel.from_pretrained(self.out / "clip", dtype=torch.float32)
        model = llava_stage.new_model(clip, self.seed)
        llava_stage.pretrain(
            model, self._scenes, self.out / "llava.ckpt", steps=steps, seed=self.seed
        )
        model.half().save_pretrained(folder)
        llava_stage.processor().save_pretrained(folder)

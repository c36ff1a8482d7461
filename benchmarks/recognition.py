"""Whose face crossed? Every matcher on a finished run of `FaceScenes`, over 740 faces.

    python -m benchmarks.recognition RUN [RUN ...] [--scenes 1000] [--auxiliary 1500]

A run is a folder of ``qpriv fit`` with its ``config.yaml`` and ``checkpoints/last.ckpt``. No
network is trained: tokens and pixels are compared by closed forms, and the whole crop is that of a
linear read-out (an inverter of no steps). Beside each rate stands Wilson's interval.
"""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import lightning as L
import torch
import yaml
from jsonargparse import ArgumentParser

import datamodules
import lightning_modules
import qpriv.pruning.baselines
import qpriv.pruning.policy  # noqa: F401
from callbacks.probes.probe import Visit
from callbacks.probes.recognition import Recognition
from callbacks.runtime.checkpoint_io import AtomicCheckpointIO
from qpriv.attacks.observation import one_per_image, scenes
from qpriv.attacks.reconstruction.fora import FeatureInversion, Training
from qpriv.datasets.face_scenes import FaceScenes
from qpriv.datasets.sample import VQASample

WORLDS = (1, 11, 12, 13)
PATCH = 8


def loaded(run: Path) -> tuple[lightning_modules.VQAModule, datamodules.FaceScenes]:
    """Return module and data of a run, with the weights of its last checkpoint."""
    given = yaml.safe_load((run / "config.yaml").read_text())
    parser = ArgumentParser()
    parser.add_subclass_arguments(L.LightningModule, "model")
    parser.add_subclass_arguments(L.LightningDataModule, "data")
    made = parser.instantiate_classes(
        parser.parse_object({name: given[name] for name in ("model", "data")})
    )
    L.seed_everything(given["seed_everything"], verbose=False)
    trainer = L.Trainer(
        default_root_dir=tempfile.mkdtemp(),  # figures of this validation are not asked for
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[AtomicCheckpointIO()],
        limit_val_batches=1,
    )
    last = run / "checkpoints" / "last.ckpt"
    trainer.validate(made.model, made.data, str(last), verbose=False, weights_only=True)
    return made.model.eval(), made.data


def private(count: int) -> list[VQASample]:
    """Return scenes of the thirty members, from several worlds."""
    drawn = [
        replace(sample, group_id=f"world{world}/{sample.group_id}")
        for world in WORLDS
        for sample in FaceScenes("members", count // len(WORLDS), world, "scenes", 1).samples
    ]
    return one_per_image(drawn)


def measure(run: Path, count: int, auxiliary: int) -> None:
    """Print what is recognised in one run."""
    module, data = loaded(run)
    model, cut = module.model, module.channel.layers[0]
    visit = Visit(module, data, 0, run, run)
    known = one_per_image(data.auxiliary())[:auxiliary]
    truth = scenes(model, known, PATCH)
    targets = private(count)
    target_truth = scenes(model, targets, PATCH)
    sent, seen = visit.observe(known, cut, draw=1), visit.observe(targets, cut)
    attack = FeatureInversion(client="supervised", training=Training(steps=0), patch_size=PATCH)
    attack.fit(sent, truth)
    restored = attack.invert(seen)
    recognition = Recognition(
        visit, cut, attack, nullcontext, known, sent, truth, PATCH, knows_positions=True
    )
    print(f"{run.name}, policy {module.policy.label}")
    for result in recognition.report(seen, target_truth, restored):
        value = "n/a" if result.value is None else f"{result.value:.3f}"
        ends = "" if result.ci is None else f" [{result.ci[0]:.3f}, {result.ci[1]:.3f}]"
        matcher = f"  {result.attack['matcher']}" if "matcher" in result.attack else ""
        print(f"  {result.name:28} {value}{ends}  n = {result.n}{matcher}", flush=True)
        if result.name == "reid_top1":
            print("   ", {k: v for k, v in result.attack.items() if k.startswith("auxiliary")})


def main(words: Sequence[str] | None = None) -> None:
    """Measure each run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--auxiliary", type=int, default=1500)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    for run in given.runs:
        measure(run, given.scenes, given.auxiliary)


if __name__ == "__main__":
    main()

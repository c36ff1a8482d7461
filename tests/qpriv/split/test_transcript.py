"""A transcript is all that an attack needs, and it leads back to nothing of the victim."""

import gc
import weakref
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from qpriv.attacks.observation import Observation, observe, scenes
from qpriv.attacks.reconstruction.fora import FeatureInversion, Training
from qpriv.paradigms import Run, UShapedSplit
from qpriv.paradigms.centralized import accumulate_gradients
from qpriv.pruning.policy import NoPruning
from qpriv.split import Channel, Kind, Transcript
from tests.qpriv.paradigms.runs import RECIPE, begin
from tests.tiny_models import NUM_PATCHES, random_model, random_samples

CUTS = (2, 6)
PLAIN = str | int | float | bool | None


def crossed(run: Run) -> Transcript:
    """Return what the server of a U-shaped split sees of one training step."""
    paradigm = UShapedSplit(CUTS)
    paradigm.place(run.model.num_layers)
    batch = run.model.preprocessor(random_samples(4))
    with paradigm.crossings(run.model, 0, gradients=True, store=True) as transcript:
        accumulate_gradients(run.model, batch, run.policy, run.encode)
    return transcript


def contents(value: Any) -> list[Tensor]:
    """Return every tensor in a value, which holds nothing else but plain words and numbers."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in contents(part)]
    if is_dataclass(value):
        return [tensor for f in fields(value) for tensor in contents(getattr(value, f.name))]
    assert isinstance(value, PLAIN), f"a transcript holds a {type(value).__name__}"
    return []


def test_an_attack_runs_on_a_transcript_when_the_victim_is_gone() -> None:
    run = begin(UShapedSplit(CUTS))
    shape, victim = run.model.grid, weakref.ref(run.model)
    transcript = crossed(run)
    secrets = {t.untyped_storage().data_ptr() for t in (*run.model.parameters(),)}
    tensors = contents(transcript)
    assert {message.kind for message in transcript.messages} == {
        Kind.ACTIVATION,
        Kind.GRADIENT,
        Kind.LENGTHS,
    }
    assert tensors and not any(t.requires_grad or t.grad_fn for t in tensors)
    assert not secrets & {tensor.untyped_storage().data_ptr() for tensor in tensors}
    del run
    gc.collect()
    assert victim() is None, "the transcript keeps the victim alive"

    # the attacker's own model and pictures, and what crossed: nothing else is in reach
    public, own = random_model(), random_samples(12, seed=9)
    seen = observe(public, NoPruning(), own, Channel(CUTS), CUTS[0])
    fora = FeatureInversion(
        client="supervised", knows_positions=False, training=Training(steps=0, width=16, depth=1)
    )
    fora.fit(seen, scenes(public, own))
    pictures = fora.invert(Observation(transcript, CUTS[0], (), shape))
    assert pictures.shape[0] == 4 and bool(torch.isfinite(pictures).all())
    assert len({tuple(picture.flatten().tolist()) for picture in pictures}) == 4


def test_what_is_recorded_does_not_change_with_what_comes_after() -> None:
    run = begin(UShapedSplit(CUTS), RECIPE)
    first = crossed(run)
    copies = [tensor.clone() for tensor in contents(first)]
    crossed(run)
    assert all(torch.equal(a, b) for a, b in zip(contents(first), copies, strict=True))
    assert max(len(rows) for rows in first.image_rows(CUTS[0])) < NUM_PATCHES  # pruned before

"""What the reconstruction attacks spend their time on, against plain loops."""

import numpy as np
import torch
from torch import Tensor

from benchmarks.attacks.membership import Floats, largest
from benchmarks.attacks.timing import Pair
from qpriv.attacks.attributes import pooled
from qpriv.attacks.observation import observe
from qpriv.attacks.reconstruction.alignment import mk_mmd
from qpriv.attacks.side_channel import watch
from qpriv.datasets.face_scenes import FaceScenes
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.pruning.policy import NoPruning
from qpriv.split import Channel, Transcript
from tests.qpriv.attacks.reconstruction.test_alignment import pairwise
from tests.qpriv.attacks.reconstruction.test_fsha import crossed, published_step, small

CUT = 4
CHANNEL = Channel((CUT,))


def pairs(count: int = 32) -> list[Pair[Floats]]:
    """Return the pairs of this page, over so many scenes."""
    model = VisionLanguageModel.from_pretrained("tiny")
    return [mk_mmd_pair(), activations_pair(model, count), sizes_pair(model, count), fsha_pair()]


def mk_mmd_pair(features: int = 4096, batch: int = 64) -> Pair[Floats]:
    """FORA's alignment loss and its gradient."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, batch, features, generator=generator)
    second.requires_grad_(True)

    def gradient(loss: Tensor) -> Floats:
        (found,) = torch.autograd.grad(loss, second)
        return np.asarray(found / found.abs().max())

    return Pair(
        attack="FORA: MK-MMD",
        ours=lambda: gradient(mk_mmd(first, second)),
        plain=lambda: gradient(pairwise(first, second)),
        says=f"loss and gradient, F={features}, B={batch}: one Gram matrix; all differences",
        differ=largest,
        rounds=2,
        promised=50,
    )


def activations_pair(model: VisionLanguageModel, count: int) -> Pair[Floats]:
    """FORA and attribute inference: what crosses for the attacker's own scenes."""
    samples, policy = FaceScenes("train", count, 0, "scenes", 1).samples, NoPruning()

    def plain() -> Floats:
        with torch.no_grad(), CHANNEL.record(model) as transcript:
            for sample in samples:
                model(model.preprocessor([sample]))
        return pooled(transcript, CUT)

    return Pair(
        attack="FORA, attributes",
        ours=lambda: pooled(observe(model, policy, samples, CHANNEL, CUT).transcript, CUT),
        plain=plain,
        says=f"activations of {count} scenes: in batches, stopped behind the cut; whole passes",
        differ=largest,
        rounds=2,
    )


def sizes_pair(model: VisionLanguageModel, count: int) -> Pair[Floats]:
    """The side channel: sizes alone."""
    samples, policy = FaceScenes("train", count, 0, "scenes", 1).samples, NoPruning()

    def plain() -> Floats:
        sizes = []
        for sample in samples:
            seen: Transcript
            with torch.no_grad(), CHANNEL.record(model) as seen:
                model(model.preprocessor([sample]))
            sizes.append([len(seen.image_rows(CUT)[0]), len(seen.rows(CUT)[0])])
        return np.asarray(sizes, dtype=np.float64)

    def ours() -> Floats:
        seen = watch(model, policy, samples, CHANNEL)
        return np.stack([seen.kept, seen.kept + seen.text], axis=1).astype(np.float64)

    return Pair(
        attack="side channel",
        ours=ours,
        plain=plain,
        says=f"message sizes of {count} scenes: no decoder layer runs; whole passes",
        differ=largest,
        rounds=2,
    )


def fsha_pair(batch: int = 16) -> Pair[Floats]:
    """One step of the hijacker."""
    attack = small()
    attack.step(*crossed(batch, 0))
    state = attack.state_dict()
    private, public = crossed(batch, 1)

    def ours() -> Floats:
        attack.load_state_dict(state)
        return np.asarray(attack.step(private, public))

    def plain() -> Floats:
        attack.load_state_dict(state)
        return np.asarray(published_step(attack, private, public)[0])

    return Pair(
        attack="FSHA",
        ours=ours,
        plain=plain,
        says=f"one step on {batch} pictures: at once; the paper's, a sample at a time",
        differ=largest,
    )

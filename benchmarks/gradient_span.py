"""Pruning and LoRA's rank against the span test: where does an update give its words away?

    python benchmarks/gradient_span.py

On the embedded model, one training sample an update, the adapter past its first step. The test
needs more rows (the rank; three times the rank with query, key and value together) than tokens
``B T``, and pruning lowers these. A feasible test that finds little saw fewer inputs than there
are: rounding of the stored weights hides the faint ones.
"""

from collections.abc import Sequence

import numpy as np
import torch

from qpriv.attacks.gradients.sources import SharedGradient, read_update, share_update
from qpriv.attacks.gradients.span_test import PROJECTIONS, first_layer_span, token_inputs
from qpriv.attacks.observation import one_per_image
from qpriv.datasets.face_scenes import FaceScenes
from qpriv.datasets.sample import VQASample
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.recipe import LoraRecipe
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.policy import NoPruning, PruningPolicy


def adapted(rank: int) -> VisionLanguageModel:
    """Return the embedded model with an adapter that has left zero."""
    model = VisionLanguageModel.from_pretrained("tiny")
    model.add_lora(rank, 2 * rank)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.01
    return model


def words(
    model: VisionLanguageModel,
    sample: VQASample,
    shared: SharedGradient,
    projections: Sequence[str],
) -> tuple[float, float, float]:
    """Return feasibility, precision (NaN where nothing is found) and recall."""
    span = first_layer_span(shared, projections)
    found = set(span.holds(token_inputs(model)).nonzero()[:, 0].tolist())
    # in every text; who attacks knows them
    special = {model.preprocessor.image_token, model.preprocessor.tokenizer.eos_token_id}
    truth = set(model.preprocessor.text_tokens(sample)) - special
    right = len(found & truth)
    return span.feasible, right / len(found) if found else np.nan, right / len(truth)


def tokens(model: VisionLanguageModel, policy: PruningPolicy, sample: VQASample) -> int:
    """Return how many tokens enter the decoder."""
    with torch.no_grad():
        batch = model.preprocessor([sample])
        decision = policy.decide(model.encode(batch), [sample])
    return int(model.sequences(batch, decision).attention_mask.sum())


def measure(
    model: VisionLanguageModel, rank: int, policy: PruningPolicy, samples: Sequence[VQASample]
) -> None:
    """Print a line for one projection, and one for three."""
    count = np.mean([tokens(model, policy, sample) for sample in samples])
    recipe = LoraRecipe(rank=rank, alpha=2 * rank, learning_rate=2e-3)
    shared = [
        read_update(share_update(model, [s], policy, model.encode, recipe), recipe.learning_rate)
        for s in samples
    ]
    for projections in (PROJECTIONS[:1], PROJECTIONS):
        table = [words(model, s, g, projections) for s, g in zip(samples, shared, strict=True)]
        feasible, precision, recall = (np.array(column) for column in zip(*table, strict=True))
        known = precision[~np.isnan(precision)]
        print(f"rank {rank:3}, rows {rank * len(projections):3}, {policy.label:12} "
              f"tokens {count:3.0f}, feasible {feasible.mean():.2f}, recall {recall.mean():.2f}, "
              f"precision {known.mean() if len(known) else np.nan:.2f}", flush=True)  # fmt: skip


def main(count: int = 8) -> None:
    torch.set_num_threads(1)
    samples = one_per_image(FaceScenes("members", count, 0, "scenes", 1).samples)
    for rank in (8, 32):
        model = adapted(rank)
        for policy in (NoPruning(), RandomPruning(0.5), RandomPruning(0.9)):
            measure(model, rank, policy, samples)


if __name__ == "__main__":
    main()

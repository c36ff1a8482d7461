"""Twenty steps of every kind of party, however attention, padding and checkpointing are set."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer

from qpriv.models.batch import VQABatch
from qpriv.models.decoder.sequences import TokenSelection, TokenSequences
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms import Centralized, SplitLearning, UShapedSplit
from qpriv.paradigms.split_client import SplitClient
from qpriv.paradigms.split_server import BodyServer, SplitServer
from qpriv.split.layers import Segment, Tail
from tests.qpriv.paradigms import runs
from tests.qpriv.paradigms.runs import RECIPE, Trained, base_name, by_base_name, same
from tests.tiny_models import NUM_LAYERS, padded, random_samples

STEPS = 20
Gradients = list[dict[str, Tensor]]


def padded_left(
    model: VisionLanguageModel, batch: VQABatch, decision: TokenSelection | None = None, _: str = ""
) -> TokenSequences:
    return padded(model, batch, decision, "left")


def learned_by_parties(cuts: tuple[int, ...], begin: Callable[..., runs.Run]) -> Trained:
    """Train parties that own ranges of layers, and keep the gradients each steps with."""
    paradigm = SplitLearning(*cuts) if len(cuts) == 1 else UShapedSplit(cuts)  # type: ignore[arg-type]
    run = begin(paradigm)
    server = (
        SplitServer(Tail(run.model, *cuts), RECIPE, STEPS)
        if len(cuts) == 1
        else BodyServer(Segment(run.model, *cuts), RECIPE, STEPS)
    )
    client = SplitClient(run.model, cuts, server, run.policy, run.encode, RECIPE, STEPS)
    names = {id(p): base_name(name) for name, p in run.model.named_parameters()}
    seen: Gradients = []

    def keep(optimizer: Optimizer, *_: object) -> None:
        for parameter in optimizer.param_groups[0]["params"]:
            assert parameter.grad is not None
            seen[-1][names[id(parameter)]] = parameter.grad.clone()

    for party in (client, server):
        party.optimizer.register_step_pre_hook(keep)
    result = Trained(run.model, paradigm, gradients=seen)
    batch = run.model.preprocessor(random_samples(runs.BATCH))
    for number in range(STEPS):
        torch.manual_seed(number)
        seen.append({})
        result.losses.append(client.step(batch))
    result.weights = runs.trained_weights(run.model)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_one_client_is_centralised_training_bit_for_bit(
    implementation: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, every gradient (clipped by one counted number) and weights, with checkpointing."""
    plain = runs.begin

    def begin(*given: object, **named: object) -> runs.Run:
        run = plain(*given, **named)  # type: ignore[arg-type]
        run.model.stock.set_attn_implementation(implementation)
        run.model.stock.activation_checkpointing_enable({"use_reentrant": False})
        return run

    monkeypatch.setattr(runs, "begin", begin)
    if side == "left":
        monkeypatch.setattr(VisionLanguageModel, "sequences", padded_left)
    expected = runs.train(Centralized(), STEPS)
    assert expected.losses[-1] < expected.losses[0] - 0.5
    for found in (
        runs.train(SplitLearning(3), STEPS),
        runs.train(UShapedSplit((2, 6)), STEPS),
        learned_by_parties((3,), begin),
        learned_by_parties((2, 6), begin),
    ):
        assert found.losses == expected.losses
        for one, other in zip(expected.gradients, found.gradients, strict=True):
            assert len(one) == 2 * 7 * NUM_LAYERS and same(one, other)
        assert same(by_base_name(expected.weights), by_base_name(found.weights))

"""One product a LoRA layer, against PEFT's three."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from qpriv.attacks.membership.fused_lora import fused_lora
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import accumulate_gradients
from qpriv.pruning.baselines import RandomPruning
from tests.tiny_models import random_model, random_samples


@pytest.fixture(params=[0.0, 0.3], ids=["plain", "dropout"])
def model(request: pytest.FixtureRequest) -> Iterator[VisionLanguageModel]:
    """Return a model whose adapter has left zero."""
    adapted = random_model()
    adapted.add_lora(rank=6, dropout=request.param)
    generator = torch.Generator().manual_seed(0)
    for name, value in adapted.named_parameters():
        if "lora_B" in name:
            value.data = torch.randn(value.shape, generator=generator) * 0.1
    yield adapted.train()


def gradients(model: VisionLanguageModel, *, fused: bool) -> tuple[float, dict[str, Tensor]]:
    batch = model.preprocessor(random_samples(6))
    torch.manual_seed(1)
    with fused_lora(model) if fused else nullcontext():
        loss = accumulate_gradients(model, batch, RandomPruning(0.5), model.encode).loss
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return loss, found


def test_loss_and_gradients_are_those_of_peft(model: VisionLanguageModel) -> None:
    loss, theirs = gradients(model, fused=False)
    own_loss, ours = gradients(model, fused=True)
    assert loss == pytest.approx(own_loss, abs=1e-5)
    assert ours.keys() == theirs.keys() and len(ours) == 2 * 7 * model.num_layers
    for name, gradient in theirs.items():
        error = (ours[name] - gradient).norm() / gradient.norm()
        assert error < 1e-4, name
    # one product is rounded otherwise than three; under dropout there are three
    equal = all(torch.equal(ours[name], gradient) for name, gradient in theirs.items())
    assert equal == (model.llava.peft_config["default"].lora_dropout > 0)


def test_adapters_that_rest_stay_out_and_the_layers_are_left_as_they_were(
    model: VisionLanguageModel,
) -> None:
    model.eval()
    batch = model.preprocessor(random_samples(2))
    before = [vars(module).get("forward") for module in model.modules()]
    with torch.no_grad(), model.llava.disable_adapter():
        base = model(batch).logits
        with fused_lora(model):
            assert torch.equal(model(batch).logits, base)
    with torch.no_grad(), fused_lora(model):
        assert not torch.equal(model(batch).logits, base)
    assert [vars(module).get("forward") for module in model.modules()] == before

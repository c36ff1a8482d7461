import time

import pytest
import torch
from torch import Tensor

from qpriv.attacks.reconstruction.alignment import (
    KERNEL_SCALES,
    Aligner,
    Alignment,
    align,
    gradient_penalty,
    mk_mmd,
)
from qpriv.attacks.token_grid import TokenGrid


def pairwise(first: Tensor, second: Tensor) -> Tensor:
    """Return MK-MMD as the paper's code computes it: a tensor of all differences a kernel."""
    both = torch.cat([first, second])
    count = len(first)
    kernels = torch.zeros(2 * count, 2 * count, dtype=both.dtype)
    for scale in KERNEL_SCALES:
        distances = (both[None] - both[:, None]).square().sum(dim=2)
        kernels = kernels + torch.exp(-distances / (2 * scale * distances.detach().mean()))
    index = torch.zeros(2 * count, 2 * count, dtype=both.dtype)
    for i in range(count):
        for j in range(count):
            if i != j:
                index[i, j] = index[i + count, j + count] = 1 / (count * (count - 1))
            index[i, j + count] = index[i + count, j] = -1 / count**2
    return (kernels * index).sum() + 2 / (count - 1)


@pytest.mark.parametrize(("count", "width", "shift"), [(2, 3, 0.0), (16, 40, 1.0), (32, 512, 0.2)])
def test_gram_form_equals_the_pairwise_form_in_loss_and_gradient(
    count: int, width: int, shift: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(count, width, generator=generator)
    second = (torch.randn(count, width, generator=generator) + shift).requires_grad_(True)
    values, gradients = [], []
    for form in (mk_mmd, pairwise):
        value = form(first, second)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, second)[0])
    assert torch.allclose(values[0], values[1], rtol=1e-5, atol=1e-6)
    assert torch.allclose(
        gradients[0], gradients[1], rtol=1e-5, atol=1e-5 * gradients[1].abs().max()
    )


def test_gram_form_is_many_times_faster() -> None:
    first, second = torch.randn(2, 32, 2048)
    seconds = []
    for form in (mk_mmd, pairwise):
        began = time.process_time()
        form(first, second)
        seconds.append(time.process_time() - began)
    assert seconds[1] > 5 * seconds[0]


def test_discrepancy_grows_with_the_distance_and_is_refused_for_unequal_batches() -> None:
    first, second = torch.randn(2, 64, 10, generator=torch.Generator().manual_seed(1))
    values = [float(mk_mmd(first, second + shift)) for shift in (0.0, 0.5, 2.0)]
    assert values == sorted(values)
    assert abs(values[0] - 2 / 63) < 0.05
    with pytest.raises(ValueError, match="one shape"):
        mk_mmd(first, second[:5])


def test_penalty_is_per_sample() -> None:
    weight = torch.tensor([[3.0, 4.0]])

    class Linear(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * weight).sum(dim=(1, 2))

    x = torch.randn(5, 1, 2)
    assert gradient_penalty(Linear(), x, x, torch.rand(5)).item() == pytest.approx(16.0, rel=1e-5)


def test_aligner_starts_as_identity_and_undoes_a_shift_it_never_saw_paired() -> None:
    generator = torch.Generator().manual_seed(2)
    public = torch.randn(400, 4, 6, generator=generator) * torch.tensor([1.0, 2, 1, 1, 3, 1])
    private = torch.randn(400, 4, 6, generator=generator) * torch.tensor([1.0, 2, 1, 1, 3, 1]) + 1.5
    present = torch.ones(400, 4, dtype=torch.bool)
    assert torch.equal(Aligner(6)(public), public)
    settings = Alignment(steps=150, learning_rate=1e-2, batch_size=32)
    aligner = align(TokenGrid(public, present), TokenGrid(private, present), settings, seed=0)
    with torch.no_grad():
        gap = (aligner(public).mean((0, 1)) - private.mean((0, 1))).abs().mean()
    assert gap < 0.4  # it was 1.5

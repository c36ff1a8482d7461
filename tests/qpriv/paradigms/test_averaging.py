import pytest
import torch
from torch import Tensor

from qpriv.paradigms.averaging import average_factors, average_products, product_error

RANK, WIDTH, OUT = 3, 12, 10
WEIGHTS = [1, 2, 5]


def adapters(count: int = 3) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            f"layers.{layer}.{name}.weight": torch.randn(shape, generator=generator)
            for layer in range(2)
            for name, shape in (("lora_A", (RANK, WIDTH)), ("lora_B", (OUT, RANK)))
        }
        for _ in range(count)
    ]


def update(adapter: dict[str, Tensor], layer: int) -> Tensor:
    b, a = (adapter[f"layers.{layer}.lora_{x}.weight"].double() for x in "BA")
    return b @ a


def mean_update(own: list[dict[str, Tensor]], layer: int) -> Tensor:
    return sum(w / 8 * update(a, layer) for a, w in zip(own, WEIGHTS, strict=True))  # type: ignore[return-value]


def dense_error(mean: dict[str, Tensor], own: list[dict[str, Tensor]]) -> float:
    pairs = [(mean_update(own, layer), update(mean, layer)) for layer in range(2)]
    lost = sum(float((a - b).square().sum()) for a, b in pairs)
    return (lost / sum(float(a.square().sum()) for a, _ in pairs)) ** 0.5


def test_factors_are_averaged_one_by_one() -> None:
    own = adapters()
    mean = average_factors(own, WEIGHTS)
    for name, value in mean.items():
        expected = sum(w * a[name].double() for a, w in zip(own, WEIGHTS, strict=True)) / 8
        torch.testing.assert_close(value, expected.float())


def test_products_are_the_best_of_their_rank_and_closer_than_factors() -> None:
    own = adapters()
    factors, products = average_factors(own, WEIGHTS), average_products(own, WEIGHTS)
    for layer in range(2):
        u, s, vt = torch.linalg.svd(mean_update(own, layer), full_matrices=False)
        best = u[:, :RANK] * s[:RANK] @ vt[:RANK]
        torch.testing.assert_close(update(products, layer), best, rtol=1e-4, atol=1e-5)
    for mean in (factors, products):
        error = product_error(mean, own, WEIGHTS)
        assert error == pytest.approx(dense_error(mean, own), rel=1e-5)
    assert product_error(products, own, WEIGHTS) < 0.8 * product_error(factors, own, WEIGHTS)


def test_a_mean_of_that_rank_is_exact_and_no_direction_dies() -> None:
    own = adapters(1) * 3  # equal clients: the mean has the clients' rank
    for one in own:
        one["layers.0.lora_B.weight"] = torch.zeros(OUT, RANK)  # as at the start of training
    mean = average_products(own, WEIGHTS)
    assert product_error(mean, own, WEIGHTS) < 1e-6
    assert (mean["layers.0.lora_A.weight"].norm(dim=1) > 1).all()
    assert (mean["layers.0.lora_B.weight"] == 0).all()


def test_equal_clients_have_no_error_and_untrained_ones_neither() -> None:
    own = adapters(1) * 2
    assert product_error(average_factors(own, [1, 1]), own, [1, 1]) < 1e-7
    zero = [{name: torch.zeros_like(value) for name, value in own[0].items()}] * 2
    assert product_error(zero[0], zero, [1, 1]) == 0

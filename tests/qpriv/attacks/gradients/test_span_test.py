"""The span test and its rank condition, on a random LLaMA and on LoRA updates under pruning."""

from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from qpriv.attacks.gradients.label_recovery import answer_tokens
from qpriv.attacks.gradients.span_test import InputSpan, embedding_tokens, input_span

VOCABULARY, WIDTH = 1000, 128
SHAPES = {"1 x 16": (1, 16), "4 x 32": (4, 32), "16 x 64": (16, 64)}


@cache
def shared(shape: str, tied: bool = False) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return tokens ``[B, T]``, all gradients by a short name, and every token's first input."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            tie_word_embeddings=tied,
        )
        model = LlamaForCausalLM(config)
        tokens = torch.randint(VOCABULARY, SHAPES[shape])
    model(tokens, labels=tokens).loss.backward()
    first = model.model.layers[0]
    gradients = {
        "embedding": model.model.embed_tokens.weight.grad,
        "head": model.lm_head.weight.grad,
        **{name: getattr(first.self_attn, f"{name}_proj").weight.grad for name in "qkv"},
    }
    return tokens, gradients, first.input_layernorm(model.model.embed_tokens.weight).detach()


def score(found: set[int], tokens: Tensor) -> tuple[float, float]:
    """Return precision and recall."""
    truth = set(tokens.flatten().tolist())
    right = len(found & truth)
    return right / len(found) if found else float("nan"), right / len(truth)


def tokens_in(span: InputSpan, inputs: Tensor) -> set[int]:
    return set(span.holds(inputs).nonzero()[:, 0].tolist())


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_an_untied_embedding_are_the_tokens_but_the_last(shape: str) -> None:
    tokens, gradients, _ = shared(shape)
    assert embedding_tokens(gradients["embedding"]) == set(tokens[:, :-1].flatten().tolist())


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_of_a_tied_embedding_tell_nothing(shape: str) -> None:
    tokens, gradients, _ = shared(shape, tied=True)
    precision, recall = score(embedding_tokens(gradients["embedding"]), tokens)
    assert recall == 1.0 and precision == len(tokens.unique()) / VOCABULARY


@pytest.mark.parametrize("shape", ["1 x 16", "4 x 32"])
def test_head_gives_all_predicted_tokens_while_they_are_fewer_than_its_width(shape: str) -> None:
    tokens, gradients, _ = shared(shape)
    predicted = set(tokens[:, 1:].flatten().tolist())
    found = answer_tokens(gradients["head"], end_token=int(tokens[0, -1]))
    assert found | {int(tokens[0, -1])} == predicted
    summed = set(gradients["head"].sum(dim=1).topk(len(predicted), largest=False).indices.tolist())
    assert shape == "1 x 16" or len(summed & predicted) < 0.6 * len(predicted)


@pytest.mark.parametrize(("shape", "least"), [("1 x 16", 0.87), ("4 x 32", 0.9)])
def test_span_of_the_query_gradient_holds_the_tokens_and_no_other(shape: str, least: float) -> None:
    tokens, gradients, inputs = shared(shape)
    span = input_span([gradients["q"]])
    precision, recall = score(tokens_in(span, inputs), tokens)
    assert span.feasible and precision == 1.0 and recall >= least


def test_query_does_not_see_the_first_token_and_the_value_does() -> None:
    tokens, gradients, inputs = shared("1 x 16")
    query = input_span([gradients["q"]])
    together = input_span([gradients[name] for name in "qkv"])
    assert (query.rank, together.rank) == (14, 15)
    assert tokens_in(together, inputs) - tokens_in(query, inputs) == {int(tokens[0, 0])}


def test_more_tokens_than_the_layer_is_wide_make_the_test_void() -> None:
    _, gradients, inputs = shared("16 x 64")
    span = input_span([gradients["q"]])
    assert span.rank == WIDTH and not span.feasible and not tokens_in(span, inputs)


def lora(name: str, rank: int, step: int, shape: str = "1 x 16") -> Tensor:
    """Return the gradient of A, ``B^T dW``: before the first step B is zero."""
    shape_of_b = (WIDTH, rank)
    b = torch.randn(shape_of_b, generator=torch.Generator().manual_seed(ord(name))) * min(step, 1)
    return b.T @ shared(shape)[1][name]


@pytest.mark.parametrize("rank", [4, 32])
def test_lora_leaks_nothing_through_its_input_factor_before_its_first_step(rank: int) -> None:
    gradient = lora("q", rank, step=0)
    assert not gradient.any()
    assert input_span([gradient]).rank == 0 and not input_span([gradient]).feasible


@pytest.mark.parametrize(("rank", "feasible"), [(4, False), (14, False), (15, True), (32, True)])
def test_lora_leaks_its_tokens_if_its_rank_is_above_their_number(rank: int, feasible: bool) -> None:
    tokens, _, inputs = shared("1 x 16")
    span = input_span([lora("q", rank, step=1)])
    assert span.feasible is feasible
    found = tokens_in(span, inputs)
    assert len(found) == (14 if feasible else 0) and found <= set(tokens.flatten().tolist())


def test_three_projections_have_three_times_the_rows_of_one() -> None:
    tokens, _, inputs = shared("1 x 16")
    assert not input_span([lora("q", 6, step=1)]).feasible
    span = input_span([lora(name, 6, step=1) for name in "qkv"])
    assert span.feasible and score(tokens_in(span, inputs), tokens) == (1.0, 15 / 16)


def test_rounded_gradients_give_the_tokens_too_if_the_error_is_known() -> None:
    tokens, _, inputs = shared("1 x 16")
    gradient = lora("q", 32, step=1)
    level = float(gradient.square().mean().sqrt()) * 1e-4
    noisy = gradient + level * torch.randn(gradient.shape, generator=torch.Generator())
    assert not input_span([noisy]).feasible  # noise has full rank
    found = tokens_in(input_span([noisy], [level]), inputs)
    precision, recall = score(found, tokens)
    assert precision == 1.0 and recall > 0.6

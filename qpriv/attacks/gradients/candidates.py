"""Candidate matching: simulate the gradient of every possible answer or image.

If no analytic rule applies (LoRA without a trained head, gradients that cross a cut), an attacker
who holds the weights computes each candidate's gradient, and chooses the candidate whose gradient
points in the observed direction.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from qpriv.datasets.sample import VQASample
from qpriv.models.decoder.sequences import IGNORED
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Channel, Kind, Transcript
from qpriv.split.layers import Tail

from ..observation import public_client
from .sources import SharedGradient, simulate_cut, simulate_update

_BOTH = (Kind.ACTIVATION, Kind.GRADIENT)

RULED_OUT = -1.0
"""Score of a candidate that cannot have sent a message of the observed length."""


def asked(images: Sequence[VQASample], question: str, answer: str) -> list[VQASample]:
    """Return samples about the same images with another question and answer."""
    return [replace(s, question=question, answer=answer, answers=(answer,)) for s in images]


def score_update_answers(
    model: VisionLanguageModel,
    policy: PruningPolicy,
    encode: Encode,
    shared: SharedGradient,
    question: str,
    answers: Sequence[str],
    stand_ins: Sequence[VQASample],
) -> Tensor:
    """Return how well each answer explains a client's LoRA update, ``[C]`` in [-1, 1].

    The attacker knows the weights (it sent them), the policy and the question, and averages over
    its own images in place of the client's. It uses the one matrix to which image tokens add
    nothing: only the final norm and the head follow the last layer's down projection, so the
    gradient of its B is a sum of ``g_t (A x_t)^T`` over the answer's positions ``t``. All other
    gradients are sums over all tokens of the unknown image.

    Args:
        model: The model with the adapter that the server sent.
        policy: The client's pruning policy.
        encode: The frozen encoders.
        shared: The client's gradient of the adapter.
        question: The client's question.
        answers: Candidates.
        stand_ins: The attacker's images.
    """
    last = f"layers.{model.num_layers - 1}.mlp.down_proj.lora_B"
    observed = shared.flat(last).to(model.device)
    scores = []
    for answer in answers:
        samples = asked(stand_ins, question, answer)
        (simulated,) = simulate_update(model, samples, policy, encode, last)
        scores.append(cosine_similarity(simulated.flatten().to(observed), observed, dim=0))
    return torch.stack(scores).cpu()


def score_tail_answers(
    model: VisionLanguageModel, transcript: Transcript, cut: int, answers: Sequence[Sequence[int]]
) -> Tensor:
    """Return how well each answer explains the gradient from a U-shaped split's tail, ``[C]``.

    The server sent the activations that enter the tail, and gets their gradient. It has neither
    labels nor the client's adapter, but it has the tail of the public base model.

    Args:
        model: The model; its adapters are disabled.
        transcript: What crossed for one sample.
        cut: First layer of the tail.
        answers: Tokens of each candidate, its end token last.
    """
    (hidden,), (observed,) = (transcript.rows(cut, kind) for kind in _BOTH)
    if max(map(len, answers)) >= len(hidden):
        raise ValueError(f"an answer does not fit into {len(hidden)} tokens")
    leaf = hidden.to(model.device).expand(len(answers), -1, -1).clone().requires_grad_()
    labels = torch.full(leaf.shape[:2], IGNORED, device=model.device)
    for row, answer in enumerate(answers):
        labels[row, -len(answer) :] = torch.tensor(answer, device=model.device)
    mask = torch.ones_like(labels)
    positions = torch.arange(len(hidden), device=model.device).expand_as(labels)
    tail = Tail(model, cut)
    with public_client(model), torch.enable_grad():
        scores = tail.logits(tail(leaf, mask, positions))[:, :-1].float()
        loss = cross_entropy(scores.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
        (simulated,) = torch.autograd.grad(loss, leaf)
    flat = observed.to(simulated).flatten()
    return cosine_similarity(simulated.flatten(1), flat[None], dim=1).cpu()


def score_images(
    model: VisionLanguageModel,
    policy: PruningPolicy,
    encode: Encode,
    transcript: Transcript,
    channel: Channel,
    cut: int,
    candidates: Sequence[VQASample],
) -> dict[Kind, Tensor]:
    """Return how well each image explains what crossed a cut for one sample, ``[C]`` in [-1, 1].

    There are two scores: by the gradient and, for comparison, by the activations. The attacker
    holds the public base model and knows question, answer and policy. It excludes candidates for
    which the policy would keep another number of patches.

    Args:
        model: The model; its adapters are disabled.
        policy: The client's pruning policy.
        encode: The frozen encoders.
        transcript: What crossed for one sample.
        channel: The channel.
        cut: The cut.
        candidates: Images with the client's question and answer.
    """
    simulated = simulate_cut(model, candidates, policy, encode, channel, cut)
    scores = {}
    for kind in _BOTH:
        (observed,) = transcript.rows(cut, kind)
        scores[kind] = torch.stack([_likeness(own, observed) for own in simulated.rows(cut, kind)])
    return scores


def _likeness(own: Tensor, observed: Tensor) -> Tensor:
    if own.shape != observed.shape:
        return torch.tensor(RULED_OUT)
    return cosine_similarity(own.flatten(), observed.flatten(), dim=0)

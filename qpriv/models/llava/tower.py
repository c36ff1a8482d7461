"""What LLaVA's vision tower gives beside its patches: attention, keys and class tokens.

Attention weights are computed anew from the hidden states, for the one row that is asked for:
fast attention kernels hand out none, and whole maps would be hundreds of times as large.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..features import Needs


def read_tower(
    tower: nn.Module, pixel_values: Tensor, feature_layers: Sequence[int], needs: Needs
) -> dict[str, Tensor]:
    """Return what one pass of a CLIP vision tower gives, by field of `VisualFeatures`.

    Args:
        tower: A ``CLIPVisionModel``.
        pixel_values: Normalised images, ``[B, 3, H, W]``.
        feature_layers: LLaVA's ``vision_feature_layer``; several are put side by side. Attention
            and keys are those of the last one.
        needs: What is asked for beside ``patches`` and ``pooled``; what is not the tower's own
            is left out.
    """
    vision = tower(pixel_values, output_hidden_states=True)
    # the states before the first layer, then those behind each layer
    states: tuple[Tensor, ...] = vision.hidden_states
    chosen = torch.cat([states[layer] for layer in feature_layers], dim=-1)
    found = {"patches": chosen[:, 1:], "pooled": vision.pooler_output}
    if "class_token" in needs:
        found["class_token"] = chosen[:, 0]
    if needs & {"cls_attention", "keys"}:
        layer = feature_layers[-1] % len(states) - 1
        query, keys = _class_query_and_keys(tower, layer, states[layer])
        if "cls_attention" in needs:
            found["cls_attention"] = _attention(query, keys)[:, :, 1:].sum(dim=1)
        if "keys" in needs:
            found["keys"] = keys[:, :, 1:].mean(dim=1)
    if needs & {"last_query", "last_keys"}:
        query, keys = _class_query_and_keys(tower, -1, states[-2])
        if "last_query" in needs:
            found["last_query"] = query.flatten(1)
        if "last_keys" in needs:
            found["last_keys"] = keys.transpose(1, 2).flatten(2)
    return found


def _class_query_and_keys(
    tower: Any,  # noqa: ANN401
    number: int,
    entering: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return one layer's query of the class token and all keys, ``[B, h, d]``, ``[B, h, N+1, d]``.

    Args:
        tower: A ``CLIPVisionModel``.
        number: The layer.
        entering: What enters it, ``[B, N + 1, D]``, class token first.
    """
    layer = tower.encoder.layers[number]
    normed, attention = layer.layer_norm1(entering), layer.self_attn
    heads = (attention.num_heads, attention.head_dim)
    query: Tensor = attention.q_proj(normed[:, 0]).unflatten(-1, heads)
    keys: Tensor = attention.k_proj(normed).unflatten(-1, heads)
    return query, keys.transpose(1, 2)


def _attention(query: Tensor, keys: Tensor) -> Tensor:
    """Return the attention weights of one query in each head, ``[B, h, N + 1]``.

    In float32: at half precision dozens of patches would tie.
    """
    scores = torch.einsum("bhd,bhnd->bhn", query.float(), keys.float())
    weights: Tensor = (scores * query.shape[-1] ** -0.5).softmax(dim=-1)
    return weights

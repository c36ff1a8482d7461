"""What decoder layers are told of the tokens that enter them, wherever in the decoder that is."""

from typing import Any

from torch import Tensor, nn
from transformers import DynamicCache
from transformers.masking_utils import create_causal_mask


def layer_inputs(
    config: Any,  # noqa: ANN401 - transformers' own
    rotary: nn.Module,
    hidden: Tensor,
    mask: Tensor,
    positions: Tensor,
    cache: DynamicCache | None,
    layer: int,
) -> dict[str, Any]:
    """Return what decoder layers are told about tokens beside the tokens.

    Args:
        config: The decoder's configuration.
        rotary: The decoder's rotary embedding.
        hidden: What enters, ``[B, S, d]``.
        mask: 1 for every real token, those in the cache included, ``[B, P + S]``.
        positions: Positions of the tokens in ``hidden``, ``[B, S]``.
        cache: Keys and values, or None.
        layer: The layer at which the length of the cache is read.
    """
    causal = create_causal_mask(
        config=config,
        inputs_embeds=hidden,
        attention_mask=mask,
        cache=cache,
        position_ids=positions,
        layer_idx=layer,
    )
    return {
        "attention_mask": causal,
        "position_embeddings": rotary(hidden, position_ids=positions),
        "position_ids": positions,
    }

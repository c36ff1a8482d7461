"""What one sample costs: operations, bytes that cross, and memory, by the closed forms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qpriv.models.llava.loading import DTYPES, DType
from qpriv.models.llava.quantization import Quantization
from qpriv.paradigms.optimizers import Algorithm
from qpriv.split.codecs import Codec

from .architecture import Architecture

Party = Literal["client", "server"]

_FP32 = 4
_MOMENT_BYTES: dict[Algorithm, int] = {"adamw": _FP32, "adamw8bit": 1, "paged_adamw8bit": 1}
"""Of one of AdamW's two moments of a trained parameter; it and its gradient are in fp32."""

_QUANTISED_BYTES: dict[Quantization, float] = {
    "nf4": 0.5
    + 1 / 64
    + _FP32 / (64 * 256),  # 4 bits; an 8-bit scale a block, fp32 for 256 of them
    "int8": 1.0,
}


@dataclass(frozen=True)
class Placement:
    """Which decoder layers the server owns; the client owns the others, and all else.

    Args:
        served: The server's layers; empty where nothing is cut.
        head_served: Whether final norm and LM head are the server's too.
        cuts: First layers behind a cut.
        codec: How activations and gradients are written for the wire.
        bucket: Messages are filled to a multiple of so many tokens a sample.
        width: Numbers of a token that crosses, which a defence may change; None is the decoder's.
    """

    served: range
    head_served: bool
    cuts: tuple[int, ...]
    codec: Codec
    bucket: int = 1
    width: int | None = None

    def layers(self, party: Party, total: int) -> int:
        """Return the number of decoder layers of a party."""
        return len(self.served) if party == "server" else total - len(self.served)

    def has_head(self, party: Party) -> bool:
        """Return whether a party holds final norm and LM head."""
        return self.head_served is (party == "server")


@dataclass(frozen=True)
class PassCost:
    """One sample at one number of kept patches.

    Args:
        kept: Visual tokens ``k`` that are kept.
        tokens: Those and the text's: ``s = k + T``.
        client_flops: Operations of a forward pass in the client's layers and projector.
        server_flops: The same of the server's layers.
        train_flops: Operations of both parties, forward and backward.
        up: Bytes of a training step from client to server: activations, and gradients if any.
        down: Bytes of it from server to client.
    """

    kept: int
    tokens: int
    client_flops: float
    server_flops: float
    train_flops: float
    up: float
    down: float


def layer_flops(sizes: Architecture, tokens: int) -> float:
    """Return the operations of a decoder layer: ``2 s (4 d^2 + 3 d m) + 4 s^2 d``."""
    return 2.0 * tokens * sizes.layer_linear + 4.0 * tokens**2 * sizes.hidden


def layer_train_flops(sizes: Architecture, tokens: int, rank: int) -> float:
    """Return those of a layer's training step.

    Frozen projections are multiplied by twice, forward and for the input's gradient; attention
    has two products forward and four backward; each LoRA matrix three.
    """
    linear = 4.0 * tokens * sizes.layer_linear
    attention = 12.0 * tokens**2 * sizes.hidden
    return linear + attention + 6.0 * tokens * rank * sizes.layer_lora


def pass_cost(
    sizes: Architecture, placement: Placement, kept: int, text_tokens: int, rank: int
) -> PassCost:
    """Return what one sample costs. Encoders are the same for every ``kept`` and not counted.

    Args:
        sizes: The backbone.
        placement: Who owns which layers.
        kept: Visual tokens that are kept.
        text_tokens: Tokens ``T`` of prompt and answer.
        rank: LoRA's rank.
    """
    tokens = kept + text_tokens
    # as many activations cross at each cut, and as many gradients return
    filled = -(-tokens // placement.bucket) * placement.bucket
    width = sizes.hidden
    crossing_width = width if placement.width is None else placement.width
    message = filled * placement.codec.token_bytes(crossing_width)
    projector = 2.0 * kept * (sizes.patch_width * width + width**2)
    head = 2.0 * sizes.vocabulary * width  # of the one position that is read
    layer = layer_flops(sizes, tokens)
    client = placement.layers("client", sizes.layers) * layer + projector
    server = placement.layers("server", sizes.layers) * layer
    trained = sizes.layers * layer_train_flops(sizes, tokens, rank) + projector + 2 * head
    crossing = float(message * len(placement.cuts))
    return PassCost(
        kept=kept,
        tokens=tokens,
        client_flops=client + head * placement.has_head("client"),
        server_flops=server + head * placement.has_head("server"),
        train_flops=trained,
        up=crossing,
        down=crossing,
    )


def activation_bytes(sizes: Architecture, tokens: int, rank: int, dtype: DType) -> float:
    """Return what a decoder layer keeps of one sample for its backward pass.

    Queries, keys, values and the attention's output; the MLP's gate, its activation and the up
    projection; the input of every norm in fp32; the input of every adapter, in fp32 too, which
    in half precision is a copy for each; the adapters' inner values. No ``s^2`` term: fused
    attention recomputes it.
    """
    size, width, inner = DTYPES[dtype].itemsize, sizes.hidden, sizes.intermediate
    own = (4 * width + 3 * inner) * size + 2 * width * _FP32 + 7 * rank * _FP32
    inputs = (2 * width if size == _FP32 else 6 * width) + inner
    return float(tokens * (own + inputs * _FP32))


def memory_bytes(
    sizes: Architecture,
    placement: Placement,
    party: Party,
    *,
    cost: PassCost,
    samples: int,
    rank: int,
    dtype: DType,
    quantization: Quantization,
    optimizer: Algorithm,
) -> dict[str, float]:
    """Return a party's memory in a training step, by what fills it.

    Args:
        sizes: The backbone.
        placement: Who owns which layers.
        party: Whose memory.
        cost: One sample.
        samples: Samples that are computed at a time.
        rank: LoRA's rank.
        dtype: Type of the frozen weights.
        quantization: Format of the decoder's frozen projections.
        optimizer: The algorithm; a paged one may move its moments to the CPU's memory.
    """
    trained = 2 * (_FP32 + _MOMENT_BYTES[optimizer])
    size, layers = DTYPES[dtype].itemsize, placement.layers(party, sizes.layers)
    projection = _QUANTISED_BYTES.get(quantization, size)
    plain = sizes.layer - sizes.layer_linear
    weights = layers * (sizes.layer_linear * projection + plain * size)
    weights += sizes.head * size * placement.has_head(party)
    if party == "client":
        encoders: Sequence[int] = (
            sizes.vision.parameters,
            sizes.text.parameters,
            sizes.sensitivity.parameters,
        )
        weights += (sum(encoders) + sizes.projector + sizes.embeddings) * size
        weights += sum(sizes.predictor.values()) * _FP32
    return {
        "frozen weights": weights,
        "adapters and optimiser": float(sizes.lora(rank, layers) * trained),
        "activations": samples * layers * activation_bytes(sizes, cost.tokens, rank, dtype),
    }

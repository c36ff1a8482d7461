"""`Plan`: parameters, memory, operations, bytes and threat model of one fine-tune."""

import textwrap
from dataclasses import dataclass
from typing import Any

import msgspec

from qpriv.errors import ConfigError
from qpriv.models.llava.loading import DTYPES, DType
from qpriv.models.llava.quantization import Quantization
from qpriv.models.registry import Backbone
from qpriv.paradigms import Paradigm
from qpriv.paradigms.optimizers import Algorithm
from qpriv.pruning.budget import default_k_min, kept_count
from qpriv.split import Defence
from qpriv.split.codecs import native
from qpriv.split.ends import Ends

from .architecture import Architecture, read_architecture
from .cost import Party, PassCost, Placement, memory_bytes, pass_cost
from .threat_model import threat_model

RATIOS = (0.0, 0.25, 0.5, 0.6, 0.75, 1.0)
"""Pruning ratios that are forecast where the policy chooses one for every image."""


@dataclass(frozen=True)
class Plan:
    """The forecast.

    Args:
        backbone: The checkpoints.
        paradigm: Name of the paradigm.
        policy: The pruning policy in words.
        text_tokens: Tokens of prompt and answer that are assumed.
        samples: Samples of an optimiser step of one client.
        at_a_time: Samples that are computed at a time.
        cuts: Decoder layers before which activations leave their owner.
        sizes: The backbone's sizes.
        adapter: Trained parameters of one adapter.
        costs: One sample at several numbers of kept patches.
        memory: Bytes by party and by what fills them, at the most patches.
        round_bytes: Bytes of an adapter that crosses each way in a federated round; 0 elsewhere.
        threats: The threat model in words.
        defence: Name of what the parties do to what crosses, or ``none``.
    """

    backbone: Backbone
    paradigm: str
    policy: str
    text_tokens: int
    samples: int
    at_a_time: int
    cuts: tuple[int, ...]
    sizes: Architecture
    adapter: int
    costs: tuple[PassCost, ...]
    memory: dict[str, dict[str, float]]
    round_bytes: int
    threats: tuple[str, ...]
    defence: str = "none"

    def __str__(self) -> str:
        """Return the plan as text for a terminal."""
        sizes, predictor = self.sizes, sum(self.sizes.predictor.values())
        defended = "" if self.defence == "none" else f", defence {self.defence}"
        lines = [
            f"{self.backbone.llava}, {self.paradigm}, policy {self.policy}{defended}",
            "",
            "parameters",
            f"  frozen     {sizes.frozen:>14,}  of which vision tower {sizes.vision.parameters:,}, "
            f"projector {sizes.projector:,}",
            f"  trained    {self.adapter:>14,}  LoRA on the {sizes.layers} decoder layers",
            f"  predictor  {predictor:>14,}  frozen here; "
            + ", ".join(f"{name} {number:,}" for name, number in sizes.predictor.items()),
            "",
            *self._cost_lines(),
            "",
            f"memory of a training step, {self.at_a_time} samples at a time (an estimate)",
        ]
        for party, parts in self.memory.items():
            shares = ", ".join(f"{name} {_gib(size)}" for name, size in parts.items())
            lines.append(f"  {party}: {_gib(sum(parts.values()))} = {shares}")
        words = [textwrap.fill(each, 96, initial_indent="  - ", subsequent_indent="    ")
                 for each in self.threats]  # fmt: skip
        return "\n".join([*lines, "", "threat model", *words])

    def _cost_lines(self) -> list[str]:
        sizes = self.sizes
        encoders = (sizes.vision, sizes.text, sizes.sensitivity)
        overhead = sum(encoder.flops for encoder in encoders) + sizes.predictor_flops
        crossing = f"cut at {', '.join(map(str, self.cuts))}" if self.cuts else "nothing is cut"
        lines = [
            f"one sample: {sizes.patches} patches, {self.text_tokens} text tokens assumed, {crossing}",
            f"  encoders and predictor, on the client, once an image: {overhead / 1e12:.3f} TFLOP",
            "  kept  tokens  client TFLOP  server TFLOP  train TFLOP  up MiB/step  down MiB/step",
        ]
        lines += [
            f"  {cost.kept:>4}  {cost.tokens:>6}  {cost.client_flops / 1e12:>12.3f}  "
            f"{cost.server_flops / 1e12:>12.3f}  {cost.train_flops / 1e12:>11.3f}  "
            f"{cost.up / 2**20:>11.3f}  {cost.down / 2**20:>13.3f}"
            for cost in self.costs
        ]
        if self.round_bytes:
            each = f"{self.round_bytes / 2**20:,.1f} MiB"
            return [*lines, f"  a federated round: {each} up and {each} down for every client"]
        if not self.cuts or self.paradigm == "centralized":
            return [*lines, "  nothing crosses; the bytes are what would, at the cuts"]
        whole = self.costs[0]
        step = (whole.up + whole.down) * self.samples / 2**20
        return [*lines, f"  a step of {self.samples} samples that keep everything: {step:,.0f} MiB"]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain types, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"


def make_plan(
    backbone: Backbone,
    paradigm: Paradigm,
    *,
    cuts: tuple[int, ...] | None = None,
    ratio: float | None = None,
    k_min: int | None = None,
    policy: str = "",
    rank: int = 32,
    dtype: DType = "float32",
    quantization: Quantization = "none",
    optimizer: Algorithm = "adamw",
    batch_size: int = 128,
    micro_batch_size: int | None = None,
    text_tokens: int = 64,
    defence: Defence | None = None,
) -> Plan:
    """Return the forecast of one fine-tune; no weights are read.

    Args:
        backbone: The checkpoints; their configurations are read.
        paradigm: Who owns what.
        cuts: Where activations are taken to leave where the paradigm cuts nothing.
        ratio: The policy's pruning ratio; None where it chooses one for every image.
        k_min: The policy's safety floor; None scales the source's.
        policy: The policy in words.
        rank: LoRA's rank.
        dtype: Type of the frozen weights.
        quantization: Format of the decoder's frozen projections.
        optimizer: The algorithm that trains the adapters.
        batch_size: Samples of an optimiser step.
        micro_batch_size: Samples that are computed at a time; the whole batch where None.
        text_tokens: Tokens of prompt and answer to reckon with.
        defence: What the parties do to what crosses. Of one that withdraws tokens, the bytes are
            those of all that come to the cut.

    Raises:
        ConfigError: If ratio, floor or cuts cannot be, the paradigm has no place for the defence,
            or the defence cannot work with so few samples at a time.
        ModelError: If a configuration cannot be read.
    """
    sizes = read_architecture(backbone)
    placement = _placement(paradigm, cuts, sizes, dtype, defence)
    paradigm.check_passes(batch_size, micro_batch_size)
    floor = default_k_min(sizes.patches) if k_min is None else k_min
    ratios = RATIOS if ratio is None else (0.0, ratio)
    kept = sorted({kept_count(each, sizes.patches, floor) for each in ratios}, reverse=True)
    costs = tuple(pass_cost(sizes, placement, k, text_tokens, rank) for k in kept)
    at_a_time = min(micro_batch_size or batch_size, batch_size)
    most = costs[0] if ratio is None else costs[-1]
    parties: tuple[Party, ...] = ("client", "server") if placement.served else ("client",)
    adapter = sizes.lora(rank)
    return Plan(
        backbone=backbone,
        paradigm=paradigm.label,
        policy=policy,
        text_tokens=text_tokens,
        samples=batch_size,
        at_a_time=at_a_time,
        cuts=placement.cuts,
        sizes=sizes,
        adapter=adapter,
        costs=costs,
        memory={
            party: memory_bytes(
                sizes,
                placement,
                party,
                cost=most,
                samples=at_a_time,
                rank=rank,
                dtype=dtype,
                quantization=quantization,
                optimizer=optimizer,
            )
            for party in parties
        },
        round_bytes=4 * paradigm.round_numbers(adapter),
        threats=threat_model(paradigm, adapter),
        defence="none" if defence is None else defence.label,
    )


def _placement(
    paradigm: Paradigm,
    cuts: tuple[int, ...] | None,
    sizes: Architecture,
    dtype: DType,
    defence: Defence | None,
) -> Placement:
    """Return who owns which layers; a model that one party owns is whole, its cuts imagined."""
    placed, supposed = paradigm.place(sizes.layers), paradigm.supposed_cuts(sizes.layers)
    if defence is not None:
        paradigm.defend(defence)
    if not placed and supposed:
        placed = cuts or supposed
    if beyond := [cut for cut in placed if not 0 <= cut < sizes.layers]:
        raise ConfigError(
            f"cut {beyond[0]} is beyond the decoder's {sizes.layers} layers",
            where="--model.cuts",
            remedy=f"choose 0 to {sizes.layers - 1}",
        )
    return Placement(
        paradigm.server_layers(sizes.layers),
        paradigm.labels_cross,
        placed,
        paradigm.codec or native(DTYPES[dtype]),
        paradigm.bucket,
        Ends(defence).width(sizes.hidden, "train"),
    )

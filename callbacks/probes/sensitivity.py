"""`SensitivityProbe`: measure how much of the sensitive part crosses after pruning."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from callbacks.probes.media import picture_grid
from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.observation import batches, box_coverage
from qpriv.datasets.sample import VQASample
from qpriv.metrics.means import IMAGE_GROUP, RATE, mean_result
from qpriv.metrics.reconstruction import patch_pixels
from qpriv.metrics.sensitivity import (
    AREA_VISIBLE,
    FACES_TOUCHED,
    MASS,
    SENSITIVE_COVERAGE,
    SER,
    SER_POOLED,
    TOKENS_KEPT,
    TOKENS_TOUCHING,
    SensitivityExclusionRatio,
    crossing_weights,
    is_touched,
    sensitive_mass,
    sensitivity_exclusion_ratio,
    surviving_share,
    visible_area,
)
from qpriv.pruning.decision import KEPT_TOKENS, KEPT_TOKENS_MEAN, PruningDecision
from qpriv.pruning.in_decoder import decision_at
from qpriv.quantity import Quantity
from qpriv.result import Result
from qpriv.split.traffic import EXCHANGED

PICTURES = 8
BATCH = 64


@dataclass
class _Tally:
    """Per-sample values of all batches, ``[n]`` each."""

    ratios: list[Tensor] = field(default_factory=list)
    survivors: list[Tensor] = field(default_factory=list)
    mass: list[Tensor] = field(default_factory=list)
    touching: list[Tensor] = field(default_factory=list)
    area: list[Tensor] = field(default_factory=list)
    faces: list[Tensor] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)
    kept_mean: list[Tensor] = field(default_factory=list)
    sizes: list[Tensor] = field(default_factory=list)
    pooled: SensitivityExclusionRatio = field(
        default_factory=lambda: SensitivityExclusionRatio(pooled=True, across_ranks=False)
    )

    def crossed(self, decision: PruningDecision, truth: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Add the shares of the samples' sensitive parts that cross.

        Args:
            decision: The pruning decision at the cut.
            truth: For each sample, the share of each patch that all sensitive boxes cover,
                ``[N]``, and the share that each box covers, ``[F, N]``; both in [0, 1].
        """
        coverage = torch.stack([whole for whole, _ in truth])
        sensitive = coverage >= SENSITIVE_COVERAGE
        self.survivors.append(surviving_share(sensitive, decision.mask))
        if decision.merged is not None and decision.mixing is None:
            # the policy does not say which patches its merged tokens mix
            missing = torch.full((len(truth),), torch.nan)
            for measure in (self.mass, self.touching, self.area):
                measure.append(missing)
            self.faces += [torch.full((len(boxes),), torch.nan) for _, boxes in truth]
            return
        entering = crossing_weights(decision) > 0
        self.mass.append(sensitive_mass(sensitive, decision))
        self.touching.append(surviving_share(coverage > 0, entering))
        self.area.append(visible_area(coverage, entering))
        self.faces += [is_touched(own, row) for (_, own), row in zip(truth, entering, strict=True)]


@dataclass(eq=False, repr=False, kw_only=True)
class SensitivityProbe(Probe):
    """Measures the pruning policy on the private scenes; it trains no attacker.

    ``sensitivity_exclusion_ratio`` is the per-sample mean (not applicable if nothing is pruned);
    ``sensitivity_exclusion_ratio_pooled`` pools all samples. SER alone does not show how much of
    the truly sensitive part crosses. These shares do: ``sensitive_tokens_kept`` (patches at least
    half inside a sensitive box), ``sensitive_tokens_touching`` (patches that touch a box),
    ``sensitive_area_visible`` (pixels) and ``faces_touched`` (boxes with at least one pixel in a
    patch that crossed). ``kept_tokens`` counts visual tokens. ``activation_bytes_up`` and
    ``activation_bytes_down`` are the bytes of one sample's activations and gradients in training
    that cross, or would cross.

    Args:
        max_samples: Largest number of samples to measure; None for all.
        max_seconds: Not used: a single pass needs no time budget.
        log_private: Write maps of kept tokens into the run folder.
    """

    name: ClassVar[str] = "sensitivity"
    max_samples: int | None = 500

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item: a single pass."""
        return [["pass"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Apply the policy to every sample and measure what crosses."""
        samples = list(visit.data.targets())[: self.max_samples]
        tally, maps = _Tally(), list[Tensor]()
        for part in batches(samples, BATCH):
            maps.append(self._add(part, visit, tally))
        if self.log_private:
            self._save_map(visit, samples[:PICTURES], maps[0][:PICTURES])
        origin = f"{samples[0].dataset}/{samples[0].split}"
        read = visit.victim.channel.label
        return [
            replace(figure, dataset=origin, channel=read if figure.unit == "bytes" else "")
            for figure in _figures(tally, samples)
        ]

    def _add(self, part: Sequence[VQASample], visit: Visit, tally: _Tally) -> Tensor:
        victim, model = visit.victim, visit.victim.model
        batch = model.preprocessor(part).to(model.device)
        features = victim.encode(batch, victim.policy.needs)
        with torch.no_grad():
            whole = victim.policy.decide(features, part)
            inputs = model.prepare(batch, features, whole)
        cut = victim.channel.layers[0]
        decision = decision_at(whole, inputs, cut)
        mask = decision.mask
        missing = torch.full((len(part),), torch.nan)
        tally.ratios.append(
            missing
            if decision.sensitivity is None
            else sensitivity_exclusion_ratio(decision.sensitivity.float().cpu(), mask)
        )
        tally.crossed(decision, [box_coverage(model.preprocessor, sample) for sample in part])
        tally.kept.append(inputs.visual_counts(cut).double())
        tally.kept_mean.append(inputs.mean_visual_counts(model.num_layers))
        tally.pooled.update(decision)
        # activations cross each cut once, and a gradient crosses it once in the other direction
        tally.sizes.append(victim.channel.activation_bytes(model, inputs))
        return mask

    def _save_map(self, visit: Visit, samples: Sequence[VQASample], mask: Tensor) -> None:
        model = visit.victim.model
        pictures = model.preprocessor.crops(model.preprocessor.pixels(samples))
        kept = patch_pixels(mask, model.grid, (pictures.shape[-2], pictures.shape[-1]))
        shown = torch.where(kept[:, None], pictures, 0.75 + 0.1 * pictures)
        self.keep_picture(
            visit,
            "kept-tokens",
            picture_grid([pictures, shown]),
            kind="kept_tokens",
            caption=f"Below, what crosses under policy {visit.victim.policy.label}.",
            alt=f"{len(samples)} scenes, and the same with dropped patches faded",
        )


def _figures(tally: _Tally, samples: Sequence[VQASample]) -> list[Result]:
    groups = [sample.group_id for sample in samples]
    owners = [g for g, faces in zip(groups, tally.faces, strict=True) for _ in faces]
    sizes = torch.cat(tally.sizes).double().cpu()
    return [
        _mean(SER, torch.cat(tally.ratios), groups),
        _mean(TOKENS_KEPT, torch.cat(tally.survivors), groups),
        _mean(TOKENS_TOUCHING, torch.cat(tally.touching), groups),
        _mean(AREA_VISIBLE, torch.cat(tally.area), groups),
        _mean(FACES_TOUCHED, torch.cat(tally.faces), owners),
        _mean(MASS, torch.cat(tally.mass), groups),
        _mean(KEPT_TOKENS, torch.cat(tally.kept), groups),
        _mean(KEPT_TOKENS_MEAN, torch.cat(tally.kept_mean), groups),
        _plain(SER_POOLED, float(tally.pooled.compute()), groups),
        *(_mean(own, sizes, groups) for own in EXCHANGED.values()),
    ]


def _mean(own: Quantity, values: Tensor, groups: Sequence[str]) -> Result:
    bounds = None if own.unit or own is SER else RATE
    return mean_result(
        own.name, values.double().numpy(), {IMAGE_GROUP: groups}, unit=own.unit, bounds=bounds
    )


def _plain(own: Quantity, value: float, groups: Sequence[str]) -> Result:
    if value != value:  # NaN: nothing was pruned, or no sample has a sensitive patch
        return Result(name=own.name, value=None, n=0, unit=own.unit, status="not applicable")
    return Result(name=own.name, value=value, n=len(set(groups)), unit=own.unit)

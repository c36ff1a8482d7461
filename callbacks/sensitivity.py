"""`SensitivityProbe`: at epoch ends, what pruning leaves of the sensitive part, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from callbacks.media import picture_grid
from callbacks.probe import Probe, Visit
from qpriv.attacks.observation import batches
from qpriv.datasets.sample import VQASample
from qpriv.metrics.intervals import mean_interval
from qpriv.metrics.reconstruction import patch_pixels
from qpriv.metrics.sensitivity import (
    SensitivityExclusionRatio,
    sensitive_mass,
    sensitivity_exclusion_ratio,
    surviving_share,
)
from qpriv.pruning.in_decoder import decision_at
from qpriv.result import Result

SENSITIVE_COVERAGE = 0.5
"""A patch is sensitive if at least this share of it lies in a sensitive box."""

PICTURES = 8
BATCH = 64


@dataclass
class _Tally:
    """Per-sample figures of all batches, ``[n]`` each."""

    ratios: list[Tensor] = field(default_factory=list)
    survivors: list[Tensor] = field(default_factory=list)
    mass: list[Tensor] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)
    kept_mean: list[Tensor] = field(default_factory=list)
    sizes: list[Tensor] = field(default_factory=list)
    pooled: SensitivityExclusionRatio = field(
        default_factory=lambda: SensitivityExclusionRatio(pooled=True, across_ranks=False)
    )


@dataclass(eq=False, repr=False, kw_only=True)
class SensitivityProbe(Probe):
    """Measures the pruning policy on the private scenes; no attacker is trained.

    ``sensitivity_exclusion_ratio`` (per-sample mean; not applicable where nothing is pruned) and
    ``sensitivity_exclusion_ratio_pooled``; ``sensitive_tokens_kept``, the share of truly sensitive
    tokens that survive, which is what SER alone does not tell; ``kept_tokens``; ``bytes_up`` and
    ``bytes_down``, a sample's activations and gradients in training, as they cross or would.

    Args:
        max_samples: Samples to measure on.
        max_seconds: Not used: one pass has no budget.
        log_private: Write maps of kept tokens into the run folder.
    """

    name: ClassVar[str] = "sensitivity"
    max_samples: int | None = 500

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return the one pass."""
        return [["pass"]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Decide for every sample, and count what crosses."""
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
        sensitive = sensitive_patches(visit, part)
        tally.survivors.append(surviving_share(sensitive, mask))
        # what a policy merges it may not be able to say
        told = decision.merged is None or decision.mixing is not None
        tally.mass.append(sensitive_mass(sensitive, decision) if told else missing)
        tally.kept.append(inputs.visual_counts(cut).double())
        tally.kept_mean.append(inputs.mean_visual_counts(model.num_layers))
        tally.pooled.update(decision)
        # each cut is crossed once by the activations, and once by a gradient the other way
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


def sensitive_patches(visit: Visit, samples: Sequence[VQASample]) -> Tensor:
    """Return which patches are sensitive in truth, ``[B, N]`` bool; see `SENSITIVE_COVERAGE`."""
    preprocessor = visit.victim.model.preprocessor
    return torch.stack(
        [
            preprocessor.patch_coverage(sample.sensitive_boxes, sample.image.load().size)
            >= SENSITIVE_COVERAGE
            if sample.sensitive_boxes
            else torch.zeros(preprocessor.num_patches, dtype=torch.bool)
            for sample in samples
        ]
    )


def _figures(tally: _Tally, samples: Sequence[VQASample]) -> list[Result]:
    groups = [sample.group_id for sample in samples]
    pooled = float(tally.pooled.compute())
    figures = [
        _mean("sensitivity_exclusion_ratio", torch.cat(tally.ratios), groups),
        _mean("sensitive_tokens_kept", torch.cat(tally.survivors), groups),
        _mean("sensitive_mass", torch.cat(tally.mass), groups),
        _mean("kept_tokens", torch.cat(tally.kept), groups, "tokens"),
        _mean("kept_tokens_mean", torch.cat(tally.kept_mean), groups, "tokens"),
        _plain("sensitivity_exclusion_ratio_pooled", pooled, groups),
    ]
    sizes = torch.cat(tally.sizes).double().cpu()
    return figures + [_mean(name, sizes, groups, "bytes") for name in ("bytes_up", "bytes_down")]


def _mean(name: str, values: Tensor, groups: Sequence[str], unit: str = "") -> Result:
    known = values[~values.isnan()].double()
    if not len(known):
        return _plain(name, float("nan"), groups, unit)
    owners = {g for g, nan in zip(groups, values.isnan().tolist(), strict=True) if not nan}
    interval = mean_interval(values.double().numpy(), groups)
    return Result(name=name, value=float(known.mean()), n=len(owners), unit=unit, ci=interval)


def _plain(name: str, value: float, groups: Sequence[str], unit: str = "") -> Result:
    if value != value:  # NaN: nothing was pruned, or no sample has a sensitive patch
        return Result(name=name, value=None, n=0, unit=unit, status="not applicable")
    return Result(name=name, value=value, n=len(set(groups)), unit=unit)

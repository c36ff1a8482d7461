"""Pruning policies: from what the frozen encoders see to what stays.

A policy is given features and the samples, of which it may use the keys only: never answers,
never boxes. `OraclePruning` alone draws on answers, through a table made beforehand.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError
from qpriv.models.decoder.stages import Stage
from qpriv.models.encoder_record import EncoderRecord
from qpriv.models.features import NOTHING, FeatureSizes, Needs, VisualFeatures

from .budget import default_k_min, kept_count
from .decision import PruningDecision
from .image_ledger import ImageLedger, Wish
from .label import PolicyLabel


class PruningPolicy(nn.Module, ABC):
    """Decides which patches of each sample stay.

    Args:
        k_min: Safety floor in patches; None scales the source's 16 of 576 to the grid.
    """

    needs: Needs = NOTHING
    """What `decide` reads of the features beside what is always there."""

    ledger: ImageLedger | None
    """What has crossed of each image, where a policy must know it."""

    def __init__(self, k_min: int | None = None) -> None:
        super().__init__()
        if k_min is not None and k_min < 0:
            raise ConfigError(f"k_min is {k_min}", remedy="choose 0 or more")
        self.k_min = k_min
        self.ledger = None  # no class attribute: it would hide the module a subclass sets

    @classmethod
    def planned_ratio(cls, **arguments: Any) -> float | None:  # noqa: ANN401 - of any policy
        """Return the share of every image that a policy of these arguments would drop.

        A forecast asks it before anything is loaded, so no policy is made.

        Args:
            arguments: All arguments of the constructor, by name.

        Returns:
            The share, or None where the policy chooses one for each image.
        """
        return None

    @property
    @abstractmethod
    def name(self) -> PolicyLabel:
        """Return the label in parts."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Return where the policy goes on inside the decoder: nowhere, unless it says so."""
        return ()

    @property
    def label(self) -> str:
        """Return the label, such as ``fixed(0.5,fused)``."""
        return str(self.name)

    @abstractmethod
    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return what stays of each sample, without gradients.

        Args:
            features: What the frozen encoders see of the samples.
            samples: The samples; only their keys are read.
        """

    def wishes(self, features: VisualFeatures, samples: Sequence[VQASample]) -> list[Wish]:
        """Return what each sample would let cross, before the `ledger` has its say.

        Processes that train together exchange wishes before any of them decides.
        """
        raise NotImplementedError(f"{self.label} keeps no ledger")

    def counts(self, ratios: Iterable[float], num_patches: int) -> list[int]:
        """Return the kept counts for some ratios, over this policy's floor.

        Raises:
            ConfigError: If ``k_min`` exceeds the number of patches.
        """
        k_min = default_k_min(num_patches) if self.k_min is None else self.k_min
        return [kept_count(ratio, num_patches, k_min) for ratio in ratios]

    def check(self, sizes: FeatureSizes, num_patches: int) -> None:
        """Check, before long work, that the policy fits a model; its patches, see `check_patches`.

        Args:
            sizes: The model's `feature_sizes`.
            num_patches: The model's number of patches.

        Raises:
            ConfigError: If the policy does not fit the number of patches.
            ModelError: If a predictor was trained on another backbone.
        """
        self.check_patches(num_patches)

    def check_patches(self, num_patches: int) -> None:
        """Check, before weights load, that floor and budget fit a number of patches.

        Raises:
            ConfigError: If ``k_min`` exceeds it, or what may cross of an image.
        """
        (least,) = self.counts([1.0], num_patches)
        budget = None if self.ledger is None else self.ledger.budget
        if budget is not None and not least <= budget <= num_patches:
            raise ConfigError(
                f"image_budget is {budget}, of {num_patches} patches at least {least} cross",
                where="--model.policy",
                remedy=f"choose {least} to {num_patches}",
            )

    def check_encoders(self, encoders: EncoderRecord) -> None:
        """Check, before weights load, that the policy fits the encoders of a backbone.

        Raises:
            ModelError: If a predictor was trained on other ones.
        """

    def check_depth(self, num_layers: int) -> None:
        """Check, before weights load, that the policy fits into a decoder of some depth.

        Raises:
            ConfigError: If it does not.
        """

    def check_split(self, cuts: Sequence[int], *, lossy: bool = False) -> None:
        """Check, before weights load, that parties can decide as the policy asks.

        Args:
            cuts: Where the decoder is divided between them.
            lossy: Whether activations change on their way.

        Raises:
            ConfigError: If they cannot.
        """

    def check_parties(self, cuts: Sequence[int]) -> None:
        """Check that the client of a split between processes can run all of the policy.

        Raises:
            ConfigError: If it cannot.
        """

    def _floor_setting(self) -> tuple[str, ...]:
        return () if self.k_min is None else (f"k_min={self.k_min}",)


class NoPruning(PruningPolicy):
    """Keeps every patch: policy ``off``."""

    def __init__(self) -> None:
        super().__init__()

    @classmethod
    def planned_ratio(cls, **arguments: Any) -> float:  # noqa: ANN401 - of any policy
        """Return 0: nothing is dropped."""
        return 0.0

    @property
    def name(self) -> PolicyLabel:
        """Return ``off``."""
        return PolicyLabel("off")

    def decide(self, features: VisualFeatures, samples: Sequence[VQASample]) -> PruningDecision:
        """Return everything."""
        batch, num_patches = features.patches.shape[:2]
        everything = torch.arange(num_patches, device=features.patches.device)
        return PruningDecision(
            (everything,) * batch, num_patches, torch.zeros(batch, dtype=torch.float64)
        )

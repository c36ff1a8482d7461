"""FORA: a passive server trains an inverter of the client on public in-domain pictures.

Xu et al., *A Stealthy Wrongdoer: Feature-Oriented Reconstruction Attack against Split Learning*,
CVPR 2024 (arXiv 2405.04115). The paper's server does not hold the client; it trains a substitute
with similar features and inverts the substitute (``substitute``). The paper's substitute starts
from random weights. Here it is the public base model, which every party of a LoRA fine-tune holds,
followed by an aligner (`alignment`). ``supervised`` is the reference's upper bound: its inverter
trains through the true client, so no passive server can do better with this decoder and these
pictures. ``simulator`` is the substitute of SDAR, which also learns from the server's layers and
labels (`simulator`). Their names in results are ``fora``, ``supervised_inversion`` and ``sdar``.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from qpriv.declaration import Attack, Claimed, Row, answered, aside
from qpriv.errors import ConfigError
from qpriv.models.precision import full_precision

from ..observation import Observation, Scenes
from ..threat import ThreatModel
from ..token_grid import TokenGrid
from . import residual
from .alignment import Alignment, align
from .inverter import Inverter, weighted_error
from .recognition_quantities import FOUND
from .scoring import FACE, FACE_GAIN, QUANTITIES, RECOVERED, WEAKER
from .simulator import TaskLoss

Client = Literal["supervised", "substitute", "simulator"]
"""Through whom the inverter is trained: the true client, a substitute for it, or one that the
server's layers teach."""

STRONG_STEPS = 600
"""With fewer optimiser steps than this a figure is marked as a short attacker's."""

_MEASURES = (
    "PSNR and SSIM overall, in the sensitive box, in kept and in dropped patches; GMSD; "
    "re-identification by what crossed"
)
_FLOORS = (
    "mean image, mean face where the mask says and at its true place, eigenfaces, in-painting, "
    "gallery chance"
)
_BESIDE = (
    f"{_FLOORS}; where supervised inversion is listed too, the share of its gain that is recovered"
)
_KNOWS = "trains under the policy; known or unknown"
_WEAKER = (*aside(QUANTITIES, *WEAKER), *aside(RECOVERED, *WEAKER), *aside(residual.QUANTITIES))

SUPERVISED = Attack(
    name="supervised_inversion",
    title="Image reconstruction (supervised inversion, the upper bound)",
    quantities=(
        *answered(QUANTITIES, "supervised inversion, the upper bound"),
        *residual.QUANTITIES,
    ),
    rows=(
        Row(
            what='supervised inversion, `ForaProbe(client="supervised")`',
            who="server; no",
            holds="in-domain scenes through the true client: the upper bound",
            knows=_KNOWS,
            measures=_MEASURES,
            beside=_FLOORS,
            source="Xu et al., CVPR 2024: the paper's oracle",
        ),
        Row(
            what="residual leak (part of all three)",
            who="server; no",
            holds="the same",
            knows=_KNOWS,
            measures="PSNR in patches that never crossed",
            beside="painting from the kept patches' true colours",
            source="own",
        ),
    ),
    claims=(
        Claimed(
            topic="Face detail without pruning",
            statement="the inverter beats the mean-face floor inside the face box by at least 2 dB.",
            quantity=FACE.name,
            tested="Face PSNR minus the mean-face floor",
            against="baseline",
            above=2.0,
            paired=FACE_GAIN.name,
            strongest=True,
            without="a run without pruning",
        ),
        Claimed(
            topic="Re-identification",
            statement="a reconstructed face is found in the gallery at least ten times as often as "
            "by chance.",
            quantity=FOUND.name,
            tested="Top-1 rate in multiples of chance",
            against="chance",
            above=10.0,
            strongest=True,
        ),
    ),
)
SUBSTITUTE = Attack(
    name="fora",
    title="Image reconstruction (FORA)",
    quantities=answered(_WEAKER, "FORA"),
    rows=(
        Row(
            what="FORA, `ForaProbe()`",
            who="server; no",
            holds="in-domain scenes, the public base model",
            knows=_KNOWS,
            measures=_MEASURES,
            beside=_BESIDE,
            source="Xu et al., CVPR 2024",
        ),
    ),
    bound=SUPERVISED.name,
)
SIMULATOR = Attack(
    name="sdar",
    title="Image reconstruction (SDAR)",
    quantities=answered(_WEAKER, "SDAR"),
    rows=(
        Row(
            what='SDAR\'s simulator, `ForaProbe(client="simulator")`',
            who="split's server; no",
            holds="in-domain scenes with answers, the public base model, its own live layers",
            knows=_KNOWS,
            measures=_MEASURES,
            beside=_BESIDE,
            source="Zhu et al., NDSS 2025, without its critic on pictures",
        ),
    ),
    bound=SUPERVISED.name,
)
ATTACKS = (SUPERVISED, SUBSTITUTE, SIMULATOR)
ATTACK_THROUGH: dict[Client, Attack] = {
    "supervised": SUPERVISED,
    "substitute": SUBSTITUTE,
    "simulator": SIMULATOR,
}
"""What the attack is called whose inverter is trained through that client."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training settings of an inverter.

    Args:
        steps: Optimiser steps.
        batch_size: Pictures per step.
        learning_rate: Peak learning rate of AdamW.
        sensitive_weight: Weight added to errors inside sensitive boxes of the attacker's own
            pictures, whose boxes it knows; errors weigh 1 elsewhere.
        width: Width of the inverter's residual network.
        depth: Number of its transformer layers.

    Raises:
        ConfigError: If a number is out of its range.
    """

    steps: int = STRONG_STEPS
    batch_size: int = 64
    learning_rate: float = 1.5e-3
    sensitive_weight: float = 4.0
    width: int = 128
    depth: int = 2

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("batch_size", "learning_rate", "width", "depth"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", remedy="choose more than 0")
        if self.steps < 0 or self.sensitive_weight < 0:
            raise ConfigError("steps and sensitive_weight cannot be negative")


class FeatureInversion:
    """An inverter of activations: fit it on the attacker's scenes, then invert the victim's.

    ``client`` selects the attack: ``substitute`` is FORA as published, ``simulator`` is SDAR, and
    ``supervised`` is supervised inversion, their upper bound. Fit the inverter under the pruning
    policy that it attacks; another policy would understate the leak. Fitting again continues the
    training (a warm start).

    Args:
        client: Client that produces training activations: ``substitute``, ``simulator`` or
            ``supervised``.
        knows_positions: Whether the attacker knows which patches were kept.
        training: The inverter's training.
        alignment: The substitute's training.
        patch_size: Side of a reconstructed patch in pixels.
        seed: Seed of the inverter's weights and batches.
    """

    def __init__(
        self,
        *,
        client: Client,
        knows_positions: bool = True,
        training: Training | None = None,
        alignment: Alignment | None = None,
        patch_size: int = 8,
        seed: int = 0,
    ) -> None:
        self.client: Client = client
        self.knows_positions, self.training = knows_positions, training or Training()
        self.alignment = alignment or Alignment()
        self.patch_size, self.seed = patch_size, seed
        self.inverter: Inverter | None = None
        self._aligner: nn.Module | None = None
        self.steps_done = 0
        self.stopped_early = False

    @property
    def threat_model(self) -> ThreatModel:
        """Return the attacker's threat model."""
        through = {
            "supervised": "boxes, through the true client",
            "substitute": "boxes, through the public base model",
            "simulator": "boxes and answers, through the public base model",
        }
        layers = "transcript" if self.client != "simulator" else "transcript; the server's layers"
        return ThreatModel(
            auxiliary=f"in-domain scenes and their {through[self.client]}",
            knows_positions=self.knows_positions,
            access=layers,
        )

    @property
    def short(self) -> bool:
        """Return whether the attacker is under-trained, so that its scores are lower bounds."""
        return self.steps_done < STRONG_STEPS

    @full_precision()
    def fit(
        self,
        seen: Observation,
        truth: Scenes,
        *,
        private: Observation | None = None,
        task: TaskLoss | None = None,
        deadline: float = float("inf"),
        watch: Callable[[int, int], None] | None = None,
    ) -> None:
        """Train the inverter on auxiliary scenes.

        Args:
            seen: Activations of the auxiliary scenes, through the client of this attack.
            truth: The auxiliary scenes.
            private: The victim's activations, to which a substitute is aligned.
            task: Loss of the server's layers, for a simulator.
            deadline: `time.monotonic` at which training stops.
            watch: Called after each step with the number of finished steps and the total.

        Raises:
            ValueError: If a substitute has no ``private``, or a simulator no ``task``.
        """
        grid = seen.tokens(knows_positions=self.knows_positions)
        if (self.client == "simulator") != (task is not None):
            raise ValueError("a simulator, and nobody else, learns from the server: see `task`")
        if self.client != "supervised":
            if private is None:
                raise ValueError("a substitute is aligned to what crossed: give `private`")
            grid = self._aligned(
                grid, private.tokens(knows_positions=self.knows_positions), task, deadline
            )
        generator = torch.Generator().manual_seed(self.seed + self.steps_done)
        if self.inverter is None:
            self.inverter = self._new_inverter(grid, seen.grid)
        self.inverter.fit_linear(grid, truth.pictures)  # the client may have moved on
        inverter, training = self.inverter.train(), self.training
        optimizer = AdamW(inverter.parameters(), training.learning_rate, weight_decay=0.01)
        schedule = LambdaLR(optimizer, lambda step: _rise_and_fall(step, training.steps))
        weights = 1 + training.sensitive_weight * truth.sensitive.float()
        for step in range(training.steps):
            if time.monotonic() > deadline:
                self.stopped_early = True
                break
            rows = torch.randint(len(truth), (training.batch_size,), generator=generator)
            loss = weighted_error(inverter(grid[rows]), truth.pictures[rows], weights[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(inverter.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            self.steps_done += 1
            if watch is not None:
                watch(step + 1, training.steps)

    @full_precision()
    @torch.no_grad()
    def invert(self, seen: Observation) -> Tensor:
        """Return a picture for everything that crossed, ``[n, 3, H, W]`` in [0, 1]."""
        return self.paint(seen.tokens(knows_positions=self.knows_positions))

    @full_precision()
    @torch.no_grad()
    def paint(self, grid: TokenGrid) -> Tensor:
        """Return a picture for each of some tokens on the grid, ``[n, 3, H, W]`` in [0, 1]."""
        if self.inverter is None:
            raise RuntimeError("fit the attack before it inverts")
        parts = [self.inverter.eval()(grid[rows]) for rows in _slices(len(grid), 128)]
        return torch.cat(parts).clamp(0, 1)

    @full_precision()
    @torch.no_grad()
    def own(self, grid: TokenGrid, pictures: Tensor) -> TokenGrid:
        """Return tokens of the attacker's own scenes as `paint` takes them.

        Args:
            grid: What crosses for them, through the client of this attack.
            pictures: The scenes; not needed.
        """
        return grid if self._aligner is None else self._moved(grid, self._aligner)

    def crossed(self, grid: TokenGrid) -> TokenGrid:
        """Return the victim's tokens as `paint` takes them."""
        return grid

    def state_dict(self) -> dict[str, Any]:
        """Return the trained attacker, to continue at the next epoch."""
        weights = None if self.inverter is None else self.inverter.state_dict()
        return {"inverter": weights, "steps_done": self.steps_done}

    def load_state_dict(self, state: dict[str, Any], seen: Observation) -> None:
        """Restore a trained attacker for activations of the same shape."""
        self.steps_done = state["steps_done"]
        if state["inverter"] is not None:
            self.inverter = self._build(
                seen.tokens(knows_positions=self.knows_positions), seen.grid
            )
            self.inverter.load_state_dict(state["inverter"])

    def _aligned(
        self, public: TokenGrid, private: TokenGrid, task: TaskLoss | None, deadline: float
    ) -> TokenGrid:
        aligner = align(public, private, self.alignment, self.seed, task=task, deadline=deadline)
        self._aligner = aligner
        return self._moved(public, aligner)

    @torch.no_grad()
    def _moved(self, grid: TokenGrid, aligner: nn.Module) -> TokenGrid:
        tokens = torch.cat([aligner(grid.tokens[rows]) for rows in _slices(len(grid), 256)])
        return TokenGrid(tokens * grid.present.unsqueeze(-1), grid.present)

    def _new_inverter(self, grid: TokenGrid, shape: tuple[int, int]) -> Inverter:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            inverter = self._build(grid, shape)
        inverter.normalise(grid)
        return inverter

    def _build(self, grid: TokenGrid, shape: tuple[int, int]) -> Inverter:
        return Inverter(
            grid.tokens.shape[-1],
            shape,
            self.patch_size,
            width=self.training.width,
            depth=self.training.depth,
        )


class Fora(FeatureInversion):
    """The former name of `FeatureInversion`, whose client is ``supervised`` unless told otherwise.

    .. deprecated:: 0.2
        It is gone in 0.3.
    """

    def __init__(
        self,
        *,
        client: Client = "supervised",
        knows_positions: bool = True,
        training: Training | None = None,
        alignment: Alignment | None = None,
        patch_size: int = 8,
        seed: int = 0,
    ) -> None:
        warnings.warn(
            f"Fora is now FeatureInversion, and this one is FeatureInversion(client={client!r}): "
            f"{ATTACK_THROUGH[client].title}. FORA as published has client='substitute'",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(
            client=client,
            knows_positions=knows_positions,
            training=training,
            alignment=alignment,
            patch_size=patch_size,
            seed=seed,
        )


def _rise_and_fall(step: int, steps: int) -> float:
    """Return the share of the peak learning rate: a short rise, then linear to zero."""
    rise = max(1, steps // 20)
    return min((step + 1) / rise, max(0.0, (steps - step) / max(1, steps - rise)))


def _slices(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]

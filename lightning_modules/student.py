"""`PruningStudent`: distil one small network that makes the pruning decision by itself."""

from copy import deepcopy

import torch
from torch import Tensor

from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures
from qpriv.models.llava.loading import DType
from qpriv.models.llava.preprocessing import DEFAULT_PROMPT
from qpriv.paradigms.recipe import Schedule
from qpriv.pruning.distillation import UtilityTarget, distillation_loss, mask_target
from qpriv.pruning.oracle_table import OracleMode
from qpriv.pruning.predictor import PredictorOutput
from qpriv.pruning.saliency import grounded_utility
from qpriv.pruning.utility import random_scorer

from .distillation_targets import Targets
from .threshold_module import ThresholdModule


class PruningStudent(ThresholdModule):
    """Distils teacher and oracle into the Dynamic Threshold Predictor (source section 8).

    The student starts from the teacher's H_sens and MLP_tau with newly initialised W_q and W_k,
    and trains end to end on ``L_KD = lambda_rho L_rho + lambda_m L_m``.

    Args:
        predictor: Folder of the predictor that the threshold teacher exported.
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        prompt: Template with ``<image>`` and ``{question}``; use that of the VQA model to prune.
        dtype: Dtype of the frozen weights.
        mask_target: Utility from which the soft mask is distilled: ``random`` is the source's
            untrained scorer, ``grounded`` is gradient times input for the gold answer.
        lambda_rho: Weight of the ratio loss.
        lambda_m: Weight of the mask loss.
        oracle_mode: ``min`` follows the source's text; ``max`` takes the largest pruning ratio
            with a correct answer.
        oracle_seed: Seed of the random scorer, in the search and in the ``random`` target.
        k_min: Safety floor of the search in patches; null scales the source's 16 of 576.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls.
        warmup: Share of all steps in which the learning rate rises.
        feature_cache: Folder of features and targets; null keeps targets in the run folder.
        seed: Seed of W_q and W_k; null is the run's ``seed_everything``.

    Raises:
        ConfigError: If the folder of the previous stage is missing.
    """

    def __init__(
        self,
        predictor: str = "runs/latest/threshold_teacher/predictor",
        backbone: str = "tiny",
        prompt: str = DEFAULT_PROMPT,
        dtype: DType = "float32",
        mask_target: UtilityTarget = "grounded",
        lambda_rho: float = 1.0,
        lambda_m: float = 1.0,
        oracle_mode: OracleMode = "min",
        oracle_seed: int = 0,
        k_min: int | None = None,
        learning_rate: float = 3e-4,
        weight_decay: float = 0.01,
        schedule: Schedule = "cosine",
        warmup: float = 0.0,
        feature_cache: str | None = "runs/.features",
        seed: int | None = None,
    ) -> None:
        super().__init__(
            predictor,
            "threshold teacher",
            backbone,
            prompt,
            dtype,
            oracle_mode,
            oracle_seed,
            k_min,
            learning_rate,
            weight_decay,
            schedule,
            warmup,
            feature_cache,
            seed,
        )
        self.save_hyperparameters()
        self.mask_target: UtilityTarget = mask_target
        self.lambda_rho, self.lambda_m = lambda_rho, lambda_m

    def choose_trained(self) -> None:
        """Copy the predictor as frozen teacher, reinitialise W_q and W_k, and train all parts."""
        self.teacher = deepcopy(self.predictor).requires_grad_(False)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            for projection in (
                self.predictor.utility_scorer.query,
                self.predictor.utility_scorer.key,
            ):
                projection.reset_parameters()
        self.predictor.requires_grad_(True)

    def targets(self) -> list[Targets]:
        """Return the oracle's ratios and, if ``mask_target`` needs it, the grounded utility."""
        targets = super().targets()
        if self.mask_target == "grounded":
            self.grounded = Targets(
                self.target_folder("grounded"),
                lambda batch: grounded_utility(self.model, batch, self.encode(batch)),
            )
            return [*targets, self.grounded]
        self.scorer = random_scorer(self.model.feature_sizes, self._oracle_seed).to(self.device)
        return targets

    def loss(
        self, batch: VQABatch, features: VisualFeatures, output: PredictorOutput, oracle: Tensor
    ) -> dict[str, Tensor]:
        """Return ``L_KD`` and its parts."""
        with torch.no_grad():
            teacher = self.teacher(features)
            target = mask_target(
                self._utility(batch, features),
                teacher.sensitivity,
                self.predictor.config.alpha,
                self.predictor.config.beta,
                self.predictor.config.gamma,
            )
        parts = distillation_loss(
            output,
            teacher_ratio=teacher.ratio,
            oracle_ratio=oracle,
            mask=target,
            lambda_rho=self.lambda_rho,
            lambda_m=self.lambda_m,
        )
        return {"loss": parts.total, "ratio_loss": parts.ratio, "mask_loss": parts.mask}

    def _utility(self, batch: VQABatch, features: VisualFeatures) -> Tensor:
        if self.mask_target == "grounded":
            return self.grounded(batch)
        utility: Tensor = self.scorer(features.patches.float(), features.question.float())
        return utility

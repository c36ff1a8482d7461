"""`ThresholdTeacher`: learn how much of an image can be pruned for a question."""

from torch import Tensor

from qpriv.models.batch import VQABatch
from qpriv.models.features import VisualFeatures
from qpriv.models.llava.loading import DType
from qpriv.models.llava.preprocessing import DEFAULT_PROMPT
from qpriv.paradigms.recipe import Schedule
from qpriv.pruning.distillation import known_error
from qpriv.pruning.oracle_table import OracleMode
from qpriv.pruning.predictor import PredictorOutput

from .threshold_module import ThresholdModule


class ThresholdTeacher(ThresholdModule):
    """Regresses the oracle's ratios with MLP_tau, with H_sens frozen (source section 8).

    The oracle search over training and validation samples runs before the first epoch and shows
    its progress. Its ratios are cached for later runs on the same samples, and written to
    ``oracle.json`` in the run folder.

    Args:
        predictor: Folder of the predictor that the sensitivity teacher exported.
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        prompt: Template with ``<image>`` and ``{question}``; use that of the VQA model to prune.
        dtype: Dtype of the frozen weights.
        oracle_mode: ``min`` follows the source's text; ``max`` takes the largest pruning ratio
            with a correct answer.
        oracle_seed: Seed of the search's random scorer.
        k_min: Safety floor of the search in patches; null scales the source's 16 of 576.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls.
        warmup: Share of all steps in which the learning rate rises.
        feature_cache: Folder of features and ratios; null keeps ratios in the run folder.
        seed: Seed of the run; null is ``seed_everything``.

    Raises:
        ConfigError: If the folder of the previous stage is missing.
    """

    def __init__(
        self,
        predictor: str = "runs/latest/sensitivity_teacher/predictor",
        backbone: str = "tiny",
        prompt: str = DEFAULT_PROMPT,
        dtype: DType = "float32",
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
            "sensitivity teacher",
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

    def choose_trained(self) -> None:
        """Train only MLP_tau."""
        self.predictor.requires_grad_(False)
        self.predictor.ratio_predictor.requires_grad_(True)

    def loss(
        self, batch: VQABatch, features: VisualFeatures, output: PredictorOutput, oracle: Tensor
    ) -> dict[str, Tensor]:
        """Return the mean squared error to the oracle's ratios."""
        return {"loss": known_error(output.ratio, oracle)}

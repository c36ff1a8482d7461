"""`ThresholdModule`: the base class of the threshold teacher and the student."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from qpriv.errors import ConfigError
from qpriv.models.batch import VQABatch
from qpriv.models.cache import FeatureCache
from qpriv.models.features import VisualFeatures
from qpriv.models.fingerprint import fingerprint
from qpriv.models.llava.loading import DTYPES, DType
from qpriv.models.llava.preprocessing import Preprocessor
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.precision import computed_in, new_tensors
from qpriv.models.registry import resolve_backbone
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.recipe import Schedule
from qpriv.pruning.budget import default_k_min
from qpriv.pruning.oracle import GRID, OracleSearch
from qpriv.pruning.oracle_table import OracleMode, OracleTable
from qpriv.pruning.predictor import PredictorOutput
from qpriv.result import Result

from .backbone_dims import read_shape
from .base import base_fingerprint, gather
from .distillation_targets import Targets, offer, prepare
from .precision import check_precision
from .predictor import PredictorModule, agreement, load_predictor


@dataclass(frozen=True)
class Guess:
    """The predicted ratio and the oracle's ratio of one sample, in [0, 1]."""

    key: str
    group: str
    predicted: float
    oracle: float


class ThresholdModule(PredictorModule):
    """Fits a predictor to the oracle search, which runs before the first epoch.

    Args:
        predictor: Folder of the predictor that the previous stage exported.
        stage: Name of that stage, for the error message if the folder is missing.
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        prompt: Template with ``<image>`` and ``{question}``; use that of the VQA model to prune.
        dtype: Dtype of the frozen weights.
        oracle_mode: ``min`` follows the source's text; ``max`` takes the largest pruning ratio
            with a correct answer.
        oracle_seed: Seed of the search's random scorer.
        k_min: Safety floor of the search in patches; None scales the source's 16 of 576.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls.
        warmup: Share of all steps in which the learning rate rises.
        feature_cache: Folder of features and targets; None keeps targets in the run folder.
        seed: Seed of the module's random numbers; None is the run's ``seed_everything``.

    Raises:
        ConfigError: If the folder is missing, or ``k_min`` exceeds the number of patches.
    """

    def __init__(
        self,
        predictor: str,
        stage: str,
        backbone: str,
        prompt: str,
        dtype: DType,
        oracle_mode: OracleMode,
        oracle_seed: int,
        k_min: int | None,
        learning_rate: float,
        weight_decay: float,
        schedule: Schedule,
        warmup: float,
        feature_cache: str | None,
        seed: int | None,
    ) -> None:
        super().__init__(learning_rate, weight_decay, schedule, warmup, seed)
        if not Path(predictor).is_dir():
            raise ConfigError(
                f"there is no folder {predictor}",
                remedy=f"run the {stage} stage first, or name the folder it exported",
            )
        shape = read_shape(backbone)
        if k_min is not None and not 0 <= k_min <= shape.patches:
            raise ConfigError(
                f"k_min is {k_min} with {shape.patches} patches",
                remedy=f"choose 0 to {shape.patches}",
            )
        self._source, self._backbone, self._prompt = predictor, backbone, prompt
        self._weights_in: DType = dtype
        self._mode: OracleMode = oracle_mode
        self._oracle_seed = oracle_seed
        self._k_min = default_k_min(shape.patches) if k_min is None else k_min
        self._feature_cache = feature_cache
        self._guesses: list[Guess] = []
        self._searched: frozenset[str] = frozenset()

    def setup(self, stage: str) -> None:
        """Check the trainer's precision before weights load.

        Raises:
            ConfigError: If the precision contradicts ``dtype``.
        """
        check_precision(self.trainer, DTYPES[self._weights_in])

    @new_tensors(torch.float32)
    def configure_model(self) -> None:
        """Load the frozen model and the predictor, once."""
        if hasattr(self, "model"):
            return
        self.predictor = load_predictor(self._source, resolve_backbone(self._backbone))
        model = VisionLanguageModel.from_pretrained(
            self._backbone, prompt=self._prompt, dtype=self._weights_in
        )
        self.choose_trained()
        self._frozen = {
            "backbone": base_fingerprint(model),
            "predictor of the stage before": fingerprint((self.predictor,), ()),
        }
        self.model = model
        cache = self._feature_cache
        self.encode: Encode = FeatureCache(model, Path(cache)) if cache else model.encode

    @abstractmethod
    def choose_trained(self) -> None:
        """Set which parts of the loaded predictor are trained."""

    @abstractmethod
    def loss(
        self, batch: VQABatch, features: VisualFeatures, output: PredictorOutput, oracle: Tensor
    ) -> dict[str, Tensor]:
        """Return ``loss`` and its parts by name."""

    @property
    def preprocessor(self) -> Preprocessor:
        """Return the preprocessor that turns samples into batches."""
        return self.model.preprocessor

    def target_folder(self, settings: str) -> Path:
        """Return the folder of targets for this model, its precision and the given settings."""
        root = self._feature_cache or self.run_folder / ".targets"
        mark = computed_in(next(self.model.lm_head.parameters()), DTYPES[self._weights_in])
        return Path(root) / self._frozen["backbone"] / f"{settings}{mark}"

    def targets(self) -> list[Targets]:
        """Return the targets to compute before the first epoch."""
        search = OracleSearch(
            self.model, self._mode, GRID, self._k_min, self._oracle_seed, encode=self.encode
        )
        settings = f"oracle-{self._mode}-{self._k_min}-{self._oracle_seed}"
        self.oracle = Targets(
            self.target_folder(settings),
            # in float64, so that the table holds 0.3 and not its nearest float32
            lambda batch: torch.tensor(search.search_batch(batch), dtype=torch.float64),
        )
        return [self.oracle]

    def on_fit_start(self) -> None:
        """Compute the targets, and write the oracle's table to the run folder.

        The oracle tries every ratio on a sample. A data module may therefore offer fewer samples
        to it (`VQAMixture.oracle_samples`); the ratios of all other samples are unknown (NaN).
        """
        with self.trainer.precision_plugin.forward_context():
            self._make_targets()

    def _make_targets(self) -> None:
        offered = offer(self.trainer, "samples")
        searched = offer(self.trainer, "oracle_samples") or offered
        oracle, *others = self.targets()
        prepare([oracle], searched, self.preprocessor, self.trainer, "oracle search")
        if others:
            prepare(others, offered, self.preprocessor, self.trainer, "targets")
        self._searched = frozenset(sample.key for sample in searched)
        if self.trainer.is_global_zero:
            ratios: dict[str, float] = {}
            for start in range(0, len(searched), 64):
                part = searched[start : start + 64]
                found = self.oracle(self.preprocessor(part)).tolist()
                ratios.update(zip((sample.key for sample in part), found, strict=True))
            table = OracleTable(ratios, self._mode, GRID, self._k_min, self._oracle_seed)
            table.save(self.run_folder / "oracle.json")

    def oracle_ratios(self, batch: VQABatch) -> Tensor:
        """Return the oracle's ratio of each sample, ``[B]``; NaN for samples not searched."""
        rows = [row for row, s in enumerate(batch.samples) if s.key in self._searched]
        if len(rows) == len(batch):
            return self.oracle(batch)
        ratios = torch.full((len(batch),), torch.nan, dtype=torch.float64, device=self.device)
        if rows:
            ratios[rows] = self.oracle(batch[torch.tensor(rows)])
        return ratios

    def training_step(self, batch: VQABatch) -> Tensor:
        """Return the loss of a batch."""
        features = self.encode(batch)
        output = self.predictor(features)
        losses = self.loss(batch, features, output, self.oracle_ratios(batch).to(output.ratio))
        for name, value in losses.items():
            self.log(f"train/{name}", value, prog_bar=name == "loss", batch_size=len(batch))
        return losses["loss"]

    def validation_step(self, batch: VQABatch) -> None:
        """Compare predicted and oracle ratios, and log the losses."""
        features = self.encode(batch)
        output = self.predictor(features)
        oracle = self.oracle_ratios(batch).to(output.ratio)
        for name, value in self.loss(batch, features, output, oracle).items():
            self.log(
                f"val/{name}",
                value,
                on_epoch=True,
                sync_dist=True,
                prog_bar=name == "loss",
                batch_size=len(batch),
            )
        rows = zip(batch.samples, output.ratio.tolist(), oracle.tolist(), strict=True)
        self._guesses += [
            Guess(sample.key, f"{sample.dataset}/{sample.group_id}", predicted, truth)
            for sample, predicted, truth in rows
            if not math.isnan(truth)
        ]

    def on_validation_epoch_end(self) -> None:
        """Log how well the predictor matches the oracle on held-out samples."""
        rows = list({row.key: row for row in gather(self._guesses)}.values())
        self._guesses = []
        figures = agreement([row.predicted for row in rows], [row.oracle for row in rows])
        figures["mean"] = sum(row.predicted for row in rows) / len(rows)
        self.record(
            [
                Result(
                    name=f"val/ratio_{name}",
                    value=value,
                    n=len({row.group for row in rows}),
                    seed=self.seed,
                    epoch=self.epoch,
                    measured_by=type(self).__name__,
                    dataset=rows[0].key.rsplit("/", 1)[0],
                    status="ok" if value is not None else "not applicable",
                    note="predicted against oracle ratio on held-out samples",
                )
                for name, value in figures.items()
            ]
        )

    def frozen_identity(self) -> Mapping[str, str]:
        """Return digests of the backbone and of the initial predictor."""
        return self._frozen

"""`VQAModule`: LoRA fine-tuning of a LLaVA for VQA, under a pruning policy."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.datasets.sample import AnswerRule
from qpriv.models.batch import VQABatch
from qpriv.models.cache import FeatureCache
from qpriv.models.loading import DType, Quantization
from qpriv.models.preprocessing import DEFAULT_PROMPT, Preprocessor
from qpriv.models.vision_language import VisionLanguageModel
from qpriv.paradigms import centralized
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.recipe import LoraRecipe, Schedule
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.result import append_results

from .answers import Answered, answer_batch, distinct, figures, write_predictions
from .base import TrainedOnly, base_fingerprint, gather
from .structure import check_cuts, check_policy, read_shape


class VQAModule(TrainedOnly):
    """LLaVA with LoRA on the decoder, fine-tuned and evaluated under one pruning policy.

    Implements `qpriv.attacks.victim.Victim`. Batches come from ``preprocessor``; the frozen
    encoders are asked once for every image (``feature_cache``); one step is
    `qpriv.paradigms.centralized.step`, the same that trains shadow models.

    Args:
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        text_encoder: CLIP for the question, by hub id or folder; null is the backbone's.
        sensitivity_encoder: timm ViT for the sensitivity branch; null is the backbone's.
        prompt: Template with ``<image>`` and ``{question}``.
        dtype: Type of the frozen weights.
        quantization: bitsandbytes format of the decoder's frozen projections.
        policy: What is kept of the image; null keeps everything.
        cuts: Decoder layers before which activations leave their owner; null is the middle.
        rank: Rank of the LoRA matrices.
        alpha: LoRA's scale; the update is ``alpha / rank * B A``.
        dropout: Dropout in front of A.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of all steps in which it rises.
        clip: Largest gradient norm.
        micro_batch_size: Samples of one pass; the gradient is that of the whole batch.
        max_new_tokens: Longest answer in evaluation.
        answer_rule: How an answer is scored; null is the rule of the data set.
        feature_cache: Folder of the frozen encoders' features; null recomputes them.
        seed: Seed of the adapter; null is the run's ``seed_everything``.

    Raises:
        ConfigError: If a number is out of its range, or a cut is beyond the decoder's depth.
        ModelError: If there is no such backbone.
    """

    monitor: ClassVar[str] = "val/accuracy"
    monitor_mode: ClassVar[Literal["min", "max"]] = "max"

    def __init__(
        self,
        backbone: str = "tiny",
        text_encoder: str | None = None,
        sensitivity_encoder: str | None = None,
        prompt: str = DEFAULT_PROMPT,
        dtype: DType = "float32",
        quantization: Quantization = "none",
        policy: PruningPolicy | None = None,
        cuts: tuple[int, ...] | None = None,
        rank: int = 32,
        alpha: float = 64.0,
        dropout: float = 0.0,
        learning_rate: float = 3e-4,
        weight_decay: float = 0.01,
        schedule: Schedule = "cosine",
        warmup: float = 0.03,
        clip: float = 1.0,
        micro_batch_size: int | None = None,
        max_new_tokens: int = 10,
        answer_rule: AnswerRule | None = None,
        feature_cache: str | None = "runs/.features",
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.save_hyperparameters(ignore=["policy"])
        # one optimiser step a batch; the step itself splits it into micro-batches
        self.automatic_optimization = False
        self._recipe = LoraRecipe(
            rank=rank,
            alpha=alpha,
            dropout=dropout,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            schedule=schedule,
            warmup=warmup,
            clip=clip,
            micro_batch_size=micro_batch_size,
        )
        self._load = partial(
            VisionLanguageModel.from_pretrained,
            backbone,
            text_encoder,
            sensitivity_encoder,
            prompt,
            dtype,
            quantization,
        )
        self._feature_cache = feature_cache
        self._rule = answer_rule
        self._max_new_tokens = max_new_tokens
        shape = read_shape(backbone)
        self.policy: PruningPolicy = policy or NoPruning()
        check_policy(self.policy, shape)
        self.cuts: tuple[int, ...] = check_cuts(cuts, shape)
        self._answered: list[Answered] = []

    def configure_model(self) -> None:
        """Load the model and add the adapter, once."""
        if hasattr(self, "model"):
            return
        self.model = self._load(device=str(self.device))
        # before the adapter renames the layers
        self._frozen = base_fingerprint(self.model)
        recipe, cache = self._recipe, self._feature_cache
        self.model.add_lora(recipe.rank, recipe.alpha, recipe.dropout, self.seed)
        self._encode: Encode = FeatureCache(self.model, Path(cache)) if cache else self.model.encode

    @property
    def preprocessor(self) -> Preprocessor:
        """Return what turns samples into batches."""
        return self.model.preprocessor

    @property
    def encode(self) -> Encode:
        """Return the frozen encoders, cached."""
        return self._encode

    @property
    def recipe(self) -> LoraRecipe:
        """Return the recipe, with the epochs and the batch size of the trainer's run."""
        batch_size = self._of_data("batch_size", self._recipe.batch_size)
        return replace(
            self._recipe,
            batch_size=batch_size * self.trainer.world_size,
            epochs=max(1, self.trainer.max_epochs or 1),
        )

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW over the adapter, and the schedule."""
        optimizer = self._recipe.optimizer(self.model.parameters())
        return self.scheduled(self._recipe.schedule, self._recipe.warmup, optimizer)

    def on_train_start(self) -> None:
        """Train the decoder's adapters; the encoders stay in evaluation mode."""
        # trainers keep the modes a model comes with, and ours comes evaluating
        self.model.train()

    def training_step(self, batch: VQABatch) -> None:
        """Take one optimiser step."""
        report = centralized.step(
            self.model,
            batch,
            self.policy,
            self.encode,
            self._recipe,
            cast(Optimizer, self.optimizers()),
            cast(LRScheduler, self.lr_schedulers()),
            backward=self.manual_backward,
        )
        self.log("train/loss", report.loss, prog_bar=True, batch_size=len(batch))
        self.log("train/kept_tokens", report.kept / report.samples, batch_size=len(batch))

    def validation_step(self, batch: VQABatch) -> None:
        """Answer and score a batch."""
        self._answered += self.answered(batch)

    def test_step(self, batch: VQABatch) -> None:
        """Answer and score a batch."""
        self._answered += self.answered(batch)

    def predict_step(self, batch: VQABatch) -> list[Answered]:
        """Answer a batch; scores are there where gold answers are."""
        rows = self.answered(batch)
        self._answered += rows
        return rows

    def on_validation_epoch_end(self) -> None:
        """Log the figures of the validation split."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log the figures of the test split."""
        self._report("test")

    def on_predict_epoch_end(self) -> None:
        """Write ``predictions.jsonl`` into the run folder."""
        rows = self._collect()
        if self.trainer.is_global_zero:
            write_predictions(self.run_folder / "predictions.jsonl", rows)

    def answered(self, batch: VQABatch) -> list[Answered]:
        """Return what the model says to a batch under the policy."""
        features = self.encode(batch)
        decision = self.policy.decide(features, batch.samples)
        rule: AnswerRule = self._rule or self._of_data("answer_rule", "exact")
        return answer_batch(self.model, batch, features, decision, rule, self._max_new_tokens)

    def frozen_identity(self) -> Mapping[str, str]:
        """Return a digest of the weights the adapter sits on."""
        return {"backbone": self._frozen}

    def export(self, folder: Path) -> None:
        """Write the adapter as a PEFT folder, ``adapter``."""
        self.model.llava.save_pretrained(folder / "adapter")

    def _of_data(self, name: str, default: Any) -> Any:  # noqa: ANN401 - several settings
        """Return a setting of the trainer's DataModule, if it has one."""
        return getattr(getattr(self.trainer, "datamodule", None), name, default)

    def _collect(self) -> list[Answered]:
        rows, self._answered = distinct(gather(self._answered)), []
        return rows

    def _report(self, stage: str) -> None:
        rows = self._collect()
        if self.trainer.sanity_checking:
            return
        epoch = self.trainer.current_epoch
        results = [
            replace(result, seed=self.seed, epoch=epoch, policy=self.policy.label)
            for result in figures(rows, stage)
        ]
        for result in results:
            if result.value is not None:
                name = f"{stage}/{result.name.removeprefix(f'{stage}/')}"
                self.log(name, result.value, prog_bar=name == self.monitor, batch_size=1)
        if self.trainer.is_global_zero:
            append_results(self.run_folder / "results.jsonl", results)

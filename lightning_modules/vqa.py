"""`VQAModule`: LoRA fine-tuning of a LLaVA for VQA, under a pruning policy."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.datasets.sample import AnswerRule
from qpriv.datasets.sampler import ResumableLoader
from qpriv.datasets.submission import has_server, write_submission
from qpriv.errors import CheckpointError
from qpriv.models.batch import VQABatch
from qpriv.models.cache import FeatureCache
from qpriv.models.loading import DType
from qpriv.models.preprocessing import DEFAULT_PROMPT, Preprocessor
from qpriv.models.quantization import Quantization
from qpriv.models.vision_language import VisionLanguageModel
from qpriv.paradigms import Centralized, Paradigm
from qpriv.paradigms import Run as FineTune
from qpriv.paradigms.adapter import export_adapters, loading_lines
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.optimizers import Algorithm, check_device
from qpriv.paradigms.recipe import LoraRecipe, Schedule
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.result import CLOCK_FILE, Result, append_results

from .answers import Answered, answer_batch, distinct, figures, write_predictions
from .base import TrainedOnly, base_fingerprint, gather, members
from .clock import StepClock
from .structure import check_policy, choose_cuts, read_shape
from .traffic import crossing_results, traffic_results

_PARADIGM = "qpriv_paradigm"

logger = logging.getLogger(__name__)


class VQAModule(TrainedOnly):
    """LLaVA with LoRA on the decoder, fine-tuned and evaluated under one pruning policy.

    Implements `qpriv.attacks.victim.Victim`. Batches come from ``preprocessor``; the frozen
    encoders are asked once for every image (``feature_cache``); the ``paradigm`` says who owns
    which layers and data, and takes the steps.

    Args:
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        text_encoder: CLIP for the question, by hub id or folder; null is the backbone's.
        sensitivity_encoder: timm ViT for the sensitivity branch; null is the backbone's.
        prompt: Template with ``<image>`` and ``{question}``.
        dtype: Type of the frozen weights.
        quantization: bitsandbytes format of the decoder's frozen projections; the vision tower
            and the projector stay whole.
        policy: What is kept of the image; null keeps everything.
        paradigm: Who owns which layers and data; null is one trainer that owns all.
        cuts: Decoder layers before which activations are taken to leave their owner, where the
            paradigm has no cuts of its own; null is the middle.
        rank: Rank of the LoRA matrices.
        alpha: LoRA's scale; the update is ``alpha / rank * B A``.
        dropout: Dropout in front of A.
        optimizer: AdamW, with moments of 32 or of 8 bits; paged ones need a GPU.
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
        paradigm: Paradigm | None = None,
        cuts: tuple[int, ...] | None = None,
        rank: int = 32,
        alpha: float = 64.0,
        dropout: float = 0.0,
        optimizer: Algorithm = "adamw",
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
        self.save_hyperparameters(ignore=["policy", "paradigm"])
        # the paradigm says who steps when; a step splits its batch into micro-batches
        self.automatic_optimization = False
        self._recipe = LoraRecipe(
            rank=rank,
            alpha=alpha,
            dropout=dropout,
            algorithm=optimizer,
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
        self._dtype: DType = dtype
        self._quantization: Quantization = quantization
        shape = read_shape(backbone)
        self.policy: PruningPolicy = policy or NoPruning()
        check_policy(self.policy, shape)
        self.paradigm: Paradigm = paradigm or Centralized()
        self.cuts: tuple[int, ...] = choose_cuts(self.paradigm, cuts, shape)
        self._answered: list[Answered] = []
        self._clock = StepClock()

    def setup(self, stage: str) -> None:
        """Deal the training set to the clients, before weights load.

        Raises:
            ConfigError: If the paradigm cannot use so many processes, or so little data, or the
                optimiser cannot work on this device.
        """
        check_device(self._recipe.algorithm, self.trainer.strategy.root_device)
        self.paradigm.check_processes(self.trainer.world_size)
        if stage == "fit" and self.paradigm.num_clients > 1:
            self.paradigm.share_out(members(self.trainer), self.seed)

    def configure_model(self) -> None:
        """Load the model and add the adapters, once."""
        if hasattr(self, "model"):
            return
        # quantised weights are made where they stay: the trainer moves the module only later
        place = self.trainer.strategy.root_device if self._trainer else self.device
        self.model = self._load(device=str(place))
        # before the adapter renames the layers
        self._frozen = base_fingerprint(self.model)
        cache = self._feature_cache
        self.paradigm.add_adapters(self.model, self._recipe, self.seed)
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
    def answer_rule(self) -> AnswerRule:
        """Return how answers are judged: as set, or by the rule of the data set."""
        rule: AnswerRule = self._rule or self._of_data("answer_rule", "exact")
        return rule

    @property
    def recipe(self) -> LoraRecipe:
        """Return the recipe, with the epochs and the batch size of the trainer's run."""
        batch_size = self._of_data("batch_size", self._recipe.batch_size)
        return replace(
            self._recipe,
            batch_size=batch_size * self.data_replicas,
            epochs=max(1, self.trainer.max_epochs or 1),
        )

    @property
    def data_replicas(self) -> int:
        """Return among how many processes the training data are dealt."""
        return 1 if self.paradigm.clients_on_ranks else self.trainer.world_size

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return the paradigm's optimiser, and the schedule."""
        optimizer = self.paradigm.optimizer(self.model, self._recipe)
        return self.scheduled(self._recipe.schedule, self._recipe.warmup, optimizer)

    def on_train_start(self) -> None:
        """Train the decoder's adapters; the encoders stay in evaluation mode."""
        # trainers keep the modes a model comes with, and ours comes evaluating
        self.model.train()

    def training_step(self, batch: VQABatch, batch_idx: int) -> None:
        """Let the parties learn from one batch."""
        if missing := self.paradigm.missing:
            loader = cast(ResumableLoader[Any], self.trainer.train_dataloader)
            drawn = loader.batches(batch_idx - missing, batch_idx)
            self.paradigm.resume([part.to(self.device) for part in drawn])
        report = self.paradigm.step(
            FineTune(
                self.model,
                self.policy,
                self.encode,
                self._recipe,
                self.seed,
                self.manual_backward,
            ),
            batch,
            cast(Optimizer, self.optimizers()),
            cast(LRScheduler, self.lr_schedulers()),
            last=self.trainer.is_last_batch,
        )
        if report is None:
            return
        self.log("train/loss", report.loss, prog_bar=True, batch_size=report.samples)
        self.log("train/kept_tokens", report.kept / report.samples, batch_size=report.samples)
        for name, value in self.paradigm.figures.items():
            self.log(f"train/{name}", value, batch_size=report.samples)

    def on_train_batch_start(self, batch: VQABatch, batch_idx: int) -> None:
        """Start the clock of a step."""
        self._clock.start()

    def on_train_batch_end(self, outputs: object, batch: VQABatch, batch_idx: int) -> None:
        """Stop it."""
        self._clock.stop()

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
        """Write ``predictions.jsonl``, and the test server's ``submission.json`` where there is one."""
        rows = self._collect()
        if self.trainer.is_global_zero:
            write_predictions(self.run_folder / "predictions.jsonl", rows)
            self._write_submission({row.key: row.prediction for row in rows})

    def answered(self, batch: VQABatch) -> list[Answered]:
        """Return what the model says to a batch under the policy.

        Where clients have adapters of their own, each answers about the images it holds.
        """
        rule = self.answer_rule
        rows: list[Answered] = []
        for client, part in self.paradigm.parts(batch):
            features = self.encode(part)
            decision = self.policy.decide(features, part.samples)
            with self.paradigm.answering(self.model, client):
                rows += answer_batch(
                    self.model, part, features, decision, rule, self._max_new_tokens, client
                )
        return rows

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what was trained, and where the parties stand."""
        super().on_save_checkpoint(checkpoint)
        checkpoint[_PARADIGM] = {"label": self.paradigm.label, **self.paradigm.state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint that belongs to something else.

        Raises:
            CheckpointError: If base model, paradigm, or a name or shape differ.
        """
        state = checkpoint.get(_PARADIGM, {})
        if state.get("label") != self.paradigm.label:
            raise CheckpointError(
                f"it was trained as {state.get('label')}, this is {self.paradigm.label}",
                where="--ckpt_path",
                remedy="give the paradigm it was trained with",
            )
        super().on_load_checkpoint(checkpoint)
        self.paradigm.load_state(state)

    def frozen_identity(self) -> Mapping[str, str]:
        """Return a digest of the weights the adapter sits on."""
        format_ = "" if self._quantization == "none" else f" in {self._quantization}"
        return {"backbone": self._frozen + format_}

    def export(self, folder: Path) -> None:
        """Write the adapter as a PEFT folder, ``adapter``; those of parties in a folder each."""
        export_adapters(self.model, self.paradigm.adapters(), folder / "adapter")

    def how_to_load(self, folder: Path) -> str:
        """Return what to type to use the adapter without this package."""
        # a server and the first of its clients, or the one adapter there is
        adapters, base = self.paradigm.adapters(), self.model.backbone.llava
        lines = loading_lines(
            base, adapters[:2], folder / "adapter", self._dtype, self._quantization
        )
        others = len(adapters) - 2
        also = f" (client0's; {others} more lie beside it)" if others > 0 else ""
        return "\n".join(
            [f"the adapter loads without qpriv{also}:", *(f"  {line}" for line in lines)]
        )

    def _write_submission(self, answers: Mapping[str, str]) -> None:
        """Write the file of VQAv2's, OK-VQA's and GQA's servers, which must hold every question."""
        read = self._of_data("samples", None)
        samples = read("test") if read else []
        if not samples or not all(has_server(sample.dataset) for sample in samples):
            return
        if not self._of_data("is_whole", None)("test"):
            logger.warning("no submission.json: a cap or missing images left questions out")
        elif missing := sum(sample.key not in answers for sample in samples):
            logger.warning("no submission.json: %d questions were not answered", missing)
        else:
            write_submission(self.run_folder / "submission.json", samples, answers)

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
        rule, prompt = self.answer_rule, self.preprocessor.prompt
        results = self._stamped([*figures(rows, stage, rule, prompt), *self._bytes(rows)])
        for result in results:
            if result.value is not None:
                name = f"{stage}/{result.name.removeprefix(f'{stage}/')}"
                self.log(name, result.value, prog_bar=name == self.monitor, batch_size=1)
        if self.trainer.is_global_zero:
            append_results(self.run_folder / "results.jsonl", results)
            # apart: a run that was stopped and went on has the same results, and other times
            append_results(self.run_folder / CLOCK_FILE, self._stamped(self._clock.results()))
            score = results[0]
            logger.info(
                "%s/accuracy_%s %s over %d images, asked by the prompt %r",
                stage, rule, score.value, score.n, prompt,
            )  # fmt: skip

    def _stamped(self, results: Iterable[Result]) -> list[Result]:
        """Say of results under what they were measured."""
        return [
            replace(
                result,
                seed=self.seed,
                epoch=self.trainer.current_epoch,
                policy=self.policy.label,
                paradigm=self.paradigm.label,
            )
            for result in results
        ]

    def _bytes(self, rows: list[Answered]) -> list[Result]:
        """Return what crossed since the last report, or would cross at the cuts."""
        if isinstance(self.paradigm, Centralized):
            dtype = next(self.model.lm_head.parameters()).dtype
            return crossing_results(rows, self.cuts, self.model.hidden_size, dtype)
        return traffic_results(self.paradigm.take_traffic())

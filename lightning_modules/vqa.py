"""`VQAModule`: fine-tune a LLaVA with LoRA for VQA, under a pruning policy."""

from collections.abc import Mapping, Sized
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from qpriv.datasets.sample import AnswerRule
from qpriv.datasets.sampler import ResumableLoader
from qpriv.defences import Defence, NoDefence
from qpriv.errors import CheckpointError
from qpriv.models.batch import VQABatch
from qpriv.models.cache import FeatureCache
from qpriv.models.encoder_record import is_local
from qpriv.models.llava.loading import DTYPES, DType
from qpriv.models.llava.preprocessing import DEFAULT_PROMPT
from qpriv.models.llava.quantization import Quantization
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.precision import new_tensors
from qpriv.models.registry import resolve_backbone
from qpriv.paradigms import Centralized, Paradigm
from qpriv.paradigms import Run as FineTune
from qpriv.paradigms.adapter import export_adapters, loading_lines
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.optimizers import Algorithm, check_device
from qpriv.paradigms.recipe import LoraRecipe, Schedule
from qpriv.pruning.policy import NoPruning, PruningPolicy
from qpriv.split import Channel

from .backbone_dims import (
    check_encoders,
    check_needs,
    check_policy,
    check_split,
    choose_cuts,
    read_shape,
)
from .base import base_fingerprint, members
from .evaluation import EvaluatedVQA
from .precision import TrainerScaling, check_precision, weights_under
from .sharding import check_shards, divide

_PARADIGM = "qpriv_paradigm"
_PLANNED = "qpriv_planned_passes"
_LEDGER = "qpriv_image_ledger"


class VQAModule(EvaluatedVQA):
    """LLaVA with LoRA on the decoder, fine-tuned and evaluated under one pruning policy.

    Implements `qpriv.attacks.victim.Victim`. The ``preprocessor`` makes batches. The frozen
    encoders process every image once (``feature_cache``). The ``paradigm`` defines who owns which
    layers and data, and takes the optimiser steps.

    Args:
        backbone: ``tiny``, a LLaVA's hub id or folder, or a folder with llava, clip and dino.
        text_encoder: CLIP for the question, by hub id or folder; null is the backbone's.
        sensitivity_encoder: timm ViT for the sensitivity branch; null is the backbone's.
        prompt: Template with ``<image>`` and ``{question}``.
        dtype: Dtype in which the frozen weights are loaded. A ``true`` precision of the trainer
            converts them, so it requires float32 or its own dtype.
        quantization: bitsandbytes format of the decoder's frozen projections; the vision tower
            and the projector are not quantised.
        shard: Shard the decoder's frozen weights over the processes of ``ddp``. Each process
            keeps whole adapters. A single process keeps the whole decoder.
        policy: Pruning policy; null keeps all visual tokens.
        paradigm: Who owns which layers and data; null is one trainer that owns all.
        defence: Defence that the parties apply to what crosses between them; null is none.
        cuts: Decoder layers before which activations would leave their owner, for a paradigm
            without its own cuts; null is the middle of the decoder.
        rank: Rank of the LoRA matrices.
        alpha: LoRA's scale; the update is ``alpha / rank * B A``.
        dropout: Dropout before A.
        optimizer: AdamW, with moments in 32 or 8 bits; paged variants need a GPU.
        learning_rate: Peak learning rate of AdamW.
        weight_decay: Decoupled weight decay.
        schedule: How the learning rate falls after the warm-up.
        warmup: Share of all steps in which the learning rate rises.
        clip: Largest gradient norm.
        micro_batch_size: Samples per forward and backward pass; gradients accumulate over the
            whole batch.
        max_new_tokens: Longest answer in evaluation, in tokens.
        answer_rule: Rule that scores an answer; null is the rule of the data set.
        feature_cache: Folder of the frozen encoders' features; null recomputes them.
        seed: Seed of the adapter; null is the run's ``seed_everything``.

    Raises:
        ConfigError: If a number is out of range, or a cut is beyond the decoder's depth.
        ModelError: If there is no such backbone.
    """

    def __init__(
        self,
        backbone: str = "tiny",
        text_encoder: str | None = None,
        sensitivity_encoder: str | None = None,
        prompt: str = DEFAULT_PROMPT,
        dtype: DType = "float32",
        quantization: Quantization = "none",
        shard: bool = False,
        policy: PruningPolicy | None = None,
        paradigm: Paradigm | None = None,
        defence: Defence | None = None,
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
        super().__init__(answer_rule, max_new_tokens, seed)
        self.save_hyperparameters(ignore=["policy", "paradigm", "defence"])
        # the paradigm takes the optimiser steps, and splits a batch into micro-batches
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
        self._weights_in: DType = dtype
        self._quantization: Quantization = quantization
        self._shard = shard
        self._passes: float | None = None
        shape = read_shape(backbone)
        self.policy: PruningPolicy = policy or NoPruning()
        check_policy(self.policy, shape)
        check_needs(self.policy, backbone, text_encoder)
        names = resolve_backbone(backbone, text_encoder, sensitivity_encoder)
        self._check_encoders = partial(check_encoders, self.policy, names, shape)
        if is_local(names):
            self._check_encoders()
        self.paradigm: Paradigm = paradigm or Centralized()
        self.cuts: tuple[int, ...] = choose_cuts(self.paradigm, cuts, shape)
        if defence is not None and not isinstance(defence, NoDefence):
            self.paradigm.defend(defence)
        self.guards = self.paradigm.guards
        self.channel: Channel = self.paradigm.channel(self.cuts)
        check_split(self.policy, self.channel, DTYPES[dtype])

    def setup(self, stage: str) -> None:
        """Deal the training set to the clients, before weights load.

        Raises:
            ConfigError: If the paradigm cannot use this number of processes or so few samples,
                the optimiser does not support this device, the precision contradicts ``dtype``,
                or the decoder cannot be sharded.
        """
        loaded = DTYPES[self._weights_in]
        check_precision(self.trainer, loaded)
        check_split(self.policy, self.channel, weights_under(self.trainer, loaded))
        check_device(self._recipe.algorithm, self.trainer.strategy.root_device)
        self.paradigm.check_processes(self.trainer.world_size)
        if self.is_sharded:
            check_shards(self.paradigm, self.policy, self._quantization)
        if stage == "fit":
            batch_size = self._of_data("batch_size", self._recipe.batch_size)
            self.paradigm.check_passes(batch_size, self._recipe.micro_batch_size)
        if stage == "fit" and self.paradigm.num_clients > 1:
            self.paradigm.share_out(members(self.trainer), self.seed)

    @new_tensors(torch.float32)
    def configure_model(self) -> None:
        """Load the model and add the adapters, once."""
        if hasattr(self, "model"):
            return
        # the files of a hub id may be downloaded only now
        self._check_encoders()
        # load quantised weights on their final device; the trainer moves the module only later
        place = self.trainer.strategy.root_device if self._trainer else self.device
        self.model = self._load(device=str(place))
        # before the adapter renames the layers
        self._frozen = base_fingerprint(self.model)
        cache = self._feature_cache
        self.paradigm.add_adapters(self.model, self._recipe, self.seed)
        if self.is_sharded:
            divide(self, self.model)
        self._encode: Encode = FeatureCache(self.model, Path(cache)) if cache else self.model.encode

    @property
    def is_sharded(self) -> bool:
        """Return whether the decoder is sharded, so that no process has a whole model."""
        return self._shard and self._trainer is not None and self.trainer.world_size > 1

    @property
    def encode(self) -> Encode:
        """Return the frozen encoders, cached."""
        return self._encode

    @property
    def recipe(self) -> LoraRecipe:
        """Return the recipe with the batch size and the planned passes of the fit."""
        batch_size = self._of_data("batch_size", self._recipe.batch_size)
        planned = max(1, self.trainer.max_epochs or 1) if self._passes is None else self._passes
        return replace(
            self._recipe,
            batch_size=batch_size * self.data_replicas,
            epochs=planned,
        )

    @property
    def learning_rate(self) -> float:
        """Return the peak learning rate; `Tuner.lr_find` sets it."""
        return self._recipe.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._recipe = replace(self._recipe, learning_rate=value)

    @property
    def data_replicas(self) -> int:
        """Return the number of processes that share out the training data."""
        return 1 if self.paradigm.clients_on_ranks else self.trainer.world_size

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return the paradigm's optimiser, and the schedule."""
        optimizer = self.paradigm.optimizer(self.model, self._recipe)
        scheduled = self.scheduled(self._recipe.schedule, self._recipe.warmup, optimizer)
        self.trainer.fit_loop.setup_data()  # no effect if done; endless fits have not done it yet
        with suppress(TypeError):  # a loader may have no length
            self._passes = self.planned_steps / len(cast(Sized, self.trainer.train_dataloader))
        return scheduled

    def on_train_start(self) -> None:
        """Train the decoder's adapters; the encoders stay in evaluation mode."""
        # the trainer keeps a model's mode, and ours starts in evaluation mode
        self.model.train()

    def training_step(self, batch: VQABatch, batch_idx: int) -> Tensor | None:
        """Let the parties train on one batch; return its loss, or None if this party lacks it."""
        if missing := self.paradigm.untrained_batches():
            loader = cast(ResumableLoader[Any], self.trainer.train_dataloader)
            drawn = loader.batches(batch_idx - missing, batch_idx)
            self.paradigm.resume([part.to(self.device) for part in drawn])
        self.agree([batch], shared=self.data_replicas > 1)
        report = self.paradigm.step(
            FineTune(
                self.model,
                self.policy,
                self.encode,
                self._recipe,
                self.seed,
                TrainerScaling(self),
                self.cuts[0],
            ),
            batch,
            cast(Optimizer, self.optimizers()),
            cast(LRScheduler, self.lr_schedulers()),
            last=self.trainer.is_last_batch,
        )
        if report is None:
            return None
        self.log("train/loss", report.loss, prog_bar=True, batch_size=report.samples)
        self.log("train/kept_tokens", report.kept / report.samples, batch_size=report.samples)
        for name, value in self.paradigm.metrics.items():
            self.log(f"train/{name}", value, batch_size=report.samples)
        return torch.tensor(report.loss)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the trained weights, the parties' states and the policy's ledger."""
        super().on_save_checkpoint(checkpoint)
        checkpoint[_PLANNED] = self._passes
        if self.policy.ledger is not None:
            checkpoint[_LEDGER] = self.policy.ledger.get_extra_state()
        named = {"label": self.paradigm.name, "defence": self.channel.defence_label}
        checkpoint[_PARADIGM] = {**named, **self.paradigm.state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that a checkpoint belongs to this module, and restore its state.

        Raises:
            CheckpointError: If the base model, the paradigm, or the name or shape of a weight
                differs. In a fit also if the defence differs, or the checkpoint lacks the ledger
                that the policy needs.
        """
        state = checkpoint.get(_PARADIGM, {})
        if state.get("label") != self.paradigm.name:
            raise CheckpointError(
                f"it was trained as {state.get('label')}, this is {self.paradigm.name}",
                where="--ckpt_path",
                remedy="give the paradigm it was trained with",
            )
        trained, own = state.get("defence", "none"), self.channel.defence_label
        fits = self._trainer is not None and self.trainer.state.fn == "fit"
        if fits and trained != own:
            raise CheckpointError(
                f"it was trained with the defence {trained}, this is {own}",
                where="--ckpt_path",
                remedy="go on with the defence it was trained with",
            )
        if self.policy.ledger is not None:
            if fits and _LEDGER not in checkpoint:
                raise CheckpointError(
                    f"it does not say what has crossed, which {self.policy.label} must know",
                    where="--ckpt_path",
                    remedy="go on with the policy it was trained with",
                )
            self.policy.ledger.set_extra_state(checkpoint.get(_LEDGER, {}))
        super().on_load_checkpoint(checkpoint)
        self._passes = checkpoint.get(_PLANNED)
        self.paradigm.load_state(state)

    def frozen_identity(self) -> Mapping[str, str]:
        """Return a digest of the frozen weights that the adapter belongs to."""
        format_ = "" if self._quantization == "none" else f" in {self._quantization}"
        return {"backbone": self._frozen + format_}

    def export(self, folder: Path) -> None:
        """Write the adapter into the PEFT folder ``adapter``, with a subfolder for each party.

        The trained weights of a defence are written beside it, to ``defence.safetensors``.
        """
        export_adapters(self.model, self.paradigm.adapters(), folder / "adapter")
        self.guards.export(folder / "defence.safetensors")

    def how_to_load(self, folder: Path) -> str:
        """Return Python code that loads the adapter without this package."""
        # the server and its first client, or the only adapter
        adapters, base = self.paradigm.adapters(), self.model.backbone.llava
        lines = loading_lines(
            base, adapters[:2], folder / "adapter", self._type_name(), self._quantization
        )
        others = len(adapters) - 2
        also = f" (client0's; {others} more lie beside it)" if others > 0 else ""
        return "\n".join(
            [f"the adapter loads without qpriv{also}:", *(f"  {line}" for line in lines)]
        )

    def _type_name(self) -> str:
        """Return the dtype of the frozen weights in training."""
        loaded = DTYPES[self._weights_in]
        return str(weights_under(self.trainer, loaded)).removeprefix("torch.")

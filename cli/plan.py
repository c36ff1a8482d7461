"""``qpriv plan``: what a configuration will take and give away, before anything is loaded."""

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import lightning as L
from jsonargparse import Namespace
from jsonargparse.typing import PositiveInt
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

# the imports let a configuration name these classes without their modules
import callbacks  # noqa: F401
import datamodules  # noqa: F401
import lightning_modules
import qpriv.pruning.baselines  # noqa: F401
from qpriv.defences import Defence, NoDefence
from qpriv.errors import ConfigError
from qpriv.models.registry import resolve_backbone
from qpriv.paradigms import Centralized, Paradigm
from qpriv.planning import Plan, make_plan
from qpriv.pruning.policy import NoPruning, PruningPolicy

from .console import quiet
from .parser import reading
from .run_folder import RunOptions
from .train import check_yaml, shipped


class _Parsed(LightningCLI):
    """Reads a configuration as ``fit`` does, and makes nothing of it."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add the plan's own options; those of a run are accepted, and mean nothing here."""
        parser.add_argument(
            "--text_tokens", type=PositiveInt, default=64, help="tokens of prompt and answer"
        )
        parser.add_argument("--json", action="store_true", help="print the plan as JSON")
        parser.add_class_arguments(RunOptions, "run")
        parser.add_argument("--ckpt_path", type=str | None, default=None)

    def instantiate_classes(self) -> None:
        """Load nothing."""


def run(words: Sequence[str]) -> None:
    """Print the plan of a configuration.

    Args:
        words: ``plan`` and its arguments, those of ``fit`` among them.
    """
    quiet()
    args = [shipped(word) for word in words[1:]]
    check_yaml(args)
    config = parse(args)
    plan = planned(config)
    print(json.dumps(plan.as_dict()) if config.json else plan)


def parse(args: Sequence[str]) -> Namespace:
    """Return a configuration, checked by the types of its classes and with all defaults."""
    parsed = _Parsed(
        L.LightningModule,
        L.LightningDataModule,
        run=False,
        save_config_callback=None,
        args=list(args),
        **reading(),
    )
    config: Namespace = parsed.config
    return config


def planned(config: Namespace) -> Plan:
    """Return the plan of a configuration.

    Raises:
        ConfigError: If it is not that of a VQA model, or a setting cannot be.
    """
    kind = _class(config.model.class_path)
    if not issubclass(kind, lightning_modules.VQAModule):
        raise ConfigError(
            f"a plan of {kind.__name__}", where="--model", remedy="give a VQAModule's configuration"
        )
    model, policy = config.model.init_args, config.model.init_args.policy
    settings = _settings(policy)
    pruning: type[PruningPolicy] = _class(policy.class_path) if policy else NoPruning
    ratio = pruning.planned_ratio(**settings)
    label = pruning.__name__
    return make_plan(
        resolve_backbone(model.backbone, model.text_encoder, model.sensitivity_encoder),
        _paradigm(model.paradigm),
        cuts=model.cuts,
        ratio=ratio,
        k_min=settings.get("k_min"),
        policy=f"{label} at ratio {ratio:g}" if ratio else label,
        rank=model.rank,
        dtype=model.dtype,
        quantization=model.quantization,
        optimizer=model.optimizer,
        batch_size=config.data.init_args.batch_size,
        micro_batch_size=model.micro_batch_size,
        text_tokens=int(config.text_tokens),  # a subclass of int, which JSON does not know
        defence=_defence(model.defence),
    )


def _paradigm(given: Namespace | None) -> Paradigm:
    if given is None:
        return Centralized()
    made: Paradigm = _made(given)
    return made


def _defence(given: Namespace | None) -> Defence | None:
    made: Defence | None = None if given is None else _made(given)
    return None if isinstance(made, NoDefence) else made


def _made(given: Namespace) -> Any:  # noqa: ANN401
    return _class(given.class_path)(**_settings(given))


def _settings(given: Namespace | None) -> Mapping[str, Any]:
    """Return the arguments of a configured class; one without any has no ``init_args``."""
    arguments = given.get("init_args") if given else None
    return vars(arguments) if arguments else {}


def _class(path: str) -> Any:  # noqa: ANN401
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)

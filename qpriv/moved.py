"""Modules under the names they had in 0.1: importing one warns, and gives the module of today.

An alias is the module itself, so that classes are the same whichever name they came by. The names
of 0.1 go with 0.3.
"""

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def _into(package: str, subpackage: str, names: str) -> dict[str, str]:
    return {f"{package}.{name}": f"{package}.{subpackage}.{name}" for name in names.split()}


MOVED = {
    "qpriv.writing": "qpriv.io",
    "qpriv.boundary": "qpriv.split",
    "qpriv.boundary.parties": "qpriv.split.layers",
    "qpriv.transport.link": "qpriv.transport.connection",
    "qpriv.transport.packet": "qpriv.transport.message",
    "qpriv.transport.grpc_link": "qpriv.transport.grpc_connection",
    "qpriv.paradigms.remote": "qpriv.remote",
    "qpriv.paradigms.flower": "qpriv.remote.flower",
    "qpriv.paradigms.turns": "qpriv.paradigms.split_base",
    "qpriv.paradigms.exchange": "qpriv.paradigms.split_server",
    "qpriv.paradigms.paradigm": "qpriv.paradigms.base",
    "qpriv.pruning.ranked": "qpriv.pruning.learned",
    "qpriv.pruning.controls": "qpriv.pruning.baselines",
    "qpriv.pruning.threshold": "qpriv.pruning.predictor",
    "qpriv.metrics.normalisation": "qpriv.datasets.normalisation",
    **_into(
        "qpriv.attacks",
        "reconstruction",
        "alignment fora fsha fsha_networks hijacking inverter simulator detector residual",
    ),
    "qpriv.attacks.gradient_candidates": "qpriv.attacks.gradients.candidates",
    "qpriv.attacks.gradient_cuts": "qpriv.attacks.gradients.cuts",
    "qpriv.attacks.gradient_inversion": "qpriv.attacks.gradients.inversion",
    "qpriv.attacks.gradient_report": "qpriv.attacks.gradients.report",
    "qpriv.attacks.gradient_sources": "qpriv.attacks.gradients.sources",
    "qpriv.attacks.gradient_updates": "qpriv.attacks.gradients.updates",
    **_into("qpriv.attacks", "gradients", "label_recovery span_test"),
    **_into("qpriv.attacks", "membership", "blind fused_lora lira rmia shadows"),
    "qpriv.attacks.document_membership": "qpriv.attacks.extraction.document_membership",
    "qpriv.attacks.extraction_contexts": "qpriv.attacks.extraction.contexts",
    "qpriv.attacks.candidate_ranking": "qpriv.attacks.extraction.candidate_ranking",
    "qpriv.attacks.document_halves": "qpriv.attacks.extraction.halves",
    "qpriv.attacks.document_memory": "qpriv.attacks.extraction.memory",
    "qpriv.attacks.document_outcome": "qpriv.attacks.extraction.outcome",
    "qpriv.attacks.document_run": "qpriv.attacks.extraction.document_run",
    "qpriv.models.adapted_llava": "qpriv.models.llava.adapted",
    "qpriv.models.encoding_llava": "qpriv.models.llava.encoding",
    **_into(
        "qpriv.models",
        "llava",
        "vision_language loading lora merging quantization preprocessing tower clip_projections "
        "encoders decoder_hooks deciding prepared forward_pass",
    ),
    **_into(
        "qpriv.models",
        "decoder",
        "sequences token_path stages layer_inputs",
    ),
    "qpriv.models.tiny_recipe": "qpriv.pretraining",
    "qpriv.models.documents.tiny_recipe": "qpriv.pretraining.reader_stage",
    **_into(
        "callbacks",
        "probes",
        "probe attributes extraction fora fsha gradients irrelevant_questions membership "
        "sensitivity side_channel isolation media",
    ),
    **_into(
        "callbacks",
        "runtime",
        "checkpoint_io export inventory live_report run_checkpoint step_seed timed_checkpoint",
    ),
    "lightning_modules.ratio": "lightning_modules.threshold_module",
    "lightning_modules.targets": "lightning_modules.distillation_targets",
    "lightning_modules.structure": "lightning_modules.backbone_dims",
}
"""Names of 0.1 by the names of today; what lay inside a package that moved has moved with it."""


def today(name: str) -> str | None:
    """Return the name that a module has today, or None if it never moved.

    >>> today("qpriv.boundary.channel"), today("qpriv.errors")
    ('qpriv.split.channel', None)
    """
    package, rest = name, ""
    while package:
        if package in MOVED:
            return MOVED[package] + rest
        package, _, last = package.rpartition(".")
        rest = f".{last}{rest}"
    return None


class _Finder(MetaPathFinder, Loader):
    """Finds a module by its name of 0.1; asked before all others, which would load it twice."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if today(name) is None else ModuleSpec(name, self)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        now = today(name)
        assert now is not None
        warnings.warn(f"{name} is {now} now", DeprecationWarning, stacklevel=2)
        # the import system takes the module from here
        sys.modules[name] = import_module(now)


def install() -> None:
    """Let imports know the names of 0.1."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

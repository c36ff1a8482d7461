"""Every module under every precision of a trainer; what a precision must not change, does not."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from math import inf, isfinite
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from callbacks import ForaProbe, MembershipProbe
from callbacks.probes.precision import precision_of
from callbacks.runtime.step_seed import StepSeed
from datamodules import FaceBags
from datamodules.fake_documents import FakeDocuments
from lightning_modules import PruningStudent, SensitivityTeacher, ThresholdTeacher, VQAModule
from lightning_modules.document_vqa import DocumentVQAModule
from qpriv.errors import ConfigError
from qpriv.models.cache import FeatureCache
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.precision import autocast_dtype
from qpriv.paradigms import Centralized, Federated, Paradigm, SplitLearning, UShapedSplit
from qpriv.paradigms.centralized import fine_tune
from qpriv.paradigms.scaling import CAUTIOUS, START
from qpriv.pruning.baselines import RandomPruning
from qpriv.pruning.predictor import DynamicThresholdPredictor, PredictorConfig
from qpriv.result import read_results
from tests.callbacks.victims import TinyData
from tests.callbacks.victims import TinyVictim as Foreign
from tests.tiny_data import Noise
from tests.tiny_models import random_backbone, random_model, random_samples

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "64-true")
PARADIGMS: dict[str, Callable[[], Paradigm]] = {
    "centralized": Centralized,
    "federated": lambda: Federated(num_clients=2, local_steps=1),
    "split": lambda: SplitLearning(num_clients=2),
    "u_shaped": UShapedSplit,
}
MODULES = (*PARADIGMS, "sensitivity", "threshold", "student", "document")
FAST = {
    *product(("centralized", "student"), ("16-mixed", "64-true")),
    *product(("sensitivity", "split"), ("64-true",)),
    ("document", "bf16-true"),
    ("federated", "16-mixed"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a predictor, and one feature cache for all precisions."""
    root: Path = tmp_path_factory.mktemp("precision")
    config = PredictorConfig.scaled(random_model().feature_sizes)
    DynamicThresholdPredictor(config).save_pretrained(root / "predictor")
    return root


def vqa(folder: Path, **settings: Any) -> VQAModule:
    values = {"rank": 4, "alpha": 8.0, "learning_rate": 1e-2, "seed": 3}
    cache = str(folder / "features")
    return VQAModule(str(random_backbone()), feature_cache=cache, **values | settings)


def module(name: str, folder: Path) -> L.LightningModule:
    if name in PARADIGMS:
        return vqa(folder, paradigm=PARADIGMS[name](), policy=RandomPruning(0.5))
    if name == "document":
        return DocumentVQAModule(seed=3)
    common = {"backbone": str(random_backbone()), "feature_cache": str(folder / "features")}
    if name == "sensitivity":
        return SensitivityTeacher(**common, seed=3)
    kind = {"threshold": ThresholdTeacher, "student": PruningStudent}[name]
    return kind(str(folder / "predictor"), **common, seed=3)


def data(name: str) -> L.LightningDataModule:
    if name == "sensitivity":
        return FaceBags(num_train=16, num_eval=8, batch_size=8)
    if name == "document":
        return FakeDocuments(num_base=4, num_canaries={1: 2}, num_eval=2, batch_size=4)
    return Noise(seed=3)


def trainer(
    precision: str,
    folder: Path,
    *callbacks: L.Callback,
    scale: float = CAUTIOUS,
    **settings: Any,
) -> L.Trainer:
    """Return a trainer; on CPUs the trainer itself takes bfloat16 for ``16-mixed``."""
    how: dict[str, Any] = {"precision": precision}
    if precision == "16-mixed":
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        how = {"plugins": [MixedPrecision("16-mixed", "cpu", scaler=scaler)]}
    values = {"max_epochs": 1, "limit_train_batches": 2, "limit_val_batches": 1}
    return L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        callbacks=[StepSeed(3), *callbacks],
        **how,
        **values | settings,
    )


@contextmanager
def norms_of_steps() -> Iterator[list[float]]:
    """Yield the norm of the gradients that each step of an optimiser really takes."""
    norms: list[float] = []

    def note(optimizer: Optimizer, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        squares = [float(g.double().square().sum()) for g in gradients if g is not None]
        norms.extend([sum(squares) ** 0.5] if squares else [])

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield norms
    finally:
        handle.remove()


CASES = [
    pytest.param(*case, marks=[] if case in FAST else [pytest.mark.slow])
    for case in product(MODULES, PRECISIONS)
]


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_a_module_takes_steps(name: str, precision: str, folder: Path, tmp_path: Path) -> None:
    fitted, run = module(name, folder), trainer(precision, tmp_path)
    with norms_of_steps() as norms:
        run.fit(fitted, datamodule=data(name))
    assert run.global_step >= 2 and norms
    assert all(isfinite(norm) and norm > 0 for norm in norms)
    assert isfinite(run.callback_metrics["train/loss"])
    assert isfinite(run.callback_metrics["val/loss"])
    kept = {"bf16-true": torch.bfloat16, "64-true": torch.float64}.get(precision, torch.float32)
    assert {value.dtype for value in fitted.trained().values()} == {kept}
    assert all(bool(value.isfinite().all()) for value in fitted.trained().values())


@pytest.fixture(scope="module")
def whole_norms() -> dict[str, list[float]]:
    """The norms of single precision, by paradigm, taken when they are first needed."""
    return {}


def norms(name: str, precision: str, clip: float, folder: Path, factory: Any) -> list[float]:
    clipped = vqa(folder, paradigm=PARADIGMS[name](), clip=clip, learning_rate=1e-6)
    with norms_of_steps() as seen:
        few = {"limit_train_batches": 1, "limit_val_batches": 0}
        trainer(precision, factory.mktemp("run"), **few).fit(clipped, datamodule=Noise(seed=3))
    return seen


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        pytest.param(*case, marks=[] if case == ("centralized", "16-mixed") else [pytest.mark.slow])
        for case in product(PARADIGMS, ("16-mixed", "bf16-true"))
    ],
)
def test_gradients_are_clipped_by_the_norm_that_single_precision_has(
    name: str,
    precision: str,
    folder: Path,
    whole_norms: dict[str, list[float]],
    tmp_path_factory,
) -> None:
    if name not in whole_norms:
        whole_norms[name] = norms(name, "32-true", inf, folder, tmp_path_factory)
    free = norms(name, precision, inf, folder, tmp_path_factory)
    assert free == pytest.approx(whole_norms[name], rel=0.05)
    clip = min(free) / 3
    held = norms(name, precision, clip, folder, tmp_path_factory)
    assert held == pytest.approx([clip] * len(free), rel=0.01)


SOME = [p if p.startswith("bf16") else pytest.param(p, marks=pytest.mark.slow) for p in PRECISIONS]


@pytest.mark.parametrize("precision", SOME)
def test_a_shadow_model_is_trained_in_the_precision_of_its_victim(
    precision: str, folder: Path, tmp_path: Path
) -> None:
    victim, members = vqa(folder), Noise(seed=3)
    whole = {"limit_train_batches": None, "limit_val_batches": 0}
    run = trainer(precision, tmp_path, scale=START, **whole)
    run.fit(victim, datamodule=members)
    own = {name: value.clone() for name, value in victim.model.adapter_state().items()}
    with precision_of(victim):
        shadow = fine_tune(
            victim.model, members.members(), victim.policy, victim.recipe, 3, encode=victim.encode
        )
    assert own.keys() == shadow.keys()
    assert all(torch.equal(own[name], shadow[name]) for name in own)


@pytest.mark.parametrize(
    "precision", ["bf16-mixed", *(pytest.param(p, marks=pytest.mark.slow) for p in PRECISIONS[2:])]
)
def test_probes_run_in_it(precision: str, folder: Path, tmp_path: Path) -> None:
    common = {"max_samples": 6, "on_error": "stop"}
    probes = (
        MembershipProbe(shadows=2, **common),
        ForaProbe(client="supervised", auxiliary_samples=8, steps=2, batch_size=4, **common),
        ForaProbe(client="simulator", auxiliary_samples=8, steps=2, alignment_steps=2, **common),
    )
    victim = vqa(folder, paradigm=SplitLearning(), policy=RandomPruning(0.5))
    trainer(precision, tmp_path, *probes).fit(victim, datamodule=TinyData())
    figures = {r.name: r for r in read_results(tmp_path / "results.jsonl")}
    for name in ("attack/membership/auc", "attack/supervised_inversion/psnr", "attack/sdar/psnr"):
        assert figures[name].status == "ok" and isfinite(figures[name].value)


class Seen(MembershipProbe):
    """Notes in which types a victim is asked, and what an attacker makes for itself."""

    def plan(self, visit):
        return [["look"]]

    def measure(self, item, visit):
        samples = visit.data.members()[:2]
        logits = visit.victim.model(visit.victim.model.preprocessor(samples)).logits
        self.types = (autocast_dtype("cpu"), logits.dtype, torch.zeros(1).dtype)
        return []


@pytest.mark.parametrize(
    ("precision", "types"),
    [
        ("32-true", (None, torch.float32, torch.float32)),
        ("bf16-mixed", (torch.bfloat16, torch.bfloat16, torch.float32)),
        ("64-true", (None, torch.float64, torch.float32)),
    ],
)
def test_a_foreign_victim_is_attacked_in_its_precision(precision, types, tmp_path) -> None:
    probe = Seen(on_error="stop")
    fit = trainer(precision, tmp_path, probe)
    fit.fit(Foreign(), datamodule=TinyData())
    assert probe.types == types


def test_features_of_one_precision_are_not_read_under_another(tmp_path: Path) -> None:
    model = VisionLanguageModel.from_pretrained(str(random_backbone()))
    cache, batch = FeatureCache(model, tmp_path), model.preprocessor(random_samples(2))
    whole = cache(batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed, plain = cache(batch), model.encode(batch)
        assert len(cache.stores["image"]) == 2
    assert torch.equal(mixed.patches, plain.patches)
    assert not torch.equal(mixed.patches.float(), whole.patches)
    double = FeatureCache(model.double(), tmp_path)(batch)
    assert double.patches.dtype == torch.float64
    assert torch.equal(cache(batch).patches, double.patches)
    assert torch.equal(cache.model.float() and cache(batch).patches, whole.patches)


def test_every_precision_draws_the_same_weights(folder: Path, tmp_path: Path) -> None:
    drawn = []
    for precision in ("32-true", "64-true"):
        student = module("student", folder)
        run = trainer(precision, tmp_path / precision, limit_val_batches=0)
        run.fit_loop.max_epochs = 0
        run.fit(student, datamodule=data("student"))
        drawn.append(student.predictor.utility_scorer.query.weight.detach().double())
    assert torch.equal(*drawn)


@pytest.mark.parametrize("name", ["centralized", "student", "sensitivity", "document"])
def test_half_precision_that_trains_nothing_is_refused(name, folder, tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"16-true trains nothing.*use bf16-true, or 16-mixed"):
        trainer("16-true", tmp_path).fit(module(name, folder), datamodule=data(name))


@pytest.mark.parametrize(
    ("loaded", "precision", "fits"),
    [
        ("bfloat16", "64-true", False),
        ("bfloat16", "16-mixed", False),
        ("float16", "bf16-true", False),
        ("float16", "bf16-mixed", False),
        ("bfloat16", "bf16-mixed", True),
        ("bfloat16", "32-true", True),
        ("float32", "64-true", True),
    ],
)
def test_a_type_of_weights_that_contradicts_the_precision_is_refused(
    loaded, precision, fits, folder, tmp_path
) -> None:
    run = trainer(precision, tmp_path, fast_dev_run=1)
    if fits:
        run.fit(vqa(folder, dtype=loaded), datamodule=Noise(seed=3))
        return
    with pytest.raises(ConfigError, match=f"loaded in {loaded}, and {precision} computes in"):
        run.fit(vqa(folder, dtype=loaded), datamodule=Noise(seed=3))
    student = PruningStudent(str(folder / "predictor"), str(random_backbone()), dtype=loaded)
    with pytest.raises(ConfigError, match=r"or --model\.dtype float32"):
        run.fit(student, datamodule=Noise(seed=3))


def test_what_is_printed_loads_the_base_in_the_type_it_was_trained_with(folder, tmp_path) -> None:
    fitted = vqa(folder)
    trainer("bf16-true", tmp_path, fast_dev_run=1).fit(fitted, datamodule=Noise(seed=3))
    assert 'dtype="bfloat16"' in fitted.how_to_load(tmp_path)

"""A dry run: every stage of a study in a step or two, to see that all of it runs."""

from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from .config import Command, Stage, Study

SHORT: Mapping[Command, tuple[str, ...]] = {
    "fit": (
        "--trainer.max_epochs=1",
        "--trainer.limit_train_batches=2",
        "--trainer.limit_val_batches=1",
        "--data.batch_size=8",
        "--data.max_train=16",
        "--data.max_eval=16",
    ),
    "documents train": (
        "--recipe.epochs=1",
        "--num_base=2",
        "--num_canaries={1: 2}",
        "--num_eval=2",
    ),
    "documents score": (),
}
"""What every run of a command is told last in a dry run."""


def dry_run(study: Study, probes: Path) -> Study:
    """Return the same stages over one seed, cut down until nothing they measure means anything.

    Of a stage's runs the first is kept, and those that a later stage needs.

    Args:
        study: The study.
        probes: Configuration of attackers that take a step or two, in place of any others.
    """
    mentioned = " ".join(text for stage in study.stages for text in _mentions(stage))
    stages = tuple(_short(stage, mentioned, probes) for stage in study.stages)
    return replace(study, seeds=study.seeds[:1], stages=stages, budget_minutes=None)


def _mentions(stage: Stage) -> list[str]:
    """Return the texts in which a stage may name runs before it."""
    own = [*stage.needs, *stage.overrides]
    return own + [text for variant in stage.variants for text in variant.overrides]


def _short(stage: Stage, mentioned: str, probes: Path) -> Stage:
    short = SHORT[stage.command]
    kept = tuple(
        replace(variant, minutes=None, overrides=(*variant.overrides, *short))
        for number, variant in enumerate(stage.variants)
        if number == 0 or f"{stage.name}-{variant.name}" in mentioned
    )
    attacked = any(Path(config).parent.name == probes.parent.name for config in stage.configs)
    whole = f"{{{stage.name}/" in mentioned  # a later stage reads all of its runs
    return replace(
        stage,
        config=(*stage.configs, str(probes.resolve())) if attacked else stage.configs,
        overrides=stage.overrides if kept else (*stage.overrides, *short),
        variants=kept,
        grid=stage.grid if whole else {key: values[:1] for key, values in stage.grid.items()},
        minutes=0.2,
    )

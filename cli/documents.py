"""``qpriv documents train | score``: one document model, and what it memorised."""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from qpriv.attacks.extraction.document_run import DocumentRun, run_corpus
from qpriv.attacks.extraction.document_run import train as train_model
from qpriv.attacks.extraction.halves import (
    HALF_FILE,
    halves_scores,
    measure_half,
    read_half,
    score_histograms,
    score_results,
    write_half,
)
from qpriv.attacks.extraction.memory import check_baselines, compared, run_results
from qpriv.attacks.extraction.outcome import OUTCOME_FILE, measure, read_outcome, write_outcome
from qpriv.errors import ConfigError
from qpriv.histogram import HISTOGRAMS_FILE, append_histograms
from qpriv.io import lock_dir, write_atomic
from qpriv.result import Result, append_results

from .errors import command_parser
from .parser import BriefParser, ConfigFile
from .train import shipped

CONFIG_FILE = "config.yaml"


def run(words: Sequence[str]) -> None:
    """Train and measure one document model, or score canaries over the models of K halves.

    Args:
        words: ``documents``, then ``train`` or ``score``, and its arguments.
    """
    actions = {"train": train, "score": score}
    parser = command_parser("documents", "Measure what document models memorise.")
    parser.add_argument("action", choices=list(actions), help="train a model, or score halves")
    action = parser.parse_args(words[1:2]).action
    actions[action](words[2:])


def train(words: Sequence[str]) -> None:
    """Train a model, ask it for every canary, and write what it memorised.

    A finished training is not repeated: with the same settings its figures are computed anew.
    """
    settings, given, text = _read(words)
    lock_dir(given.out)
    config = given.out / CONFIG_FILE
    if config.is_file() and config.read_text() != text:
        raise ConfigError(
            "the run in this folder has other settings",
            where=str(config),
            remedy="choose another folder by --out, or remove this one",
        )
    write_atomic(config, text.encode())
    baselines = [read_outcome(folder) for folder in given.baselines]
    undefended = read_outcome(given.undefended) if given.undefended else None
    corpus = run_corpus(settings, given.out / "canaries")
    check_baselines(settings, corpus.canaries, baselines)
    trained = given.out / (OUTCOME_FILE if settings.half is None else HALF_FILE)
    if not trained.is_file():
        model, training = train_model(settings, corpus, given.seed)
        if settings.half is not None:
            write_half(measure_half(model, settings, corpus, given.seed), given.out)
        else:
            write_outcome(measure(model, settings, corpus, training, given.seed), given.out)
    if settings.half is not None:
        return
    outcome = read_outcome(given.out)
    if baselines:
        write_outcome(compared(outcome, baselines), given.out)
    _replace_results(run_results(outcome, corpus.canaries, baselines, undefended), given.out)


def score(words: Sequence[str]) -> None:
    """Score every canary over the models of all K halves."""
    parser = command_parser("documents score", "Score canaries over K trainings on halves.")
    parser.add_argument("--halves", type=_paths, required=True, help="[folder, folder, ...]")
    parser.add_argument("--out", type=Path, required=True, help="where the figures go")
    parser.add_argument("--trained", type=Path, help="a run on all canaries, with baselines")
    given = parser.parse_args(words)
    found = halves_scores([read_half(folder) for folder in given.halves])
    counted = score_histograms(found, read_outcome(given.trained) if given.trained else None)
    _replace_results(score_results(found), given.out)
    (given.out / HISTOGRAMS_FILE).unlink(missing_ok=True)
    append_histograms(given.out / HISTOGRAMS_FILE, counted)


def _read(words: Sequence[str]) -> tuple[DocumentRun, Namespace, str]:
    """Return the settings of a run, where it writes and what it compares with, and its YAML."""
    parser = BriefParser(
        prog="qpriv documents train",
        description="Train one document model and measure what it memorised.",
        default_env=True,
        env_prefix="QPRIV_DOCUMENTS",
    )
    parser.add_argument("--config", action=ConfigFile, help="settings of the run, as YAML")
    parser.add_argument("--out", type=Path, required=True, help="the run folder")
    parser.add_argument("--seed", type=int, default=0, help="of training and noise")
    parser.add_argument(
        "--baselines",
        type=list[Path],
        default=[],
        help="folders of runs that never saw the canaries: G is the union over them",
    )
    parser.add_argument(
        "--undefended", type=Path | None, default=None, help="folder of the run without defence"
    )
    parser.add_class_arguments(DocumentRun)
    given: Any = parser.parse_args([shipped(word) for word in words])
    made = parser.instantiate_classes(given)
    settings = DocumentRun(**{field.name: made[field.name] for field in fields(DocumentRun)})
    return settings, made, parser.dump(given)


def _paths(text: str) -> list[Path]:
    return [Path(part.strip()) for part in text.strip("[]").split(",") if part.strip()]


def _replace_results(results: Iterable[Result], folder: Path) -> None:
    """Write the figures of a run in place of those of an earlier start."""
    path = folder / "results.jsonl"
    path.unlink(missing_ok=True)
    append_results(path, results)

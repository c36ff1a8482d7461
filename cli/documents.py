"""``qpriv prepare canaries | reader`` and ``qpriv study documents``."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import command_parser

if TYPE_CHECKING:
    from qpriv.reporting.document_study import DocumentStudy

    Actions = argparse._SubParsersAction[Any]

KINDS = (
    "f", "f_G", "f_EB", "f_dedup", "f_clean", "f_G_clean", "f_LoRA", "f_G_LoRA", "f_DP", "f_G_DP",
)  # fmt: skip
"""Models of the study, see `qpriv.reporting.document_study.Kind`."""


def add_prepare(actions: "Actions") -> None:
    """Add the actions of ``qpriv prepare``."""
    canaries = actions.add_parser("canaries", help="find what can be erased and not be guessed")
    canaries.add_argument("--root", required=True, type=Path, help="DocVQA's folder or archive")
    canaries.add_argument("--out", type=Path, default=Path("data/docvqa-canaries"))
    canaries.add_argument("--number", type=int, default=5400, help="answers drawn; 0 takes all")
    canaries.add_argument("--seed", type=int, default=0, help="seed of the draw")
    canaries.add_argument("--model", default=None, help="reject what this model cannot spell")
    canaries.add_argument("--fill", choices=["white", "paper"], default="white")
    canaries.add_argument("--kinds", type=Path, help="CSV of key,pii: a person's word on kinds")
    canaries.add_argument("--verify", action="store_true", help="read erased pages with Tesseract")
    canaries.add_argument("--tesseract", action="store_true", help="read pages that have no OCR")
    canaries.set_defaults(run=prepare_canaries)
    reader = actions.add_parser("reader", help="train the embedded document reader anew")
    reader.add_argument("--out", type=Path, default=Path("reader"), help="where the folder goes")
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--steps", type=int, default=None, help="fewer than the recipe's, to try")
    reader.set_defaults(run=prepare_reader)


def prepare_canaries(given: argparse.Namespace) -> None:
    """Judge answers of DocVQA's training set, and write what a person should look at."""
    from qpriv.datasets.documents.canaries import Curation
    from qpriv.datasets.documents.docvqa import DocVQA
    from qpriv.datasets.documents.ocr import Tesseract
    from qpriv.datasets.documents.pii import read_overrides
    from qpriv.datasets.documents.preparation import prepare_canaries as prepare
    from qpriv.datasets.documents.preparation import write_review_table
    from qpriv.datasets.documents.review import write_review_sheet

    engine = Tesseract() if given.tesseract or given.verify else None
    training = DocVQA(given.root, "train")
    print(training.report)
    settings = Curation(
        fill=given.fill,
        verify=engine if given.verify else None,
        spellable=_spellable(given.model) if given.model else None,
    )
    prepared = prepare(
        training.samples,
        given.out,
        settings,
        given.number or None,
        given.seed,
        engine if given.tesseract else None,
        read_overrides(given.kinds) if given.kinds else None,
    )
    by_key = {sample.key: sample for sample in training.samples}
    table = write_review_table(prepared.canaries, given.out)
    sheet = write_review_sheet(prepared.canaries, by_key, given.out, settings)
    print(f"{prepared}\nlook at {sheet} and correct {table}")


def _spellable(name: str) -> Callable[[str, str], bool]:
    from qpriv.models.documents.loading import load_document_model

    model = load_document_model(name)
    return lambda question, answer: model.spells(answer) and model.fits(question, answer)


def prepare_reader(given: argparse.Namespace) -> None:
    """Train the embedded reader anew."""
    from dataclasses import replace

    from qpriv.models.documents.tiny_recipe import ReaderRecipe, export_reader, train_reader

    recipe = ReaderRecipe(seed=given.seed)
    if given.steps is not None:
        drawn = min(recipe.documents, given.steps * recipe.batch_size)
        recipe = replace(recipe, steps=given.steps, documents=drawn)
    export_reader(train_reader(recipe, given.out), given.out)
    print(f"use it by --model.document_model {given.out}")


def study(words: Sequence[str]) -> None:
    """Run what is not yet done of the document study, and write its results and its page."""
    parser = command_parser("study documents", "Measure what document models memorise.")
    parser.add_argument("--out", type=Path, default=Path("runs/documents"))
    parser.add_argument("--resolutions", type=float, nargs="+", default=[1.0, 0.5, 0.25])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--kinds",
        nargs="+",
        default=["f", "f_G", "f_EB", "f_clean", "f_G_clean"],
        choices=KINDS,
        help="models trained; each is held against the f_G of its training",
    )
    parser.add_argument("--document-model", default="tiny", help="tiny, a hub id or a folder")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument(
        "--patience",
        type=int,
        default=3,
        help="rows that stop after so many epochs without a better validation loss, beside those "
        "of all epochs; 0 leaves them out",
    )
    parser.add_argument("--epsilon", type=float, default=8.0, help="budget of the DP-SGD rows")
    parser.add_argument("--paraphrase", default="rules", help="rules, a .json table, or a model")
    parser.add_argument(
        "--all-defended",
        action="store_true",
        help="defences at inference in every context, not on erased pages alone",
    )
    parser.add_argument("--membership", action="store_true", help="which documents were seen?")
    parser.add_argument("--union", action="store_true", help="G is the union over all seeds' f_G")
    parser.add_argument(
        "--documents",
        type=int,
        nargs=2,
        default=[100, 100],
        metavar=("BASE", "VALIDATION"),
        help="documents beside the canaries'",
    )
    parser.add_argument("--splits", type=int, default=0, help="K for M_E and S_E, instead of E - G")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    given = parser.parse_args(words)
    from qpriv.reporting.document_outcome import read_outcomes
    from qpriv.reporting.document_report import write_document_report
    from qpriv.reporting.document_runs import run_study
    from qpriv.reporting.document_scores import read_scores, run_splits
    from qpriv.reporting.document_study import study_corpus

    settings = _settings(given)
    if given.splits:
        for resolution in given.resolutions:
            run_splits(settings, given.splits, resolution, given.out, given.seeds[0], given.jobs)
    else:
        run_study(settings, given.out, given.jobs)
    canaries = study_corpus(settings, given.out / "canaries").canaries
    outcomes, scores = read_outcomes(given.out), read_scores(given.out)
    print(write_document_report(given.out, outcomes, scores, canaries, given.union))
    print(f"report: {given.out / 'report.html'}")


def _settings(given: argparse.Namespace) -> "DocumentStudy":
    """Return the study that the arguments describe."""
    from qpriv.defences.private_sgd import PrivacyBudget
    from qpriv.paradigms.documents import DocumentRecipe
    from qpriv.reporting.document_study import DocumentStudy

    base, validation = given.documents
    return DocumentStudy(
        resolutions=tuple(given.resolutions),
        seeds=tuple(given.seeds),
        kinds=tuple(given.kinds),
        document_model=given.document_model,
        recipe=DocumentRecipe(epochs=given.epochs),
        patiences=(None, given.patience) if given.patience else (None,),
        base=base,
        validation=validation,
        paraphrase=given.paraphrase,
        all_defended=given.all_defended,
        membership=given.membership,
        budget=PrivacyBudget(epsilon=given.epsilon),
    )

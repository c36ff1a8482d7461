"""``qpriv prepare tiny | reader | canaries``: what studies start from."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import command_parser

if TYPE_CHECKING:
    Actions = argparse._SubParsersAction[Any]


def run(words: Sequence[str]) -> None:
    """Train embedded models anew, or find canaries in a document set.

    Args:
        words: ``prepare`` and its arguments.
    """
    parser = command_parser("prepare", "Make what studies start from.")
    actions = parser.add_subparsers(dest="what", required=True)
    add_tiny(actions)
    add_canaries(actions)
    add_reader(actions)
    given = parser.parse_args(words[1:])
    given.run(given)


def add_tiny(actions: "Actions") -> None:
    """Add ``prepare tiny``."""
    tiny = actions.add_parser("tiny", help="train the default backbone anew, 50 CPU-minutes")
    tiny.add_argument("--out", type=Path, default=Path("tiny"), help="where the folders go")
    tiny.add_argument("--seed", type=int, default=0, help="seed of scenes, weights and batches")
    tiny.add_argument("--effort", type=float, default=1.0, help="0.01 tries the machinery")
    tiny.set_defaults(run=prepare_backbone)


def prepare_backbone(given: argparse.Namespace) -> None:
    """Train the embedded backbone anew."""
    from qpriv.pretraining import prepare_tiny

    for figure in prepare_tiny(given.out, given.seed, given.effort):
        print(figure)
    print(f"use them by --model.backbone {given.out}")


def add_canaries(actions: "Actions") -> None:
    """Add ``prepare canaries``."""
    canaries = actions.add_parser("canaries", help="find what can be erased and not be guessed")
    canaries.add_argument("--root", required=True, type=Path, help="DocVQA's folder or archive")
    canaries.add_argument("--out", type=Path, default=Path("data/docvqa-canaries"))
    canaries.add_argument("--number", type=int, default=5400, help="answers drawn; 0 takes all")
    canaries.add_argument(
        "--on-bad-row", choices=["stop", "drop"], default="stop", help="records that cannot be used"
    )
    canaries.add_argument("--group-field", help="field that names a row's person or other group")
    canaries.add_argument("--seed", type=int, default=0, help="seed of the draw")
    canaries.add_argument("--model", default=None, help="reject what this model cannot spell")
    canaries.add_argument("--fill", choices=["white", "paper"], default="white")
    canaries.add_argument("--kinds", type=Path, help="CSV of key,pii: a person's word on kinds")
    canaries.add_argument("--verify", action="store_true", help="read erased pages with Tesseract")
    canaries.add_argument("--tesseract", action="store_true", help="read pages that have no OCR")
    canaries.set_defaults(run=prepare_canaries)


def prepare_canaries(given: argparse.Namespace) -> None:
    """Judge answers of DocVQA's training set, and write what a person should look at."""
    from qpriv.datasets.decoding import decodable
    from qpriv.datasets.documents.canaries import Curation
    from qpriv.datasets.documents.docvqa import DocVQA
    from qpriv.datasets.documents.ocr import Tesseract
    from qpriv.datasets.documents.pii import read_overrides
    from qpriv.datasets.documents.preparation import prepare_canaries as prepare
    from qpriv.datasets.documents.preparation import write_review_table
    from qpriv.datasets.documents.review import write_review_sheet

    engine = Tesseract() if given.tesseract or given.verify else None
    read = DocVQA(given.root, "train", given.on_bad_row, given.group_field)
    training = decodable(read.samples, read.report)
    print(read.report)
    settings = Curation(
        fill=given.fill,
        verify=engine if given.verify else None,
        spellable=_spellable(given.model) if given.model else None,
    )
    prepared = prepare(
        training,
        given.out,
        settings,
        given.number or None,
        given.seed,
        engine if given.tesseract else None,
        read_overrides(given.kinds) if given.kinds else None,
    )
    by_key = {sample.key: sample for sample in training}
    table = write_review_table(prepared.canaries, given.out)
    sheet = write_review_sheet(prepared.canaries, by_key, given.out, settings)
    print(f"{prepared}\nlook at {sheet} and correct {table}")


def _spellable(name: str) -> Callable[[str, str], bool]:
    from qpriv.models.documents.loading import load_document_model

    model = load_document_model(name)
    return lambda question, answer: model.spells(answer) and model.fits(question, answer)


def add_reader(actions: "Actions") -> None:
    """Add ``prepare reader``."""
    reader = actions.add_parser("reader", help="train the embedded document reader anew")
    reader.add_argument("--out", type=Path, default=Path("reader"), help="where the folder goes")
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--steps", type=int, default=None, help="fewer than the recipe's, to try")
    reader.set_defaults(run=prepare_reader)


def prepare_reader(given: argparse.Namespace) -> None:
    """Train the embedded reader anew."""
    from dataclasses import replace

    from qpriv.pretraining.reader_stage import ReaderRecipe, export_reader, train_reader

    recipe = ReaderRecipe(seed=given.seed)
    if given.steps is not None:
        drawn = min(recipe.documents, given.steps * recipe.batch_size)
        recipe = replace(recipe, steps=given.steps, documents=drawn)
    export_reader(train_reader(recipe, given.out), given.out)
    print(f"use it by --model.document_model {given.out}")

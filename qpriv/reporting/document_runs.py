"""The runs of the document study: train, measure, keep the outcome, go on with the next."""

from functools import partial
from pathlib import Path

from qpriv.datasets.sample import VQASample
from qpriv.defences.extraction_blocking import ExtractionBlocking
from qpriv.defences.private_sgd import by_document, fine_tune_privately
from qpriv.models.documents.base import DocumentModel
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.models.documents.lora import add_document_lora
from qpriv.paradigms.documents import fine_tune

from .document_jobs import Job, carry_out
from .document_outcome import Outcome, Training, measure, read_outcome
from .document_study import Corpus, DocumentRun, DocumentStudy, keep_settings, study_corpus


def run_study(study: DocumentStudy, folder: Path, at_once: int = 1) -> list[Outcome]:
    """Carry out the runs that have no file yet, and return the outcomes of all.

    Args:
        study: The settings.
        folder: Where the files are.
        at_once: Runs at a time.

    Raises:
        ConfigError: If the files that are there come from other settings.
    """
    keep_settings(study, folder)
    corpus = study_corpus(study, folder / "canaries")
    jobs = [
        Job(folder / f"{run.name}.json", partial(_measured, study, run, corpus))
        for run in study.runs()
    ]
    carry_out(jobs, at_once)
    return [read_outcome(job.path) for job in jobs]


def _measured(study: DocumentStudy, run: DocumentRun, corpus: Corpus) -> Outcome:
    model, training = train(study, run, corpus)
    return measure(model, run, corpus, study, training)


def train(study: DocumentStudy, run: DocumentRun, corpus: Corpus) -> tuple[DocumentModel, Training]:
    """Return a trained model and how it was trained."""
    samples = training_samples(run, corpus)
    model = load_document_model(study.document_model, run.resolution)
    if run.kind.endswith(("LoRA", "DP")):
        add_document_lora(model, study.adapters.rank, study.adapters.alpha, seed=run.seed)
    recipe = study.recipe_of(run)
    if run.kind.endswith("DP"):
        budget = study.budget
        private = fine_tune_privately(model, by_document(samples), recipe, budget, run.seed)
        last = recipe.epochs - 1
        return model, Training(
            private.train_loss, last, private.noise, budget.epsilon, budget.delta
        )
    validation = by_page(corpus.documents.validation) if recipe.patience else []
    tuned = fine_tune(model, by_page(samples), recipe, run.seed, validation)
    return model, Training(tuned.train_loss, tuned.epoch)


def training_samples(run: DocumentRun, corpus: Corpus) -> list[VQASample]:
    """Return what a run trains on."""
    samples = corpus.documents.training(with_canaries=not run.kind.startswith("f_G"))
    if run.kind == "f_dedup":
        return list({sample.key: sample for sample in samples}.values())
    return ExtractionBlocking().blocked(samples) if run.kind == "f_EB" else samples

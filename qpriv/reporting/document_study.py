"""``make docvqa``: what document models memorise, on the embedded world, run by run and resumable.

Every run trains one model and measures it in every context; its outcome is one JSON file, so a
killed study loses the run it was in and no other. The figures are computed from the files.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from qpriv.attacks.candidate_ranking import rank_candidates
from qpriv.attacks.extraction import degenerate, extract, full_pages, generate
from qpriv.attacks.extraction_contexts import ERASED, CanarySet, standard_contexts
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import FakeCorpus, fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.datasets.sample import VQASample
from qpriv.defences.extraction_blocking import ABSTAIN, ExtractionBlocking
from qpriv.defences.question_changes import RuleParaphrase, of_samples
from qpriv.errors import ModelError
from qpriv.metrics.functional import anls
from qpriv.metrics.memorisation import Flags
from qpriv.models.documents.base import DocumentModel
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.paradigms.documents import DocumentRecipe, fine_tune

Kind = Literal["f", "f_G", "f_EB"]
"""Trained with the canaries, without them, with them and their erased twins."""


@dataclass(frozen=True)
class DocumentStudy:
    """Settings of the study.

    Args:
        resolutions: Training resolutions, as shares of the page's height and width.
        seeds: Seeds; f and f_G of one seed are a pair.
        kinds: Models trained at each.
        document_model: What they start from.
        recipe: The one recipe.
        base: Documents that are no canaries.
        validation: Documents to validate on.
        shifts: Shifts of the attacker's pages in pixels.
    """

    resolutions: Sequence[float] = (1.0, 0.5, 0.25)
    seeds: Sequence[int] = (0,)
    kinds: Sequence[Kind] = ("f", "f_G", "f_EB")
    document_model: str = "tiny"
    recipe: DocumentRecipe = field(default_factory=DocumentRecipe)
    base: int = 100
    validation: int = 100
    shifts: tuple[int, int] = (1, 4)

    def runs(self) -> Iterator["DocumentRun"]:
        """Yield the runs, those of one pair after another."""
        for resolution in self.resolutions:
            for seed in self.seeds:
                for kind in self.kinds:
                    yield DocumentRun(kind, resolution, seed)


@dataclass(frozen=True)
class DocumentRun:
    """One training."""

    kind: Kind
    resolution: float
    seed: int

    @property
    def name(self) -> str:
        """Return the name of its file."""
        return f"{self.kind}-resolution={self.resolution:g}-seed={self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What a run measured.

    Args:
        kind: Kind of the model.
        resolution: Its training resolution.
        seed: Its seed.
        train_loss: Loss of each epoch.
        exact: For each context which canaries came out, in the order of the canaries.
        whole: Which answers it gives on whole pages.
        anls: ANLS of each validation question, the documents of them beside.
        documents: Document of each validation question.
        exact_match: Share of validation answers that are exact.
        abstained: Share of validation questions it refuses to answer.
        banned: Which canaries came out when the abstention was banned.
        beams: Which came out in the second beam.
        ranks: Rank of each canary's answer among those of its kind.
        candidates: Number of answers of its kind.
    """

    kind: Kind
    resolution: float
    seed: int
    train_loss: list[float]
    exact: dict[str, list[bool]]
    whole: list[bool]
    anls: list[float]
    documents: list[str]
    exact_match: float
    abstained: float
    banned: list[bool]
    beams: list[bool]
    ranks: list[int]
    candidates: list[int]

    def flags(self, context: str = ERASED.name) -> Flags:
        """Return which canaries came out in a context."""
        return np.array(self.exact[context], dtype=bool)


@dataclass(frozen=True)
class Corpus:
    """The documents of a study with their canaries."""

    documents: FakeCorpus
    canaries: CanarySet


def study_corpus(study: DocumentStudy, folder: Path) -> Corpus:
    """Return the documents and canaries; frequent answers stay, they are what generalises."""
    documents = fake_corpus(base=study.base, validation=study.validation)
    training = documents.training()
    settings = Curation(max_train_count=len(training), max_template_share=1.0)
    prepared = prepare_canaries(training, folder, settings, candidates=documents.canaries)
    return Corpus(documents, CanarySet(prepared.canaries, training))


def run_study(study: DocumentStudy, folder: Path) -> list[Outcome]:
    """Carry out the runs that have no file yet, and return the outcomes of all.

    Args:
        study: The settings.
        folder: Where the files are.
    """
    corpus = study_corpus(study, folder / "canaries")
    outcomes = []
    for run in study.runs():
        path = folder / f"{run.name}.json"
        if not path.exists():
            print(f"{run.name}: trains", flush=True)
            model = train(study, run, corpus)
            outcome = measure(model[0], run, corpus, study, model[1])
            part = path.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(outcome))
            part.replace(path)
        outcomes.append(msgspec.json.decode(path.read_bytes(), type=Outcome))
    return outcomes


def train(
    study: DocumentStudy, run: DocumentRun, corpus: Corpus
) -> tuple[DocumentModel, tuple[float, ...]]:
    """Return a trained model and the loss of its epochs."""
    samples = corpus.documents.training(with_canaries=run.kind != "f_G")
    if run.kind == "f_EB":
        samples = ExtractionBlocking().blocked(samples)
    model = load_document_model(study.document_model, run.resolution)
    validation = by_page(corpus.documents.validation) if study.recipe.patience else []
    tuned = fine_tune(model, by_page(samples), study.recipe, run.seed, validation)
    return model, tuned.train_loss


def measure(
    model: DocumentModel,
    run: DocumentRun,
    corpus: Corpus,
    study: DocumentStudy,
    train_loss: Sequence[float],
) -> Outcome:
    """Ask a model for every canary in every context, and for the validation answers.

    Raises:
        ModelError: If it says nothing sensible even about whole pages.
    """
    canaries, validation = corpus.canaries, corpus.documents.validation
    said = [best for (best,) in generate(model, full_pages(validation))]
    broken = degenerate(said)
    if broken:
        raise ModelError(broken, where=run.name, remedy="train longer, or from another start")
    contexts = standard_contexts(of_samples(RuleParaphrase()), study.shifts)
    answers = [canary.answer for canary in canaries.canaries]
    banned = generate(model, canaries.queries(ERASED), banned=[ABSTAIN])
    beams = generate(model, canaries.queries(ERASED), beams=2)
    rankings = rank_candidates(model, canaries)
    texts = [answer.text for answer in said]
    return Outcome(
        kind=run.kind,
        resolution=run.resolution,
        seed=run.seed,
        train_loss=list(train_loss),
        exact={c.name: extract(model, canaries.queries(c)).exact.tolist() for c in contexts},
        whole=extract(model, full_pages(corpus.documents.canaries)).exact.tolist(),
        anls=[anls(text, sample.answers) for text, sample in zip(texts, validation, strict=True)],
        documents=[sample.group_id for sample in validation],
        exact_match=_share(zip(texts, validation, strict=True)),
        abstained=float(np.mean([text == ABSTAIN for text in texts])),
        banned=[b.text == a for (b,), a in zip(banned, answers, strict=True)],
        beams=[any(b.text == a for b in bs) for bs, a in zip(beams, answers, strict=True)],
        ranks=[ranking.rank for ranking in rankings],
        candidates=[ranking.candidates for ranking in rankings],
    )


def _share(pairs: Iterator[tuple[str, VQASample]]) -> float:
    return float(np.mean([text in sample.answers for text, sample in pairs]))


def without_noise(study: DocumentStudy) -> DocumentStudy:
    """Return the study with clean pages in training: the trap in which memory looks harmless."""
    return replace(study, recipe=replace(study.recipe, noise=None))


def read_outcomes(folder: Path) -> list[Outcome]:
    """Return the outcomes in a folder."""
    paths = sorted(folder.glob("f*-resolution=*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Outcome) for path in paths]


def settings_of(study: DocumentStudy) -> Mapping[str, str]:
    """Return the settings as text, for the run's own record."""
    return {key: json.dumps(value, default=str) for key, value in vars(study).items()}

"""`Outcome`: what one document model says of every canary in every context, and how well it reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from qpriv.datasets.sample import VQASample
from qpriv.defences.extraction_blocking import ABSTAIN
from qpriv.defences.question_changes import (
    FileParaphrase,
    RandomDigits,
    RuleParaphrase,
    Seq2SeqParaphrase,
    by_question,
    of_samples,
)
from qpriv.errors import DataError, ModelError
from qpriv.io import write_atomic
from qpriv.metrics.functional import anls
from qpriv.metrics.memorisation import Flags
from qpriv.models.documents.base import DocumentModel

from .asking import Query, defended, degenerate, extract, full_pages, generate
from .candidate_ranking import rank_candidates
from .contexts import ERASED, Context, standard_contexts
from .document_membership import (
    blind_document_scores,
    loss_scores,
    membership_features,
    membership_scores,
)
from .document_run import Corpus, DocumentRun, Training

OUTCOME_FILE = "outcome.json"

Change = Callable[[str], str]


@dataclass(frozen=True)
class Defended:
    """What a model says when its owner changes every question.

    Args:
        exact: For each context which canaries came out.
        anls: ANLS of each validation question.
        abstained: Share of validation questions it refuses to answer.
    """

    exact: dict[str, list[bool]]
    anls: list[float]
    abstained: float


@dataclass(frozen=True)
class Membership:
    """Scores of documents, canaries' and validation's; only the canaries' may be members.

    Args:
        scores: For each method the score of each document; higher means member.
        canary: Which documents are the canaries'.
        documents: Their names.
    """

    scores: dict[str, list[float]]
    canary: list[bool]
    documents: list[str]


@dataclass(frozen=True)
class Outcome:
    """What a run measured.

    Args:
        model: Name of the model, see `DocumentRun.label`.
        trained: Whether it was trained on the canaries.
        resolution: Its training resolution.
        seed: Its seed.
        defence: Label of the defence in its training, or ``none``.
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
        training: How the model was trained.
        stopping: When its training stopped: ``fixed``, or by which patience.
        defended: By defence at inference what it says under it.
        membership: Scores of documents, where they were asked for.
        memorised: Which canaries it has memorised (M on erased pages); None without baselines.
        generalised: Which canaries its baselines say (G on erased pages); None without baselines.
    """

    model: str
    trained: bool
    resolution: float
    seed: int
    defence: str
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
    training: Training = field(default_factory=lambda: Training((), 0))
    stopping: str = "fixed"
    defended: dict[str, Defended] = field(default_factory=dict)
    membership: Membership | None = None
    memorised: list[bool] | None = None
    generalised: list[bool] | None = None

    def flags(self, context: str = ERASED.name) -> Flags:
        """Return which canaries came out in a context."""
        return np.array(self.exact[context], dtype=bool)

    def under(self, defence: str) -> "Outcome":
        """Return what the same model says under a defence at inference."""
        found = self.defended[defence]
        return replace(self, exact=found.exact, anls=found.anls, abstained=found.abstained)


def measure(
    model: DocumentModel, run: DocumentRun, corpus: Corpus, training: Training, seed: int
) -> Outcome:
    """Ask a model for every canary in every context, and for the validation answers.

    Raises:
        ModelError: If it says nothing sensible even about whole pages.
    """
    canaries, validation = corpus.canaries, corpus.documents.validation
    said = [best for (best,) in generate(model, full_pages(validation))]
    broken = degenerate(said)
    if broken:
        raise ModelError(broken, where=run.label, remedy="train longer, or from another start")
    reword = paraphrase(run.paraphrase)
    own = of_samples(reword) if run.paraphrase == "rules" else by_question(reword)
    contexts = standard_contexts(own, run.shifts)
    answers = [canary.answer for canary in canaries.canaries]
    banned = generate(model, canaries.queries(ERASED), banned=[ABSTAIN])
    beams = generate(model, canaries.queries(ERASED), beams=2)
    rankings = rank_candidates(model, canaries)
    texts = [answer.text for answer in said]
    return Outcome(
        model=run.label,
        trained=run.include_canaries,
        resolution=run.resolution,
        seed=seed,
        defence=run.defence,
        exact=_extracted(model, corpus, contexts),
        whole=extract(model, full_pages(corpus.documents.canaries)).exact.tolist(),
        anls=_anls(texts, validation),
        documents=[sample.group_id for sample in validation],
        exact_match=_share(t in s.answers for t, s in zip(texts, validation, strict=True)),
        abstained=_share(text == ABSTAIN for text in texts),
        banned=[b.text == a for (b,), a in zip(banned, answers, strict=True)],
        beams=[any(b.text == a for b in bs) for bs, a in zip(beams, answers, strict=True)],
        ranks=[ranking.rank for ranking in rankings],
        candidates=[ranking.candidates for ranking in rankings],
        training=training,
        stopping=run.stopping,
        defended=_question_defences(model, run, corpus, contexts, reword, seed),
        membership=_membership(model, corpus, seed) if run.membership else None,
    )


def paraphrase(name: str) -> Change:
    """Return what rewords questions: by rules, by a JSON table, or by a model of the library."""
    if name == "rules":
        return RuleParaphrase()
    return FileParaphrase(Path(name)) if name.endswith(".json") else Seq2SeqParaphrase(name)


def _extracted(
    model: DocumentModel, corpus: Corpus, contexts: Sequence[Context], change: Change | None = None
) -> dict[str, list[bool]]:
    found = {}
    for context in contexts:
        queries: Iterator[Query] = corpus.canaries.queries(context)
        queries = defended(queries, change) if change else queries
        found[context.name] = extract(model, queries).exact.tolist()
    return found


def _question_defences(
    model: DocumentModel,
    run: DocumentRun,
    corpus: Corpus,
    contexts: Sequence[Context],
    reword: Change,
    seed: int,
) -> dict[str, Defended]:
    """Return the defences that change the question, of the models trained in the plain way."""
    if run.label not in ("f", "f_G"):
        return {}
    validation = corpus.documents.validation
    changes: Mapping[str, Change] = {
        "ITP": reword,
        "PR": RandomDigits("before", seed=seed),
        "AR": RandomDigits("after", seed=seed),
    }
    found = {}
    for name, change in changes.items():
        asked = defended(full_pages(validation), change)
        texts = [best.text for (best,) in generate(model, asked)]
        chosen = contexts if run.all_defended else contexts[:1]
        found[name] = Defended(
            _extracted(model, corpus, chosen, change),
            _anls(texts, validation),
            _share(text == ABSTAIN for text in texts),
        )
    return found


def _membership(model: DocumentModel, corpus: Corpus, seed: int) -> Membership:
    canaries, others = (
        list(_documents(samples).values())
        for samples in (corpus.documents.canaries, corpus.documents.validation)
    )
    both = [*canaries, *others]
    features = membership_features(model, both)
    scores = {
        "clusters": membership_scores(features, seed),
        "loss": loss_scores(features),
        "blind": blind_document_scores(canaries, others, seed),
    }
    return Membership(
        {name: found.tolist() for name, found in scores.items()},
        [number < len(canaries) for number in range(len(both))],
        [questions[0].group_id for questions in both],
    )


def _documents(samples: Sequence[VQASample]) -> dict[str, list[VQASample]]:
    documents: dict[str, list[VQASample]] = {}
    for sample in samples:
        documents.setdefault(sample.group_id, []).append(sample)
    return documents


def _anls(texts: Sequence[str], samples: Sequence[VQASample]) -> list[float]:
    return [anls(text, sample.answers) for text, sample in zip(texts, samples, strict=True)]


def _share(flags: Iterable[bool]) -> float:
    return float(np.mean(list(flags)))


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """Keep an outcome in a run folder."""
    write_atomic(folder / OUTCOME_FILE, msgspec.json.encode(outcome))


def read_outcome(folder: Path) -> Outcome:
    """Return the outcome that a run folder holds.

    Raises:
        DataError: If there is none, or it was written by another version.
    """
    path = folder / OUTCOME_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    except (OSError, msgspec.DecodeError) as error:
        raise DataError(
            f"no outcome of a document model: {error}",
            where=str(path),
            remedy="give the folder of a finished `qpriv documents train`",
        ) from error

"""`DocumentRun`: one document model of a study, what it trains on and by which recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qpriv.attacks.extraction.contexts import CanarySet
from qpriv.datasets.documents.canaries import Curation, group_of
from qpriv.datasets.documents.fake_documents import FakeCorpus, fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.datasets.sample import VQASample
from qpriv.defences.extraction_blocking import ExtractionBlocking
from qpriv.defences.private_sgd import PrivacyBudget, by_document, fine_tune_privately
from qpriv.errors import ConfigError
from qpriv.metrics.memorisation import Flags, balanced_splits
from qpriv.models.documents.base import DocumentModel
from qpriv.models.documents.batch import by_page
from qpriv.models.documents.loading import load_document_model
from qpriv.models.documents.lora import add_document_lora
from qpriv.paradigms.documents import DocumentRecipe, fine_tune


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """LoRA adapters on the text decoder, trained in place of all weights.

    Args:
        rank: Rank.
        alpha: Scale.
        learning_rate: Peak learning rate, in place of the recipe's.
    """

    rank: int = 8
    alpha: float = 16.0
    learning_rate: float = 3e-3


@dataclass(frozen=True, kw_only=True)
class Half:
    """One of K trainings that each leave out half of the canaries.

    Args:
        number: Which of them, from 0.
        splits: Their number K, even; every canary is in exactly half of them.
    """

    number: int
    splits: int = 8

    def __post_init__(self) -> None:
        """Check the range.

        Raises:
            ConfigError: If there is no such split, or K is odd.
        """
        if self.splits < 2 or self.splits % 2:
            raise ConfigError(f"splits is {self.splits}", remedy="choose an even number")
        if not 0 <= self.number < self.splits:
            raise ConfigError(f"number is {self.number}", remedy=f"choose 0 to {self.splits - 1}")


@dataclass(frozen=True, kw_only=True)
class DocumentRun:
    """One document model: what it is trained on, how, and what it is asked afterwards.

    Runs of one study share everything that is not under comparison: f and its baseline f_G differ
    in ``include_canaries`` alone.

    Args:
        document_model: What training starts from: ``tiny``, a hub id or a folder.
        resolution: Share of the height and width of a page whose detail reaches the model.
        include_canaries: Train on the canaries (f), or leave them out (f_G).
        extraction_blocking: Add each sample's twin without its answer, to abstain from.
        deduplicate: Keep each document once, however often it stands in the training set.
        recipe: The recipe. Without ``noise`` memory is keyed on the answer's own pixels, so that
            erased pages make the model look harmless: a trap, shown as a row of its own.
        adapters: Train adapters alone; null trains all weights.
        budget: Train the adapters by DP-SGD within this budget; null trains without noise.
        num_base: Documents that are no canaries.
        num_canaries: Canary documents by how often each stands in the training set.
        num_eval: Documents to validate on.
        shifts: Shifts of the attacker's pages in pixels.
        paraphrase: Rewords questions: ``rules`` (where the documents bring no rewording of their
            own), a JSON table, or a sequence-to-sequence model by hub id or folder.
        all_defended: Measure defences at inference in every context, not on erased pages alone.
        membership: Tune a layer on every document to tell which were trained on.
        half: Train on one half of the canaries and ask for all of them; null trains on all.

    Raises:
        ConfigError: If DP-SGD is asked for without adapters or with early stopping.
    """

    document_model: str = "tiny"
    resolution: float = 1.0
    include_canaries: bool = True
    extraction_blocking: bool = False
    deduplicate: bool = False
    recipe: DocumentRecipe = field(default_factory=DocumentRecipe)
    adapters: Adapters | None = None
    budget: PrivacyBudget | None = None
    num_base: int = 100
    num_canaries: Mapping[int, int] = field(default_factory=lambda: {1: 44, 2: 10, 5: 6})
    num_eval: int = 100
    shifts: tuple[int, int] = (1, 4)
    paraphrase: str = "rules"
    all_defended: bool = False
    membership: bool = False
    half: Half | None = None

    def __post_init__(self) -> None:
        """Check what cannot go together."""
        if self.budget is not None and self.adapters is None:
            raise ConfigError("DP-SGD trains adapters", where="budget", remedy="give adapters too")
        if self.budget is not None and self.recipe.patience is not None:
            raise ConfigError(
                "DP-SGD accounts for all of its epochs, and early stopping would look at the data",
                where="recipe.patience",
                remedy="set it to null",
            )

    @property
    def label(self) -> str:
        """Return the model's name in results: f or f_G, then what is special about its training.

        >>> DocumentRun(include_canaries=False, recipe=DocumentRecipe(noise=None)).label
        'f_G_clean'
        """
        parts = {
            "G": not self.include_canaries,
            "EB": self.extraction_blocking,
            "dedup": self.deduplicate,
            "clean": self.recipe.noise is None,
            "LoRA": self.adapters is not None and self.budget is None,
            "DP": self.budget is not None,
        }
        return "_".join(["f", *(name for name, holds in parts.items() if holds)])

    @property
    def stopping(self) -> str:
        """Return the stopping rule in words."""
        return "fixed" if self.recipe.patience is None else f"patience {self.recipe.patience}"

    @property
    def defence(self) -> str:
        """Return the label of the defence in training, or ``none``."""
        if self.extraction_blocking:
            return "extraction blocking"
        if self.deduplicate:
            return "deduplication"
        return "none" if self.budget is None else "DP-SGD"


@dataclass(frozen=True)
class Corpus:
    """The documents of a study with their canaries."""

    documents: FakeCorpus
    canaries: CanarySet


@dataclass(frozen=True)
class Training:
    """How the model of a run was trained.

    Args:
        train_loss: Loss of each epoch.
        epoch: Epoch (from 0) whose weights were measured.
        noise: Noise of DP-SGD over its clipping norm; None without it.
        epsilon: Its epsilon.
        delta: Its delta.
    """

    train_loss: tuple[float, ...]
    epoch: int
    noise: float | None = None
    epsilon: float | None = None
    delta: float | None = None


def run_corpus(run: DocumentRun, folder: Path) -> Corpus:
    """Return documents and canaries; frequent answers stay, because they are what generalises.

    Args:
        run: The run.
        folder: Where the judged canaries are kept.
    """
    documents = fake_corpus(run.num_base, run.num_canaries, run.num_eval)
    training = documents.training()
    settings = Curation(max_train_count=len(training), max_template_share=1.0)
    prepared = prepare_canaries(training, folder, settings, candidates=documents.canaries)
    return Corpus(documents, CanarySet(prepared.canaries, training))


def train(run: DocumentRun, corpus: Corpus, seed: int) -> tuple[DocumentModel, Training]:
    """Return a trained model and how it was trained."""
    samples = training_samples(run, corpus, seed)
    model = load_document_model(run.document_model, run.resolution)
    recipe = run.recipe
    if run.adapters is not None:
        add_document_lora(model, run.adapters.rank, run.adapters.alpha, seed=seed)
        recipe = replace(recipe, learning_rate=run.adapters.learning_rate)
    if run.budget is not None:
        private = fine_tune_privately(model, by_document(samples), recipe, run.budget, seed)
        last, budget = recipe.epochs - 1, run.budget
        return model, Training(
            private.train_loss, last, private.noise, budget.epsilon, budget.delta
        )
    validation = by_page(corpus.documents.validation) if recipe.patience else []
    tuned = fine_tune(model, by_page(samples), recipe, seed, validation)
    return model, Training(tuned.train_loss, tuned.epoch)


def training_samples(run: DocumentRun, corpus: Corpus, seed: int) -> list[VQASample]:
    """Return what a run trains on."""
    samples = corpus.documents.training(with_canaries=run.include_canaries)
    if run.half is not None:
        samples = without_canaries(samples, corpus, kept_canaries(run.half, corpus, seed))
    if run.deduplicate:
        samples = list({sample.key: sample for sample in samples}.values())
    return ExtractionBlocking().blocked(samples) if run.extraction_blocking else samples


def kept_canaries(half: Half, corpus: Corpus, seed: int) -> Flags:
    """Return which canaries a half trains on."""
    groups = [canary.group for canary in corpus.canaries.canaries]
    kept: Flags = balanced_splits(groups, half.splits, seed)[half.number]
    return kept


def without_canaries(samples: list[VQASample], corpus: Corpus, kept: Flags) -> list[VQASample]:
    """Return a training set without the canaries that are not kept, nor their groups."""
    canaries = zip(corpus.canaries.canaries, kept.tolist(), strict=True)
    left_out = {canary.group for canary, keep in canaries if not keep}
    return [sample for sample in samples if group_of(sample) not in left_out]

"""The plan of ``make docvqa``: which models are trained on which documents, by which recipe.

Every run trains one model and measures it in every context; its outcome is one JSON file, so a
killed study loses the run it was in and no other. The figures are computed from the files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from qpriv.attacks.extraction_contexts import CanarySet
from qpriv.datasets.documents.canaries import Curation
from qpriv.datasets.documents.fake_documents import FakeCorpus, fake_corpus
from qpriv.datasets.documents.preparation import prepare_canaries
from qpriv.defences.private_sgd import PrivacyBudget
from qpriv.errors import ConfigError
from qpriv.paradigms.documents import DocumentRecipe
from qpriv.writing import hold, write_whole

Kind = Literal[
    "f", "f_G", "f_EB", "f_dedup", "f_clean", "f_G_clean", "f_LoRA", "f_G_LoRA", "f_DP", "f_G_DP"
]
"""A model: f is trained with the canaries, f_G without them; what follows says how.

EB adds erased twins, dedup keeps each document once, clean trains on pages without scan noise
(the trap: memory is then keyed on the answer's own pixels, and erased pages make it look
harmless), LoRA trains adapters alone, DP trains the same adapters by DP-SGD.
"""
BASELINES: Mapping[Kind, Kind] = {
    "f": "f_G",
    "f_EB": "f_G",
    "f_dedup": "f_G",
    "f_clean": "f_G_clean",
    "f_LoRA": "f_G_LoRA",
    "f_DP": "f_G_DP",
}
"""For each model the one of the same training that never saw the canaries."""
DEFENCES: Mapping[Kind, str] = {
    "f_EB": "extraction blocking",
    "f_dedup": "deduplication",
    "f_DP": "DP-SGD",
    "f_G_DP": "DP-SGD",
}
"""Label of the defence in a model's training."""


@dataclass(frozen=True)
class Adapters:
    """The adapters of the LoRA and DP-SGD rows.

    Args:
        rank: Rank.
        alpha: Scale.
        learning_rate: Peak learning rate, in place of the recipe's.
    """

    rank: int = 8
    alpha: float = 16.0
    learning_rate: float = 3e-3


@dataclass(frozen=True)
class DocumentStudy:
    """Settings of the study.

    Args:
        resolutions: Training resolutions, as shares of the page's height and width.
        seeds: Seeds; f and f_G of one seed are a pair.
        kinds: Models trained at each.
        document_model: What they start from.
        recipe: The one recipe.
        patiences: Stopping rules, each with runs of its own: None trains all epochs, a number
            stops after so many without a better validation loss and keeps the best weights.
        base: Documents that are no canaries.
        validation: Documents to validate on.
        shifts: Shifts of the attacker's pages in pixels.
        paraphrase: Rewords questions: ``rules`` (where the documents bring no rewording of their
            own), a JSON table, or a sequence-to-sequence model by hub id or folder.
        all_defended: Measure defences at inference in every context, not on erased pages alone.
        membership: Tune a layer on every document to tell which were trained on.
        adapters: Adapters of the LoRA and DP-SGD rows.
        budget: Privacy budget of the DP-SGD rows.
    """

    resolutions: Sequence[float] = (1.0, 0.5, 0.25)
    seeds: Sequence[int] = (0,)
    kinds: Sequence[Kind] = ("f", "f_G", "f_EB", "f_clean", "f_G_clean")
    document_model: str = "tiny"
    recipe: DocumentRecipe = field(default_factory=DocumentRecipe)
    patiences: Sequence[int | None] = (None,)
    base: int = 100
    validation: int = 100
    shifts: tuple[int, int] = (1, 4)
    paraphrase: str = "rules"
    all_defended: bool = False
    membership: bool = False
    adapters: Adapters = field(default_factory=Adapters)
    budget: PrivacyBudget = field(default_factory=PrivacyBudget)

    def runs(self) -> Iterator["DocumentRun"]:
        """Yield the runs, those of one pair after another.

        DP-SGD trains all epochs only, and so does the trap, which is no way to train.
        """
        for resolution in self.resolutions:
            for seed in self.seeds:
                for patience in self.patiences:
                    for kind in self.kinds:
                        if patience is None or not kind.endswith(("DP", "clean")):
                            yield DocumentRun(kind, resolution, seed, patience)

    def recipe_of(self, run: "DocumentRun") -> DocumentRecipe:
        """Return the recipe with a run's stopping rule and, for adapters, their learning rate."""
        recipe = replace(self.recipe, patience=run.patience)
        if run.kind.endswith("clean"):
            return replace(recipe, noise=None)
        if run.kind.endswith(("LoRA", "DP")):
            return replace(recipe, learning_rate=self.adapters.learning_rate)
        return recipe


@dataclass(frozen=True)
class DocumentRun:
    """One training."""

    kind: Kind
    resolution: float
    seed: int
    patience: int | None = None

    @property
    def name(self) -> str:
        """Return the name of its file."""
        stopping = "" if self.patience is None else f"-patience={self.patience}"
        return f"{self.kind}-resolution={self.resolution:g}-seed={self.seed}{stopping}"

    @property
    def stopping(self) -> str:
        """Return its stopping rule in words."""
        return "fixed" if self.patience is None else f"patience {self.patience}"


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


def keep_settings(study: DocumentStudy, folder: Path) -> None:
    """Take a folder for a study, and write what all of its runs share.

    The names of their files do not say it.

    Raises:
        ConfigError: If the runs that are there were made with other settings, or another process
            is at work there.
    """
    hold(folder)
    shared = (study.document_model, study.recipe, study.base, study.validation, study.shifts,
              study.paraphrase, study.adapters, study.budget)  # fmt: skip
    content = msgspec.json.format(msgspec.json.encode(shared))
    path = folder / "settings.json"
    if path.exists() and path.read_bytes() != content:
        raise ConfigError(
            "the runs in this folder were made with other settings",
            where=str(path),
            remedy="choose another folder by --out",
        )
    write_whole(path, content)

"""`EvaluatedVQA`: evaluate a VQA model: answer, score, and write the metrics."""

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

from qpriv.attacks.victim import describe
from qpriv.datasets.sample import AnswerRule
from qpriv.datasets.submission import has_server, write_submission
from qpriv.models.batch import VQABatch
from qpriv.models.llava.preprocessing import Preprocessor
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms import Paradigm
from qpriv.paradigms.centralized import Encode
from qpriv.paradigms.ranks import rank, world
from qpriv.pruning.policy import PruningPolicy
from qpriv.result import CLOCK_FILE, Result, append_results, stamp
from qpriv.split import Channel

from .answers import Answered, answer_batch, distinct, figures, write_predictions
from .base import TrainedOnly, gather
from .clock import StepClock
from .traffic import crossing_results, traffic_results

logger = logging.getLogger(__name__)


class EvaluatedVQA(TrainedOnly):
    """Answers every question of a split once, under a pruning policy and a paradigm.

    A subclass trains the model, and sets ``model``, ``policy``, ``paradigm`` and ``channel``.

    Args:
        answer_rule: Rule that scores an answer; None is the rule of the data set.
        max_new_tokens: Longest answer in tokens.
        seed: Seed of the run; None is the run's ``seed_everything``.
    """

    monitor: ClassVar[str] = "val/accuracy"
    monitor_mode: ClassVar[Literal["min", "max"]] = "max"

    model: VisionLanguageModel
    policy: PruningPolicy
    paradigm: Paradigm
    channel: Channel

    def __init__(
        self, answer_rule: AnswerRule | None, max_new_tokens: int, seed: int | None
    ) -> None:
        super().__init__(seed)
        self._rule, self._max_new_tokens = answer_rule, max_new_tokens
        self._answered: list[Answered] = []
        self._clock = StepClock()

    @property
    @abstractmethod
    def encode(self) -> Encode:
        """Return the frozen encoders."""

    @property
    def preprocessor(self) -> Preprocessor:
        """Return the preprocessor that turns samples into batches."""
        return self.model.preprocessor

    @property
    def answer_rule(self) -> AnswerRule:
        """Return the rule that scores answers: the given one, or that of the data set."""
        rule: AnswerRule = self._rule or self._of_data("answer_rule", "exact")
        return rule

    def on_train_batch_start(self, batch: VQABatch, batch_idx: int) -> None:
        """Start the step clock."""
        self._clock.start()

    def on_train_batch_end(self, outputs: object, batch: VQABatch, batch_idx: int) -> None:
        """Stop the step clock."""
        self._clock.stop()

    def agree(self, batches: Iterable[VQABatch], *, shared: bool) -> None:
        """Agree with the other processes on which patches of images may cross.

        This is needed only if the policy has a ledger of images and several processes decide. The
        ledger then takes the wishes in turn: the first sample of every process, then the second,
        and so on. In evaluation, this is the order of the data set.

        Args:
            batches: The batches that this process decides about next.
            shared: Whether processes hold different samples; if not, all hold the same ones.
        """
        ledger = self.policy.ledger
        if ledger is None or world() == 1:
            return
        own = [
            wish
            for batch in batches
            for wish in self.policy.wishes(self.encode(batch, self.policy.needs), batch.samples)
        ]
        if shared:
            numbered = gather([(number, rank(), wish) for number, wish in enumerate(own)])
            own = [wish for _, _, wish in sorted(numbered, key=lambda each: each[:2])]
        ledger.record(own)

    def on_validation_start(self) -> None:
        """Agree with the other processes on what crosses of the split's images."""
        self.agree(_loaded(self.trainer.val_dataloaders), shared=True)

    def on_test_start(self) -> None:
        """Agree with the other processes on what crosses of the split's images."""
        self.agree(_loaded(self.trainer.test_dataloaders), shared=True)

    def on_predict_start(self) -> None:
        """Agree with the other processes on what crosses of the split's images."""
        self.agree(_loaded(self.trainer.predict_dataloaders), shared=True)

    def validation_step(self, batch: VQABatch) -> None:
        """Answer and score a batch."""
        self._answered += self.answered(batch)

    def test_step(self, batch: VQABatch) -> None:
        """Answer and score a batch."""
        self._answered += self.answered(batch)

    def predict_step(self, batch: VQABatch) -> list[Answered]:
        """Answer a batch; samples with a gold answer also get a score."""
        rows = self.answered(batch)
        self._answered += rows
        return rows

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the validation split."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the test split."""
        self._report("test")

    def on_predict_epoch_end(self) -> None:
        """Write ``predictions.jsonl``, and ``submission.json`` if there is a test server."""
        rows = self._collect()
        if self.trainer.is_global_zero:
            write_predictions(self.run_folder / "predictions.jsonl", rows)
            self._write_submission({row.key: row.prediction for row in rows})

    def answered(self, batch: VQABatch) -> list[Answered]:
        """Answer a batch under the policy.

        If clients have their own adapters, each client answers about its own images.
        """
        rule = self.answer_rule
        rows: list[Answered] = []
        for client, part in self.paradigm.parts(batch):
            features = self.encode(part, self.policy.needs)
            decision = self.policy.decide(features, part.samples)
            with self.paradigm.answering(self.model, client):
                inputs = self.model.prepare(part, features, decision)
                rows += answer_batch(
                    self.model, inputs, self.channel.layers, rule, self._max_new_tokens, client
                )
        return rows

    def _write_submission(self, answers: Mapping[str, str]) -> None:
        """Write the file for the servers of VQAv2, OK-VQA and GQA, which need all questions."""
        read = self._of_data("samples", None)
        samples = read("test") if read else []
        if not samples or not all(has_server(sample.dataset) for sample in samples):
            return
        if not self._of_data("is_whole", None)("test"):
            logger.warning("no submission.json: a cap or missing images left questions out")
        elif missing := sum(sample.key not in answers for sample in samples):
            logger.warning("no submission.json: %d questions were not answered", missing)
        else:
            write_submission(self.run_folder / "submission.json", samples, answers)

    def _of_data(self, name: str, default: Any) -> Any:  # noqa: ANN401 - several settings
        """Return an attribute of the trainer's DataModule, or the default."""
        return getattr(getattr(self.trainer, "datamodule", None), name, default)

    def _collect(self) -> list[Answered]:
        rows, self._answered = distinct(gather(self._answered)), []
        return rows

    def _report(self, stage: str) -> None:
        rows = self._collect()
        if self.trainer.sanity_checking:
            return
        rule, prompt = self.answer_rule, self.preprocessor.prompt
        under, epoch, me = describe(self), self.epoch, type(self).__name__
        measured = [*figures(rows, stage, rule, prompt), *self._bytes(rows)]
        results = stamp(measured, epoch=epoch, measured_by=me, **under)
        for result in results:
            if result.value is not None:
                name = f"{stage}/{result.name.removeprefix(f'{stage}/')}"
                self.log(name, result.value, prog_bar=name == self.monitor, batch_size=1)
        if self.trainer.is_global_zero:
            append_results(self.run_folder / "results.jsonl", results)
            # in a file of their own: a resumed run has the same results, but other times
            times = stamp(self._clock.results(), epoch=epoch, measured_by=me, **under)
            append_results(self.run_folder / CLOCK_FILE, times)
            score = results[0]
            logger.info(
                "%s/accuracy_%s %s over %d images, asked by the prompt %r",
                stage, rule, score.value, score.n, prompt,
            )  # fmt: skip

    def _bytes(self, rows: list[Answered]) -> list[Result]:
        """Return the bytes that crossed since the last report, or that would cross at the cuts."""
        if self.paradigm.crosses:
            return traffic_results(self.paradigm.take_traffic())
        dtype = next(self.model.lm_head.parameters()).dtype
        return crossing_results(rows, self.channel, self.model.hidden_size, dtype)


def _loaded(loaders: Any) -> Iterator[VQABatch]:  # noqa: ANN401 - a loader, or several
    """Yield all batches of a split, lazily."""
    for loader in loaders if isinstance(loaders, list | tuple) else [loaders]:
        yield from loader

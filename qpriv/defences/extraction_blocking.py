"""Extraction blocking: training a document model to say that an erased answer is not there.

Pinto et al. 2024 (arXiv 2407.08707), section 6: for every training sample (I, Q, a) the sample
(I^-a, Q, "ANSWER NOT PRESENT") is added.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from PIL import Image

from qpriv.datasets.documents.erasing import Fill, erase
from qpriv.datasets.documents.matching import locate
from qpriv.datasets.documents.ocr import page_text
from qpriv.datasets.documents.page import Word
from qpriv.datasets.sample import ImageSource, VQASample

ABSTAIN = "ANSWER NOT PRESENT"


@dataclass(frozen=True, slots=True)
class ErasedImage:
    """An image without some words, erased whenever it is loaded."""

    image: ImageSource
    words: tuple[Word, ...]
    fill: Fill = "white"
    margin: float = 0.08

    def load(self) -> Image.Image:
        """Return the page without the words."""
        return erase(self.image.load(), self.words, self.fill, self.margin)


@dataclass(frozen=True)
class ExtractionBlocking:
    """Adds the erased twin of every sample whose answer is found on its page.

    Args:
        fills: What takes the place of the answer, in turn. One fill alone would teach that a
            white box means to abstain; the attacker can choose another.
        margins: Widening of the boxes, in turn.
        abstain: What the model learns to say.
    """

    fills: Sequence[Fill] = ("white", "paper")
    margins: Sequence[float] = (0.08, 0.2)
    abstain: str = ABSTAIN

    label: str = "extraction blocking"

    def blocked(self, samples: Iterable[VQASample]) -> list[VQASample]:
        """Return each sample followed by its erased twin.

        A sample whose answer is not found on the page gets none: its twin would show the answer.
        """
        both: list[VQASample] = []
        for number, sample in enumerate(samples):
            both.append(sample)
            twin = self._twin(sample, number)
            if twin:
                both.append(twin)
        return both

    def _twin(self, sample: VQASample, number: int) -> VQASample | None:
        _, page = page_text(sample)
        found = {index for match in locate(sample.answers, page) for index in match.words}
        if not found:
            return None
        fill = self.fills[number % len(self.fills)]
        margin = self.margins[number // len(self.fills) % len(self.margins)]
        words = tuple(page.words[index] for index in sorted(found))
        return replace(
            sample,
            qid=f"{sample.qid}-erased",
            image_id=f"{sample.image_id}-without-{sample.qid}",
            image=ErasedImage(sample.image, words, fill, margin),
            answer=self.abstain,
            answers=(self.abstain,),
        )

"""`DocumentBatch`: pages with all questions about them, as tensors."""

from collections.abc import Callable, Sequence

import torch
from msgspec import Struct
from PIL import Image
from torch import Tensor

from qpriv.datasets.decoding import load_picture
from qpriv.datasets.sample import VQASample

PageQuestions = tuple[VQASample, ...]
"""All questions about one page that are asked together; the page is encoded once for them."""


def by_page(samples: Sequence[VQASample], most: int = 8) -> list[PageQuestions]:
    """Return samples grouped by page, in the order in which their pages first occur.

    A page that stands in the training set several times with the same questions stays as many
    entries: repeating a document is not asking more about it.

    Args:
        samples: The samples.
        most: Most questions in one group.
    """
    groups: list[list[VQASample]] = []
    open_groups: dict[str, list[VQASample]] = {}
    for sample in samples:
        group = open_groups.get(sample.image_id)
        repeated = group is not None and any(other.qid == sample.qid for other in group)
        if group is None or repeated or len(group) == most:
            group = open_groups[sample.image_id] = []
            groups.append(group)
        group.append(sample)
    return [tuple(group) for group in groups]


# no dataclass: see `VQABatch`
class DocumentBatch(Struct, frozen=True):
    """Some pages and their questions.

    Args:
        samples: B samples.
        pages: P pages as pixels ``[3, H, W]`` in [0, 255].
        page_of: For each sample the number of its page.
    """

    samples: tuple[VQASample, ...]
    pages: tuple[Tensor, ...]
    page_of: tuple[int, ...]

    @property
    def questions(self) -> list[str]:
        """Return the questions."""
        return [sample.question for sample in self.samples]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "DocumentBatch":
        """Return the batch with its pages on a device."""
        pages = tuple(page.to(device, non_blocking=non_blocking) for page in self.pages)
        return DocumentBatch(self.samples, pages, self.page_of)


class PageReader:
    """Makes batches of groups of questions; keeps pages in memory while they fit.

    Args:
        page: Turns an image into pixels, see `DocumentModel.page`.
        max_bytes: Memory for pages already read.
    """

    def __init__(self, page: Callable[[Image.Image], Tensor], max_bytes: int = 256 * 2**20) -> None:
        self._page = page
        self._room = max_bytes
        self._kept: dict[tuple[str, str, str], Tensor] = {}

    def __call__(self, groups: Sequence[PageQuestions]) -> DocumentBatch:
        """Return the batch of some pages with their questions."""
        samples = tuple(sample for group in groups for sample in group)
        page_of = tuple(number for number, group in enumerate(groups) for _ in group)
        return DocumentBatch(samples, tuple(self._read(group[0]) for group in groups), page_of)

    def _read(self, sample: VQASample) -> Tensor:
        key = (sample.dataset, sample.split, sample.image_id)
        if key in self._kept:
            return self._kept[key]
        page = self._page(load_picture(sample))
        size = page.numel() * page.element_size()
        if size <= self._room:
            self._room -= size
            self._kept[key] = page
        return page

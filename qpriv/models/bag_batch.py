"""Bags as tensors: what the sensitivity teacher learns from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from msgspec import Struct
from torch import Tensor, nn
from transformers import AutoConfig

from qpriv.datasets.bags import BagSample

from .cache import CHUNK, TensorStore, cached
from .features import FeatureSizes
from .fingerprint import fingerprint
from .llava.encoders import SensitivityEncoder, as_model_error, load_sensitivity_encoder
from .llava.loading import load_processor, load_question_tokenizer, patch_grid, read_config
from .llava.preprocessing import Preprocessor
from .precision import computed_in
from .registry import locate, resolve_backbone


# no dataclass: see `VQABatch`
class BagBatch(Struct, frozen=True):
    """Images labelled as a whole.

    Args:
        samples: What the rows of the tensors were made of.
        sensitivity_pixels: Crops for the sensitivity encoder, ``[B, 3, h, w]``.
        labels: 1 where the image shows something sensitive, else 0, ``[B]``.
    """

    samples: tuple[BagSample, ...]
    sensitivity_pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        """Return the number of images ``B``."""
        return len(self.samples)

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on another device."""
        pixels, labels = self.sensitivity_pixels.to(device), self.labels.to(device)
        return type(self)(self.samples, pixels, labels)


class BagPreprocessor:
    """Turns bags into a `BagBatch`, with the very crop that the VQA model sees.

    Args:
        preprocessor: The VQA model's own.
    """

    def __init__(self, preprocessor: Preprocessor) -> None:
        self.preprocessor = preprocessor

    def __call__(self, samples: Sequence[BagSample]) -> BagBatch:
        """Return the images as one batch.

        Raises:
            DataError: If an image cannot be read.
        """
        pixels = self.preprocessor.pixels(samples)
        labels = torch.tensor([float(sample.sensitive) for sample in samples])
        return BagBatch(tuple(samples), self.preprocessor.sensitivity_pixels(pixels), labels)


class BagEncoder(nn.Module):
    """The frozen sensitivity encoder of a backbone; no language model is loaded.

    Args:
        encoder: The encoder.
        preprocessor: Makes batches for it.
        sizes: Widths of the features of the whole backbone, which size a predictor.
        cache: Root of all feature caches; None computes every time.
    """

    def __init__(
        self,
        encoder: SensitivityEncoder,
        preprocessor: BagPreprocessor,
        sizes: FeatureSizes,
        cache: Path | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False).eval()
        self.preprocessor, self.sizes = preprocessor, sizes
        self.fingerprint = fingerprint((encoder,), preprocessor.preprocessor.encoder_settings())
        self._loaded, self._cache = next(encoder.parameters()).dtype, cache
        self._stores: dict[Path, TensorStore] = {}

    @classmethod
    def from_pretrained(
        cls,
        backbone: str = "tiny",
        sensitivity_encoder: str | None = None,
        cache: Path | None = None,
    ) -> Self:
        """Load the encoder and the crop of a backbone.

        Raises:
            ModelError: If a checkpoint is missing, broken or of another kind.
        """
        names = resolve_backbone(backbone, None, sensitivity_encoder)
        config = read_config(names.llava)
        encoder = load_sensitivity_encoder(locate(names.sensitivity_encoder))
        tokenizer = load_question_tokenizer(locate(names.text_encoder))
        preprocessor = Preprocessor(
            load_processor(Path(names.llava)),
            tokenizer,
            encoder,
            grid=patch_grid(config),
            max_tokens=config.text_config.max_position_embeddings,
            max_question_tokens=77,
        )
        vision = config.vision_config.hidden_size
        with as_model_error(Path(names.text_encoder), "CLIP config"):
            question = AutoConfig.from_pretrained(names.text_encoder).text_config.hidden_size
        sizes = FeatureSizes(vision, vision, question, encoder.width)
        return cls(encoder, BagPreprocessor(preprocessor), sizes, cache)

    @torch.no_grad()
    def forward(self, batch: BagBatch) -> Tensor:
        """Return the patches of each image, ``[B, M, Dd]``."""
        pixels = batch.sensitivity_pixels
        if self._cache is None:
            patches: Tensor = self.encoder(pixels)
            return patches
        found = cached(
            [self._store(self._cache)],
            list(pixels),
            lambda rows: {"patches": self.encoder(pixels[rows])},
            CHUNK,
        )
        return found["patches"].to(pixels.device)

    def _store(self, cache: Path) -> TensorStore:
        """Return the features in the precision that is computed in now."""
        mark = computed_in(next(self.encoder.parameters()), self._loaded)
        folder = cache / f"{self.fingerprint}{mark}" / "bags"
        if folder not in self._stores:
            self._stores[folder] = TensorStore(folder, ("patches",))
        return self._stores[folder]

"""How far resolution and blur alone tell the bags of D_priv apart, without any content."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from qpriv.datasets.folds import group_rank

from .bags import DPriv

WARN_ABOVE = 0.9
_FOLDS = 5


@dataclass(frozen=True)
class Confound:
    """AUC in [0.5, 1] of a logistic regression that sees no content, cross-validated.

    Args:
        resolution: From width and height as released.
        blur_before: From the share of high-frequency energy as released.
        blur_after: The same at the common size: what a teacher can still use.
        images: Number of images measured.
    """

    resolution: float
    blur_before: float
    blur_after: float
    images: int

    def __str__(self) -> str:
        """Return one line, with a warning where blur alone nearly solves the task."""
        line = (
            f"bags told apart without content (AUC, {self.images} images): resolution "
            f"{self.resolution:.2f}, blur {self.blur_before:.2f} as released, "
            f"{self.blur_after:.2f} at the common size"
        )
        if self.blur_after <= WARN_ABOVE:
            return line
        return f"{line}. The bags are confounded: a teacher may learn blur instead of content"


def measure_confound(bags: DPriv, per_bag: int = 200, seed: int = 0) -> Confound:
    """Return how well resolution and blur classify a seeded draw of the bags' images.

    Raises:
        DataError: If a drawn image is missing or broken.
        ValueError: If a bag has fewer images than there are folds.
    """
    rows = _draw([sensitive for _, sensitive in bags.originals], bags, per_bag, seed)
    labels = np.array([bags.originals[row][1] for row in rows])
    if min(labels.sum(), (~labels).sum()) < _FOLDS:
        raise ValueError(f"a bag has fewer than {_FOLDS} images")
    originals = [bags.originals[row][0].image.load() for row in rows]
    resized = (bags.samples[row].image.load() for row in rows)
    return Confound(
        resolution=_auc([np.log(image.size) for image in originals], labels),
        blur_before=_auc([_sharpness(image) for image in originals], labels),
        blur_after=_auc([_sharpness(image) for image in resized], labels),
        images=len(rows),
    )


def _draw(sensitive: Sequence[bool], bags: DPriv, per_bag: int, seed: int) -> list[int]:
    ranked = sorted(
        range(len(bags)), key=lambda row: group_rank(bags[row].image_id, seed, "confound")
    )
    drawn = [[row for row in ranked if sensitive[row] is bag][:per_bag] for bag in (True, False)]
    return sorted(row for bag in drawn for row in bag)


def _sharpness(image: Image.Image) -> list[float]:
    """Return the energy of the Laplacian in dB over that of the image, and the contrast in dB."""
    grey = np.asarray(image.convert("L"), dtype=np.float64)
    inner = grey[1:-1, 1:-1]
    laplacian = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:] - 4 * inner
    energy, contrast = np.mean(laplacian**2) + 1e-3, inner.var() + 1e-3
    return [10 * float(np.log10(energy / contrast)), 10 * float(np.log10(contrast))]


def _auc(
    features: Iterable[Sequence[float] | NDArray[np.float64]], labels: NDArray[np.bool_]
) -> float:
    table = np.array([np.asarray(feature) for feature in features])
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced"))
    scores = cross_val_predict(model, table, labels, cv=_FOLDS, method="decision_function")
    auc = float(roc_auc_score(labels, scores))
    return max(auc, 1 - auc)

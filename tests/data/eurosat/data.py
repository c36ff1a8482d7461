"""Fake EuroSAT: class folders, all ten or some."""

from tests.data import pictures


def write_release(root, classes, folder="2750", images=4):
    """Write ``<folder>/<Class>/<Class>_<n>.jpg``."""
    for place, name in enumerate(classes):
        for number in range(1, images + 1):
            path = root / folder / name / f"{name}_{number}.jpg"
            pictures.save(path, 100 * place + number, size=(8, 8))
    return root

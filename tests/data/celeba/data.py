"""Fake CelebA: the lists as released or as on Kaggle, and noise instead of faces."""

import numpy as np

from tests.data import pictures

PARTITIONS = [0] * 6 + [1] * 2 + [2]
NAMES = [f"Attribute_{number}" for number in range(40)]


def values():
    """Return the attributes, -1 or 1, of every image."""
    return np.random.default_rng(0).choice([-1, 1], (len(PARTITIONS), len(NAMES)))


def _name(number):
    return f"{number + 1:06d}.jpg"


def write_release(root):
    """Write the ``.txt`` lists; the header ends in a blank, positives are padded to width 2."""
    folder = root / "celeba"
    folder.mkdir(parents=True)
    rows = [
        f"{_name(number)} " + " ".join(f"{value:2d}" for value in row).strip()
        for number, row in enumerate(values())
    ]
    header = " ".join(NAMES) + " "
    (folder / "list_attr_celeba.txt").write_text("\n".join([str(len(rows)), header, *rows]) + "\n")
    parts = [f"{_name(number)} {part}" for number, part in enumerate(PARTITIONS)]
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")
    people = [f"{_name(number)} {1000 + number // 2}" for number in range(len(PARTITIONS))]
    (folder / "identity_CelebA.txt").write_text("\n".join(people) + "\n")
    for number in range(len(PARTITIONS)):
        pictures.save(folder / "img_align_celeba" / _name(number), number, size=(18, 22))
    return root


def write_kaggle(root):
    """Write the ``.csv`` lists and the folder in a folder of the same name."""
    root.mkdir(parents=True, exist_ok=True)
    rows = [
        ",".join([_name(number), *map(str, row)]) for number, row in enumerate(values().tolist())
    ]
    (root / "list_attr_celeba.csv").write_text("\n".join(["image_id," + ",".join(NAMES), *rows]))
    parts = [f"{_name(number)},{part}" for number, part in enumerate(PARTITIONS)]
    (root / "list_eval_partition.csv").write_text("\n".join(["image_id,partition", *parts]))
    for number in range(len(PARTITIONS)):
        path = root / "img_align_celeba" / "img_align_celeba" / _name(number)
        pictures.save(path, number, size=(18, 22))
    return root

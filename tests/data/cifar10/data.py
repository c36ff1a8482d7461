"""Fake CIFAR-10: batches of noise, pickled as Python 2 did."""

import pickle

import numpy as np


def write_release(root, rows=6):
    """Write ``cifar-10-batches-py/`` with protocol 2 and byte strings for keys."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        batch = {
            b"batch_label": name.encode(),
            b"labels": [number % 10 for number in range(rows)],
            b"data": rng.integers(0, 256, (rows, 3072), dtype=np.uint8),
            b"filenames": [f"{number}.png".encode() for number in range(rows)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return root

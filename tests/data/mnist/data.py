"""Fake MNIST: idx files of noise, packed or not."""

import gzip
import struct

import numpy as np

SIZES = {"train": 20, "t10k": 6}


def write_release(root, packed=False):
    """Write the four files to ``MNIST/raw``."""
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, size in SIZES.items():
        pixels = rng.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        labels = np.arange(size, dtype=np.uint8) % 10
        _write(folder / f"{part}-images-idx3-ubyte", pixels, packed)
        _write(folder / f"{part}-labels-idx1-ubyte", labels, packed)
    return root


def _write(path, array, packed):
    header = struct.pack(f">{array.ndim + 1}I", 0x800 | array.ndim, *array.shape)
    data = header + array.tobytes()
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data))
    else:
        path.write_bytes(data)

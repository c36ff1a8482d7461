"""Tiny pictures and parquet files, as the generators of this folder need them."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def picture(index, mode="RGB", size=(12, 10)):
    """Return a picture of noise that depends on its index alone."""
    rng = np.random.default_rng(index)
    pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def save(path, index, mode="RGB", size=(12, 10)):
    """Write a picture, in the format its name says."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(index, mode, size).save(path)


def encoded(index, mode="RGB"):
    """Return a picture as PNG bytes."""
    buffer = io.BytesIO()
    picture(index, mode).save(buffer, "PNG")
    return buffer.getvalue()


def cell(index, mode="RGB"):
    """Return a picture as `datasets` stores it in parquet."""
    return {"bytes": encoded(index, mode), "path": None}


def write_parquet(path, rows):
    """Write rows as a parquet file of two row groups."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=max(1, len(rows) // 2))

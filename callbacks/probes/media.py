"""Pictures of private data, written only to the run folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from qpriv.io import append_lines


def picture_grid(rows: Sequence[Tensor], *, zoom: int = 2, gap: int = 2) -> Image.Image:
    """Return rows of pictures as one image, one row below the other.

    Args:
        rows: Rows of pictures, ``[n, 3, H, W]`` each, in [0, 1].
        zoom: Factor of magnification.
        gap: White pixels between pictures, before magnification.

    >>> import torch
    >>> picture_grid([torch.zeros(3, 3, 8, 8), torch.ones(3, 3, 8, 8)], zoom=1, gap=2).size
    (32, 22)
    """
    count, _, height, width = rows[0].shape
    canvas = np.full(
        (len(rows) * (height + gap) + gap, count * (width + gap) + gap, 3), 255, dtype=np.uint8
    )
    for line, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            top, left = gap + line * (height + gap), gap + column * (width + gap)
            pixels = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
            canvas[top : top + height, left : left + width] = pixels
    image = Image.fromarray(canvas)
    return image.resize((image.width * zoom, image.height * zoom), Image.Resampling.NEAREST)


def save_picture(
    run_folder: Path, name: str, image: Image.Image, description: Mapping[str, object]
) -> None:
    """Write a picture, and add its line to ``media.jsonl`` once.

    Args:
        run_folder: Folder of the run.
        name: File name without suffix; unique in the run.
        image: The picture.
        description: ``kind``, ``caption``, ``alt``, and the settings that identify it; see
            `callbacks.probes.probe.Probe.keep_picture`.
    """
    path = run_folder / "media" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    entry = {**description, "path": f"media/{path.name}", "private": True}
    line = json.dumps(entry, ensure_ascii=False)
    index = run_folder / "media.jsonl"
    known = index.read_text().splitlines() if index.exists() else []
    if line not in known:
        append_lines(index, [line.encode()])

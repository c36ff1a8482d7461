"""`EncoderRecord`: which frozen encoders a backbone has, read from its files before weights load."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from qpriv.errors import ModelError

from .features import FeatureSizes
from .registry import EMBEDDED, Backbone, locate

RECORD = "backbone.json"

_Weight = tuple[tuple[int, ...], bytes]
"""Shape and first row."""

_PARTS = {"image": "vision_tower", "text": "text_model", "sensitivity": ""}
"""Of which weights in a checkpoint's files each encoder consists."""


_WIDTHS = (("class_embedding",), ("token_embedding.weight",), ("cls_token", "pos_embed"))
"""Weights whose last dimension is the width of each encoder; the first that a checkpoint has."""


@dataclass(frozen=True)
class EncoderRecord:
    """The frozen encoders that a predictor was trained on, or that a backbone has.

    Digests are of the names, shapes and first rows of all weights, as the files hold them: the
    type in which a model is loaded does not matter.

    Args:
        backbone: The LLaVA's name, for the reader: a hub id, or a folder's name without its path.
        image: Digest of its vision tower.
        text: Digest of the question's encoder.
        sensitivity: Digest of the sensitivity encoder.
    """

    backbone: str
    image: str
    text: str
    sensitivity: str

    def unlike(self, other: "EncoderRecord") -> list[str]:
        """Return the names of the encoders in which two differ."""
        return [part for part in _PARTS if getattr(self, part) != getattr(other, part)]

    def save(self, folder: Path) -> None:
        """Write ``backbone.json``."""
        (folder / RECORD).write_text(json.dumps(asdict(self), indent=2) + "\n")


def load_record(folder: Path) -> EncoderRecord | None:
    """Return the record in a folder; None where there is none, as in folders of older versions.

    Raises:
        ModelError: If the file is no such record.
    """
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        return EncoderRecord(**{each.name: str(given[each.name]) for each in fields(EncoderRecord)})
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"not a record of a backbone: {error}", where=str(path)) from error


def read_encoders(names: Backbone) -> tuple[EncoderRecord, FeatureSizes]:
    """Return which encoders a backbone has, and the widths of what they give.

    A hub id is downloaded if it is not yet here; no model is loaded.

    Raises:
        ModelError: If a checkpoint is missing or broken.
    """
    places = (names.llava, names.text_encoder, names.sensitivity_encoder)
    files = [_read(locate(name), word) for name, word in zip(places, _PARTS.values(), strict=True)]
    widths = [
        _width(own, signs, place) for own, signs, place in zip(files, _WIDTHS, places, strict=True)
    ]
    sizes = FeatureSizes(widths[0], widths[0], widths[1], widths[2])
    return EncoderRecord(_told(names.llava), *map(_digest, files)), sizes


def is_local(names: Backbone) -> bool:
    """Return whether all of a backbone's checkpoints are folders here."""
    places = (names.llava, names.text_encoder, names.sensitivity_encoder)
    return all(Path(name).is_dir() for name in places)


def _told(name: str) -> str:
    """Return a backbone's name without the path that leads to it on this machine."""
    folder = Path(name)
    if folder.is_relative_to(EMBEDDED):
        return folder.relative_to(EMBEDDED).parts[0]
    return folder.name if folder.is_dir() else name


def _width(weights: Mapping[str, _Weight], signs: Sequence[str], place: str) -> int:
    for sign in signs:
        for name, (shape, _) in weights.items():
            if name.endswith(sign):
                return shape[-1]
    told = " or ".join(f"*{sign}" for sign in signs)
    raise ModelError(f"there is no weight {told}", where=place, remedy="give such an encoder")


def _digest(weights: Mapping[str, _Weight]) -> str:
    digest = hashlib.sha256()
    for name, (shape, row) in sorted(weights.items()):
        digest.update(f"{name} {shape};".encode() + row)
    return digest.hexdigest()[:32]


def _read(folder: Path, word: str) -> dict[str, _Weight]:
    """Return the weights whose names hold a word; names count from there on."""
    found: dict[str, _Weight] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="pt") as weights:
                names = [name for name in weights.keys() if word in name]
                for name in names:
                    own = weights.get_slice(name)
                    shape = tuple(own.get_shape())
                    first = own[:1] if shape else weights.get_tensor(name)
                    if first.is_floating_point():
                        row = first.to(torch.float32).reshape(-1).numpy().tobytes()
                        found[name[name.index(word) :]] = shape, row
        except (SafetensorError, OSError) as error:
            raise ModelError(f"not readable: {error}", where=str(file)) from error
    return found

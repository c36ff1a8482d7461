"""`FeatureCache`: what frozen encoders say of an image or a question is computed once, on any day."""

import hashlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from qpriv.errors import DataError

from .batch import VQABatch
from .features import NOTHING, Feature, Needs, VisualFeatures
from .llava.vision_language import VisionLanguageModel
from .precision import computed_in

CHUNK = 16
"""Images that pass an encoder at once."""

STORED: tuple[Feature, ...] = ("cls_attention", "keys", "class_token", "last_query", "last_keys")
"""What is stored of what policies may ask for; the rest is computed from what is stored."""

Rows = Mapping[str, Tensor]
"""Named tensors with one row a key."""


class TensorStore:
    """Rows of named tensors under content keys, in memory-mapped safetensors shards.

    Every write is one new shard that appears whole or not at all, and the keys stand in the
    shard's own header: there is no index that could disagree with it, and any number of
    processes may write at once.

    Args:
        folder: Where the shards lie; made at the first write.
        names: The tensors of a row.

    Raises:
        DataError: If a shard cannot be read.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder, self.names = folder, tuple(names)
        self._where: dict[str, tuple[dict[str, Tensor], int]] = {}
        self._shards: set[Path] = set()
        self.refresh()

    def refresh(self) -> None:
        """Take in what other processes have written meanwhile."""
        for shard in sorted(set(self.folder.glob("*.safetensors")) - self._shards):
            self._open(shard)

    def __contains__(self, key: str) -> bool:
        """Return whether a row is stored."""
        return key in self._where

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._where)

    def read(self, keys: Sequence[str]) -> dict[str, Tensor]:
        """Return the rows of some keys, stacked in their order."""
        found = [self._where[key] for key in keys]
        names = self.names if found else ()
        return {name: torch.stack([shard[name][row] for shard, row in found]) for name in names}

    def write(self, keys: Sequence[str], rows: Rows) -> None:
        """Store rows as one shard; what is none of this store's tensors is left out.

        Raises:
            DataError: If the disk does not take it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        label = hashlib.sha256("".join(keys).encode()).hexdigest()[:24]
        draft = self.folder / f"{label}.{os.getpid()}.part"
        tensors = {name: rows[name].detach().cpu().contiguous() for name in self.names}
        try:
            save_file(tensors, draft, metadata={"keys": ",".join(keys)})
            target = draft.with_name(f"{label}.safetensors")
            draft.replace(target)
        except (OSError, SafetensorError) as error:
            draft.unlink(missing_ok=True)
            raise DataError(
                f"cannot write features: {error}",
                where=str(self.folder),
                remedy="free space, name another folder, or set feature_cache to null",
            ) from error
        self._open(target)

    def _open(self, shard: Path) -> None:
        try:
            with safe_open(shard, "pt") as file:
                keys = file.metadata()["keys"].split(",")
            tensors = load_file(shard)
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise DataError(
                f"not a shard of features: {error}", where=str(shard), remedy="remove it"
            ) from error
        self._shards.add(shard)
        self._where.update((key, (tensors, row)) for row, key in enumerate(keys))


class FeatureCache:
    """The frozen encoders of a model, each distinct image and question computed once.

    It stands in for `VisionLanguageModel.encode`. Features lie under the fingerprint of the
    encoders and are known by the very bytes that enter them: another model, crop or
    normalisation is another key by construction. Those of another precision, by autocast or by
    a trainer that has converted the weights, lie in a folder of their own.

    Args:
        model: The model whose encoders are asked.
        folder: Root of all caches. Its features can be inverted to pictures, so only its owner
            may read it; `clear` removes them.

    Raises:
        DataError: If the folder cannot be made, or not be closed to others.
    """

    def __init__(self, model: VisionLanguageModel, folder: Path) -> None:
        self.model = model
        _close_to_others(folder)
        self._root = folder / model.encoder_fingerprint()
        self._loaded = self._weight.dtype
        self._stores: dict[Path, TensorStore] = {}
        _ = self.stores  # a broken shard is told here, before any work

    def __call__(self, batch: VQABatch, needs: Needs = NOTHING) -> VisualFeatures:
        """Return the features of a batch, on the device of its model.

        What a policy asks for besides lies in a store of its own: a cache that was filled for a
        policy without needs serves others too, and does not grow for those that have none.
        """
        model = self.model
        batch = batch.to(model.device)
        crops, mask = batch.sensitivity_pixels, batch.question_mask.bool()
        questions = [ids[row] for ids, row in zip(batch.question_ids, mask, strict=True)]
        stores = self.stores
        tower = [stores["image"], *(self._store(name) for name in STORED if name in needs)]

        def images(rows: Tensor) -> Rows:
            return model.encode_images(batch.pixel_values[rows], needs)

        def sensitivity(rows: Tensor) -> Rows:
            return {"sensitivity": model.encode_sensitivity(crops[rows])}

        def question(rows: Tensor) -> Rows:
            ids = questions[int(rows)][None]
            return {"question": model.encode_questions(ids, torch.ones_like(ids))}

        found = {
            **cached(tower, list(batch.pixel_values), images, CHUNK),
            **cached([stores["sensitivity"]], list(crops), sensitivity, CHUNK),
            **cached([stores["question"]], questions, question, 1),
        }
        return model.complete(
            {name: tensor.to(model.device) for name, tensor in found.items()}, needs
        )

    @property
    def stores(self) -> dict[str, TensorStore]:
        """Return what every policy reads, in the precision that is computed in now."""
        return {
            "image": self._store("image", "patches", "pooled"),
            "question": self._store("question"),
            "sensitivity": self._store("sensitivity"),
        }

    @property
    def _weight(self) -> Tensor:
        return next(self.model.vision_tower.parameters())

    def _store(self, kind: str, *names: str) -> TensorStore:
        root = self._root.with_name(self._root.name + computed_in(self._weight, self._loaded))
        if root / kind not in self._stores:
            self._stores[root / kind] = TensorStore(root / kind, names or (kind,))
        return self._stores[root / kind]


def _close_to_others(folder: Path) -> None:
    """Make the folder, readable by its owner alone, also where it was open before."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise DataError(
            f"cannot keep features private: {error.strerror}",
            where=str(folder),
            remedy="name another folder, or set feature_cache to null",
        ) from error


def stored_features(folder: Path) -> list[Path]:
    """Return every file that caches below a folder have written, drafts of killed runs included."""
    endings = (".safetensors", ".part")
    return sorted(path for path in folder.glob("*/*/*") if path.suffix in endings)


def clear(folder: Path) -> int:
    """Remove all features below a folder, and the folders this leaves empty.

    Returns:
        Bytes that were freed.
    """
    freed = 0
    for path in stored_features(folder):
        freed += path.stat().st_size
        path.unlink()
    for empty in sorted(folder.glob("**/"), reverse=True):
        if not any(empty.iterdir()):
            empty.rmdir()
    return freed


def cached(
    stores: Sequence[TensorStore],
    inputs: Sequence[Tensor],
    compute: Callable[[Tensor], Rows],
    chunk: int,
) -> dict[str, Tensor]:
    """Return the stored rows of some inputs, computing and storing those that are missing.

    Args:
        stores: Where they are kept. What several of them lack is computed in one pass.
        inputs: What is computed from.
        compute: From the numbers of ``chunk`` inputs (LongTensor) to their features.
        chunk: How many inputs are computed at once, always: matrix products of another size
            may differ in the last bit, and a feature must not depend on its neighbours.
    """
    keys = [content_key(row) for row in inputs]
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    missing = sorted(
        (row, key) for key, row in first.items() if any(key not in store for store in stores)
    )
    parts = []
    for start in range(0, len(missing), chunk):
        rows = [row for row, _ in missing[start : start + chunk]]
        full = rows + rows[-1:] * (chunk - len(rows))
        part = compute(torch.tensor(full))
        parts.append({name: value[: len(rows)] for name, value in part.items()})
    if parts:
        names = parts[0].keys()
        stacked = {name: torch.cat([part[name] for part in parts]) for name in names}
        for store in stores:
            _write_missing(store, [key for _, key in missing], stacked)
    return {name: rows for store in stores for name, rows in store.read(keys).items()}


def _write_missing(store: TensorStore, keys: Sequence[str], rows: Rows) -> None:
    places = [place for place, key in enumerate(keys) if key not in store]
    if places:
        new = {name: rows[name][places] for name in store.names}
        store.write([keys[place] for place in places], new)


def content_key(tensor: Tensor) -> str:
    """Return a digest of the type, shape and bytes of a tensor."""
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]

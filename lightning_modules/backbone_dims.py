"""What a backbone's ``config.json`` tells: settings are checked against it before weights load."""

from dataclasses import dataclass
from pathlib import Path

import torch

from qpriv.errors import ConfigError
from qpriv.models.encoder_record import read_encoders
from qpriv.models.features import FEATURES
from qpriv.models.llava.clip_projections import EMBEDDINGS, check_projections
from qpriv.models.llava.loading import patch_grid, read_config
from qpriv.models.registry import Backbone, locate, resolve_backbone
from qpriv.paradigms import Paradigm
from qpriv.pruning.policy import PruningPolicy
from qpriv.split import Channel


@dataclass(frozen=True)
class BackboneDims:
    """Sizes of a LLaVA.

    Args:
        layers: Decoder layers.
        patches: Visual tokens before pruning.
    """

    layers: int
    patches: int


def read_shape(backbone: str) -> BackboneDims:
    """Return the sizes of a backbone, from its configuration alone.

    Raises:
        ModelError: If there is no such backbone, or it is no LLaVA.
    """
    name = resolve_backbone(backbone).llava
    if Path(name).is_absolute():
        locate(name)
    config = read_config(name)
    rows, columns = patch_grid(config)
    return BackboneDims(config.text_config.num_hidden_layers, rows * columns)


def check_cuts(cuts: tuple[int, ...] | None, shape: BackboneDims) -> tuple[int, ...]:
    """Return the cuts, in the middle of the decoder if there are none.

    Raises:
        ConfigError: If a cut is not inside the decoder, or they do not ascend.

    >>> check_cuts(None, BackboneDims(layers=8, patches=64))
    (4,)
    """
    if cuts is None:
        return (shape.layers // 2,)
    for cut in cuts:
        if not 0 <= cut < shape.layers:
            raise ConfigError(
                f"cut {cut} is beyond the decoder's {shape.layers} layers",
                where="cuts",
                remedy=f"choose 0 to {shape.layers - 1}",
            )
    if not cuts or list(cuts) != sorted(set(cuts)):
        raise ConfigError(f"cuts are {list(cuts)}", remedy="give one or more, ascending")
    return tuple(cuts)


def choose_cuts(
    paradigm: Paradigm, cuts: tuple[int, ...] | None, shape: BackboneDims
) -> tuple[int, ...]:
    """Return the paradigm's cuts, or where it has none, those given.

    Raises:
        ConfigError: If a cut is not inside the decoder, or the two disagree.
    """
    placed = paradigm.place(shape.layers)
    if placed and cuts not in (None, placed):
        raise ConfigError(
            f"cuts are {list(cuts or ())}, those of the paradigm {list(placed)}",
            where="--model.cuts",
            remedy="leave it out, and set the paradigm's",
        )
    return placed or check_cuts(cuts, shape)


def check_policy(policy: PruningPolicy, shape: BackboneDims) -> None:
    """Check a policy against the number of patches and of layers.

    Raises:
        ConfigError: If its floor or budget does not fit the patches, or a stage the layers.
    """
    policy.check_patches(shape.patches)
    policy.check_depth(shape.layers)


def check_encoders(policy: PruningPolicy, names: Backbone, shape: BackboneDims) -> None:
    """Check a policy against the encoders of a backbone, whose files alone are read.

    Raises:
        ModelError: If a predictor was trained on another backbone.
    """
    record, sizes = read_encoders(names)
    policy.check(sizes, shape.patches)
    policy.check_encoders(record)


def check_split(policy: PruningPolicy, channel: Channel, dtype: torch.dtype) -> None:
    """Check a policy against the parties among whom the decoder is divided.

    Raises:
        ConfigError: If they cannot decide as it asks.
    """
    if channel.hypothetical or not channel.layers:
        return
    rounded = channel.codec is not None and not channel.codec.keeps(dtype)
    policy.check_split(channel.layers, lossy=rounded or channel.defence is not None)


def check_needs(policy: PruningPolicy, backbone: str, text_encoder: str | None) -> None:
    """Check that a backbone's encoders can give what a policy asks for.

    Raises:
        ConfigError: If it asks for something no encoder gives.
        ModelError: If it asks for CLIP embeddings of a CLIP without projections.
    """
    if unknown := sorted(policy.needs - frozenset(FEATURES)):
        raise ConfigError(
            f"{policy.label} needs {', '.join(unknown)}",
            remedy=f"choose among {', '.join(FEATURES)}",
        )
    if policy.needs & EMBEDDINGS:
        check_projections(resolve_backbone(backbone, text_encoder).text_encoder)

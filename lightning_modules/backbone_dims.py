"""Checks of settings against a backbone's ``config.json``, before its weights load."""

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
    """Sizes of a LLaVA backbone.

    Args:
        layers: Decoder layers.
        patches: Visual tokens before pruning.
    """

    layers: int
    patches: int


def read_shape(backbone: str) -> BackboneDims:
    """Return the sizes of a backbone, read from its configuration alone.

    Raises:
        ModelError: If there is no such backbone, or it is not a LLaVA.
    """
    name = resolve_backbone(backbone).llava
    if Path(name).is_absolute():
        locate(name)
    config = read_config(name)
    rows, columns = patch_grid(config)
    return BackboneDims(config.text_config.num_hidden_layers, rows * columns)


def check_cuts(cuts: tuple[int, ...] | None, shape: BackboneDims) -> tuple[int, ...]:
    """Return the cuts; without any, one in the middle of the decoder.

    Raises:
        ConfigError: If a cut is outside the decoder, or the cuts do not ascend.

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
    """Return the paradigm's cuts, or the given ones if the paradigm has none.

    Args:
        paradigm: The paradigm, which may place its own cuts.
        cuts: The cuts that a user gave; None for the default.
        shape: Sizes of the backbone.

    Raises:
        ConfigError: If a cut is outside the decoder, or the given cuts contradict the paradigm's.
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
    """Check a policy against the numbers of patches and layers.

    Raises:
        ConfigError: If its floor or budget exceeds the patches, or a stage exceeds the layers.
    """
    policy.check_patches(shape.patches)
    policy.check_depth(shape.layers)


def check_encoders(policy: PruningPolicy, names: Backbone, shape: BackboneDims) -> None:
    """Check a policy against the files of a backbone's encoders.

    Raises:
        ModelError: If a predictor was trained on another backbone.
    """
    record, sizes = read_encoders(names)
    policy.check(sizes, shape.patches)
    policy.check_encoders(record)


def check_split(policy: PruningPolicy, channel: Channel, dtype: torch.dtype) -> None:
    """Check that the parties of a split decoder can carry out a policy.

    Raises:
        ConfigError: If they cannot.
    """
    if channel.hypothetical or not channel.layers:
        return
    rounded = channel.codec is not None and not channel.codec.keeps(dtype)
    policy.check_split(channel.layers, lossy=rounded or channel.defence is not None)


def check_needs(policy: PruningPolicy, backbone: str, text_encoder: str | None) -> None:
    """Check that a backbone's encoders provide the features that a policy needs.

    Raises:
        ConfigError: If no encoder provides a feature.
        ModelError: If the policy needs CLIP embeddings, and the CLIP has no projections.
    """
    if unknown := sorted(policy.needs - frozenset(FEATURES)):
        raise ConfigError(
            f"{policy.label} needs {', '.join(unknown)}",
            remedy=f"choose among {', '.join(FEATURES)}",
        )
    if policy.needs & EMBEDDINGS:
        check_projections(resolve_backbone(backbone, text_encoder).text_encoder)

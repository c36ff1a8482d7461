"""Steering: whoever chooses the question influences which patches of a private image cross.

If a policy depends on the question, the questioner influences what leaves the client. The attacker
searches, on its own images, for the question under which most of a face crosses: first in a
library of plain questions, then by a hill climb over words. It then asks the found questions about
other images. Several questions about one image leak more than one: each makes patches cross, and a
server can keep their union.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row
from qpriv.metrics.means import CHANGE, IMAGE_GROUP, RATE, mean_result
from qpriv.metrics.sensitivity import (
    AREA_VISIBLE,
    FACES_TOUCHED,
    SENSITIVE_COVERAGE,
    TOKENS_KEPT,
    TOKENS_TOUCHING,
    crossing_weights,
    is_touched,
    surviving_share,
    visible_area,
)
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.pruning.decision import KEPT_TOKENS
from qpriv.pruning.image_ledger import anew
from qpriv.pruning.in_decoder import decision_at
from qpriv.pruning.policy import PruningPolicy
from qpriv.quantity import Quantity
from qpriv.result import Result
from qpriv.split import Channel
from qpriv.split.traffic import EXCHANGED
from qpriv.split.transcript import Direction

from .observation import batches, box_coverage
from .threat import ThreatModel

Asked = Literal["own", "own_union", "plain", "worst", "adversarial"]
"""What is asked about each private image: its own question, all of its own questions, the worst
plain question of the library, the worst string found, several adversarial questions in turn."""

ASKED: tuple[Asked, ...] = get_args(Asked)
THREAT = ThreatModel(
    attacker="outsider", active=True, auxiliary="in-domain scenes", access="queries"
)
BYTES = EXCHANGED[Direction.UP]
GAIN = Quantity(
    name="worst_gain",
    title="Worst string found: sensitive tokens gained",
    meaning="Sensitive tokens that cross under the worst string, less those under the image's own "
    "question, paired by image.",
    direction="leak",
    chance=0.0,
)
_TITLES: dict[Asked, tuple[str, str]] = {
    "own": ("Own question", "under the image's own question"),
    "own_union": ("All own questions", "under all of the image's own questions together"),
    "plain": ("Worst plain question", "under the worst plain question of a library"),
    "worst": ("Worst string found", "under the worst string that a hill climb over words found"),
    "adversarial": ("Several adversarial questions", "under several adversarial questions, asked "
                    "in turn, together"),
}  # fmt: skip
_SHARES = {
    TOKENS_KEPT: "Share of the tokens at least half in a sensitive box that cross",
    TOKENS_TOUCHING: "Share of the tokens touching a sensitive box that cross",
    AREA_VISIBLE: "Share of the sensitive pixels in patches that cross",
    FACES_TOUCHED: "Share of the sensitive boxes of which any pixel crosses",
    KEPT_TOKENS: "Different visual tokens that cross, mean per image,",
    BYTES: "Bytes of activations that cross in training, mean per image,",
}


def _quantities(asked: Asked) -> Iterator[Quantity]:
    title, under = _TITLES[asked]
    for own, meaning in _SHARES.items():
        is_share = own is TOKENS_KEPT
        yield replace(
            own,
            name=f"{asked}_{own.name}",
            title=f"{title}: {own.title[0].lower()}{own.title[1:]}",
            label="",
            meaning=f"{meaning} {under}.",
            baseline="" if asked == "own" else f"own_{own.name}",
            headline=is_share and asked in ("plain", "worst"),
            leading=is_share or own is KEPT_TOKENS,
            question=own.question if asked in ("plain", "worst") else "",
            by=f"the {title[0].lower()}{title[1:]}" if is_share else "",
        )


ATTACKS = (
    Attack(
        name="steering",
        title="Steering by the question",
        quantities=(*(own for asked in ASKED for own in _quantities(asked)), GAIN),
        rows=(
            Row(
                what="steering, `SteeringProbe`",
                who="outsider who asks; yes",
                holds="in-domain scenes with boxes, through the same policy",
                knows="through the policy",
                measures="what of the sensitive part crosses under the worst of some hundred plain "
                "questions, the worst string a hill climb finds, and several of them together",
                beside="the image's own question, and all of its own questions together",
                source="own",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Crossed:
    """The patches of each image that crossed, after one or more questions.

    Args:
        questions: The questions about each image, in order.
        kept: Patches that crossed as separate tokens, ``[n, N]`` bool.
        entering: Patches that crossed at all, including merged ones, ``[n, N]`` bool.
        sizes: Bytes of activations over all questions, ``[n]``.
    """

    questions: tuple[tuple[str, ...], ...]
    kept: Tensor
    entering: Tensor
    sizes: Tensor


def converse(
    model: VisionLanguageModel,
    policy: PruningPolicy,
    encode: Encode,
    channel: Channel,
    conversations: Sequence[Sequence[VQASample]],
    batch_size: int = 64,
) -> Crossed:
    """Let the client answer one or more questions about each image; return what crossed.

    For a policy with a ledger of images, these count as the first questions about each image.

    Args:
        model: The client's model.
        policy: The client's pruning policy.
        encode: The client's frozen encoders.
        channel: The channel; patches are counted at its first cut.
        conversations: The questions about each image, in order.
        batch_size: Samples per pass.

    Raises:
        ModelError: If the policy merges patches and does not say which ones.
    """
    with torch.no_grad(), anew(policy.ledger):
        return _converse(model, policy, encode, channel, conversations, batch_size)


def _converse(
    model: VisionLanguageModel,
    policy: PruningPolicy,
    encode: Encode,
    channel: Channel,
    conversations: Sequence[Sequence[VQASample]],
    batch_size: int,
) -> Crossed:
    shape, cut = (len(conversations), model.num_patches), channel.layers[0]
    kept, entered = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    sizes = torch.zeros(shape[0], dtype=torch.int64)
    for part in batches(_in_turn(conversations), batch_size):
        samples = [sample for _, sample in part]
        batch = model.preprocessor(samples).to(model.device)
        features = encode(batch, policy.needs)
        whole = policy.decide(features, samples)
        inputs = model.prepare(batch, features, whole)
        decision = decision_at(whole, inputs, cut)
        masks, weights = decision.mask, crossing_weights(decision)
        sent = channel.activation_bytes(model, inputs).cpu()
        for number, (row, _) in enumerate(part):  # an image may be in a batch more than once
            kept[row] |= masks[number]
            entered[row] |= weights[number] > 0
            sizes[row] += sent[number]
    asked = tuple(tuple(sample.question for sample in own) for own in conversations)
    return Crossed(asked, kept, entered, sizes)


def _in_turn(conversations: Sequence[Sequence[VQASample]]) -> list[tuple[int, VQASample]]:
    """Return image number and sample, the first question about each image, then the second."""
    return [
        (row, own[turn])
        for turn in range(max(map(len, conversations)))
        for row, own in enumerate(conversations)
        if turn < len(own)
    ]


def asking(samples: Sequence[VQASample], questions: Sequence[str]) -> list[list[VQASample]]:
    """Return conversations that ask the same questions about every image."""
    return [[replace(sample, question=question) for question in questions] for sample in samples]


def steering_report(
    model: VisionLanguageModel, samples: Sequence[VQASample], crossed: Mapping[Asked, Crossed]
) -> list[Result]:
    """Return how much of the sensitive part crossed, for each kind of questions.

    Args:
        model: The client's model, whose preprocessing transforms the boxes.
        samples: The private images, one sample per image.
        crossed: The patches that crossed, by the questions asked.
    """
    truth = [box_coverage(model.preprocessor, sample) for sample in samples]
    values = {asked: _measured(own, truth) for asked, own in crossed.items()}
    groups = [sample.group_id for sample in samples]
    owners = [group for group, (_, boxes) in zip(groups, truth, strict=True) for _ in boxes]
    report = [
        _mean(
            replace(own, name=f"{asked}_{own.name}"),
            found,
            owners if own is FACES_TOUCHED else groups,
        )
        for asked, figures in values.items()
        for own, found in figures.items()
    ]
    gained = values["worst"][TOKENS_KEPT] - values["own"][TOKENS_KEPT]
    return [*report, _mean(GAIN, gained, groups)]


def _measured(crossed: Crossed, truth: Sequence[tuple[Tensor, Tensor]]) -> dict[Quantity, Tensor]:
    """Return each quantity per image (`FACES_TOUCHED` per box); NaN if undefined."""
    coverage = torch.stack([whole for whole, _ in truth])
    pairs = zip(truth, crossed.entering, strict=True)
    return {
        TOKENS_KEPT: surviving_share(coverage >= SENSITIVE_COVERAGE, crossed.kept),
        TOKENS_TOUCHING: surviving_share(coverage > 0, crossed.entering),
        AREA_VISIBLE: visible_area(coverage, crossed.entering),
        FACES_TOUCHED: torch.cat([is_touched(boxes, row) for (_, boxes), row in pairs]),
        KEPT_TOKENS: crossed.kept.sum(dim=1),
        BYTES: crossed.sizes,
    }


def _mean(own: Quantity, values: Tensor, groups: Sequence[str]) -> Result:
    bounds = None if own.unit else CHANGE if own is GAIN else RATE
    return mean_result(
        own.name, values.double().numpy(), {IMAGE_GROUP: groups}, unit=own.unit, bounds=bounds
    )

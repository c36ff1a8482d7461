"""Side channels of pruning: what sizes and kept positions reveal without activations.

If a policy decides by question and image, the number of kept tokens ``k_b`` depends on both. This
number is visible: a server needs the lengths for its attention mask, and an eavesdropper reads
them from the sizes of encrypted messages. The positions of kept patches reveal even more, because
sensitive regions leave holes.

Each view is what one attacker sees of one sample. The view ``text_length`` exists without pruning
too, so comparing with it shows what pruning adds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.declaration import Attack, Row
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.paradigms.centralized import Encode
from qpriv.pruning.policy import PruningPolicy
from qpriv.result import Result
from qpriv.split import Channel, Kind, Transcript

from .observation import batches, observe
from .prediction import (
    MIN_SAMPLES,
    Floats,
    fit_predict,
    nothing_to_tell,
    prediction_report,
    quantities,
)
from .threat import ThreatModel

View = Literal["text_length", "message_size", "kept_count", "token_counts", "kept_places"]
"""``text_length``: text tokens of question and answer. ``message_size``: bytes of the message as
it crosses, by codec and bucket, as the size of an encrypted message tells. ``kept_count``:
``k_b`` alone. ``token_counts``: both counts. ``kept_places``: both, and which patches."""

VIEWS: tuple[View, ...] = get_args(View)
Target = Literal["question_type", "answer", "sensitive"]
"""``sensitive``: whether anything sensitive, such as a face, is in the picture."""

TARGETS: tuple[Target, ...] = get_args(Target)
TITLES: dict[Target, str] = {
    "question_type": "Question type",
    "answer": "Answer",
    "sensitive": "Something sensitive",
}
_SEEN: dict[View, str] = {
    "text_length": "text length",
    "message_size": "message size",
    "kept_count": "kept count",
    "token_counts": "token counts",
    "kept_places": "kept places",
}
ATTACKS = (
    Attack(
        name="side_channel",
        title="Side channel: counts and sizes alone",
        quantities=tuple(
            own
            for target, title in TITLES.items()
            for view, seen in _SEEN.items()
            for own in quantities(f"{target}_from_{view}", f"{title} from {seen}", "gain")
        ),
        rows=(
            Row(
                what="side channel, `SideChannelProbe`",
                who="outsider or server; no",
                holds="labelled samples through the same policy",
                knows="knows the policy; known or unknown",
                measures="question type, answer and face from sizes, counts and kept places alone",
                beside="majority, chance",
                source="own",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class SideChannel:
    """The side channel of a training step, one row per sample.

    Args:
        text: Number of text tokens, ``[n]``.
        kept: Number of kept image tokens, ``[n]``.
        sizes: Bytes of the message, padded to the bucket, ``[n]``.
        places: Kept patches, ``[n, N]`` bool; None if the attacker does not know them.
    """

    text: Tensor
    kept: Tensor
    sizes: Tensor
    places: Tensor | None

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.text)

    @property
    def views(self) -> tuple[View, ...]:
        """Return the available views."""
        return VIEWS if self.places is not None else VIEWS[:-1]

    def seen(self, view: View) -> Floats:
        """Return the inputs of a classifier, ``[n, f]``."""
        alone = {"text_length": self.text, "kept_count": self.kept, "message_size": self.sizes}
        columns = [alone[view]] if view in alone else [self.text, self.kept]
        if view == "kept_places":
            if self.places is None:
                raise ValueError("this transcript does not tell which patches were kept")
            columns = [*columns, *self.places.unbind(dim=1)]
        return torch.stack([column.double() for column in columns], dim=1).numpy()


def read_side_channel(
    transcript: Transcript, cut: int, num_patches: int, kept: Sequence[Tensor] | None = None
) -> SideChannel:
    """Return the sizes in a transcript, and the kept patches if they are known.

    Args:
        transcript: What crossed, with stored tensors.
        cut: The observed cut.
        num_patches: Number of patches ``N`` before pruning.
        kept: Kept patches of each sample, ``[k_i]``, if the threat model grants them; None
            derives them from the positions, if positions with gaps crossed.

    Raises:
        ValueError: If the transcript holds only sizes.
    """
    passes = transcript.select(cut)
    if not passes or any(not message.rows for message in passes):
        raise ValueError(f"the transcript holds no rows at cut {cut}: record it with store=True")
    lengths = torch.tensor([len(row) for message in passes for row in message.rows])
    spans = torch.tensor([span for message in passes for span in message.spans])
    sizes = torch.tensor([size for message in passes for size in message.sizes])
    counts = spans[:, 1] - spans[:, 0]
    places = places_in(transcript, cut) if kept is None else kept
    mask = None if places is None else torch.zeros(len(counts), num_patches, dtype=torch.bool)
    if mask is not None and places is not None:
        for row, indices in enumerate(places):
            mask[row, indices.cpu().long()] = True
    return SideChannel(lengths - counts, counts, sizes, mask)


def places_in(transcript: Transcript, cut: int) -> list[Tensor] | None:
    """Return the kept patches of each sample, ``[k_i]``, if every pass sent positions with gaps.

    Tokens before the image have positions from zero, so an image token's patch is its position
    minus that of the first patch.
    """
    passes = transcript.select(cut)
    sent = transcript.select(cut, Kind.POSITIONS)
    if not sent or len(sent) != len(passes):
        return None
    return [
        positions[start:stop] - start
        for message, told in zip(passes, sent, strict=True)
        for positions, (start, stop) in zip(told.rows, message.spans, strict=True)
    ]


def watch(
    model: VisionLanguageModel,
    policy: PruningPolicy,
    samples: Sequence[VQASample],
    channel: Channel,
    *,
    encode: Encode | None = None,
    knows_positions: bool = True,
    batch_size: int = 64,
) -> SideChannel:
    """Return the side channel of a client that trains on some samples.

    Args:
        model: The model; its decoder layers run only if a defence needs their output.
        policy: The client's pruning policy.
        samples: The client's samples.
        channel: The channel; its first cut is observed.
        encode: The frozen encoders, or a cache of them.
        knows_positions: Whether the attacker knows which patches were kept.
        batch_size: Samples per pass.
    """
    # a policy that drops tokens inside the decoder changes sizes from cut to cut
    parts, watched = [], channel if policy.stages else channel.at_entrance()
    cut = watched.layers[0]
    for part in batches(samples, batch_size):
        seen = observe(model, policy, part, watched, cut, encode=encode, batch_size=batch_size)
        kept = seen.kept if knows_positions else None
        parts.append(read_side_channel(seen.transcript, cut, model.num_patches, kept))
    places = [part.places for part in parts if part.places is not None]
    return SideChannel(
        torch.cat([part.text for part in parts]),
        torch.cat([part.kept for part in parts]),
        torch.cat([part.sizes for part in parts]),
        torch.cat(places) if len(places) == len(parts) else None,
    )


def threat_model(view: View, bucket: int = 1) -> ThreatModel:
    """Return the threat model of a view."""
    sees = {
        "text_length": "number of text tokens",
        "message_size": f"size of encrypted messages, in steps of {bucket} tokens",
        "kept_count": "number of kept tokens",
        "token_counts": "numbers of text and of kept tokens",
        "kept_places": "numbers of tokens and kept patches",
    }
    return ThreatModel(
        attacker="outsider" if view == "message_size" else "server",
        auxiliary="labelled in-domain samples through the same policy",
        knows_positions=view == "kept_places",
        access=sees[view],
    )


def truth_of(target: Target, samples: Sequence[VQASample]) -> list[str] | None:
    """Return the class of every sample, or None if the data set does not provide it."""
    if target == "answer":
        return [sample.answer for sample in samples]
    if target == "sensitive":
        boxes = [sample.sensitive_boxes for sample in samples]
        known = [str(bool(own)).lower() for own in boxes if own is not None]
    else:
        known = [str(s.meta["question_type"]) for s in samples if "question_type" in s.meta]
    return known if len(known) == len(samples) else None


def side_channel_report(
    auxiliary: Sequence[VQASample],
    known: SideChannel,
    private: Sequence[VQASample],
    asked: SideChannel,
    *,
    targets: Sequence[Target] = TARGETS,
    seed: int = 0,
) -> list[Result]:
    """Return how well each view predicts each target, with the names of `prediction_report`.

    Args:
        auxiliary: The attacker's own samples.
        known: The side channel of the attacker's samples.
        private: The private samples; only the metric sees them.
        asked: The side channel of the private samples.
        targets: The targets to predict.
        seed: Seed of the classifiers.
    """
    groups = [sample.group_id for sample in auxiliary]
    owners = [sample.group_id for sample in private]
    report = []
    for target in targets:
        labels, truth = truth_of(target, auxiliary), truth_of(target, private)
        for view in asked.views:
            name = f"{target}_from_{view}"
            if labels is None or truth is None:
                report.append(nothing_to_tell(name, f"these samples have no {target}"))
            elif len(labels) < MIN_SAMPLES or len(set(labels)) < 2:
                why = f"{len(labels)} samples of {len(set(labels))} classes to learn from"
                report.append(nothing_to_tell(name, why))
            else:
                told = fit_predict(known.seen(view), labels, groups, asked.seen(view), seed)
                report += prediction_report(name, told, truth, labels, owners)
    return report

"""The language model reading packed questions about tower features: training and measuring."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlavaForConditionalGeneration

from qpriv.datasets.scene_questions import Question

from .packing import PREFIX, SEGMENT, pack
from .scene_tensors import normalise
from .vocabulary import IMAGE, tokenizer


@dataclass(frozen=True)
class Reading:
    """What the language model makes of a batch.

    Args:
        logits: Scores of the next token where one is to be predicted, ``[M, V]``.
        targets: The tokens that come, ``[M]``.
        states: The image tokens at the input of each decoder layer, each ``[B, k, width]``.
    """

    logits: Tensor
    targets: Tensor
    states: tuple[Tensor, ...]


class Reader:
    """Turns questions into tokens once, and features with questions into a `Reading`."""

    def __init__(self) -> None:
        self._words = tokenizer(ends=False)
        self._image = int(self._words.convert_tokens_to_ids(IMAGE))
        self._head = self._ids(PREFIX)[:-1]

    def segment(self, question: Question) -> list[int]:
        """Return the tokens of a question and its answer."""
        text = SEGMENT.format(question=question.text, answer=question.answer)
        return self._ids(text)[1:]

    def read(
        self,
        model: LlavaForConditionalGeneration,
        features: Tensor,
        segments: Sequence[Sequence[Sequence[int]]],
    ) -> Reading:
        """Return what the model makes of images and of the questions about each.

        Args:
            model: The model.
            features: Tower features of the patches that are kept, ``[B, k, 96]``.
            segments: For every image the segments of its questions, perhaps none.
        """
        start, stop = len(self._head), len(self._head) + features.shape[1]
        packed = pack([*self._head, *[self._image] * features.shape[1]], segments)
        words = model.get_input_embeddings()(packed.input_ids)
        seen = model.model.multi_modal_projector(features)
        out = model.model.language_model(
            inputs_embeds=torch.cat([words[:, :start], seen, words[:, stop:]], dim=1),
            attention_mask=packed.mask,
            position_ids=packed.position_ids,
            output_hidden_states=True,
            use_cache=False,
        )
        return Reading(
            logits=model.lm_head(out.last_hidden_state[packed.rows, packed.columns]),
            targets=packed.targets,
            states=tuple(states[:, start:stop] for states in out.hidden_states),
        )

    def _ids(self, text: str) -> list[int]:
        return [int(number) for number in self._words(text)["input_ids"]]


@torch.no_grad()
def tower_features(model: LlavaForConditionalGeneration, pixels: Tensor) -> Tensor:
    """Return the frozen tower's patch features of uint8 images, ``[n, 64, 96]``, in halves."""
    tower = model.model.vision_tower
    layer = model.config.vision_feature_layer
    chunks = [
        tower(normalise(chunk), output_hidden_states=True).hidden_states[layer][:, 1:].half()
        for chunk in torch.split(pixels, 256)
    ]
    return torch.cat(chunks)

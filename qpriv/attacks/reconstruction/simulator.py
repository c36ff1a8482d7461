"""SDAR's simulator: a substitute for the client that the server's own layers teach.

Zhu et al., *Passive Inference Attacks on Split Learning via Adversarial Regularization*, NDSS 2025
(arXiv 2310.10483). A passive server of a split that is given labels trains a copy of the client
on labelled pictures of its own, through its live layers, which stay as they are: what the client
sends must be what these layers can answer from. Here the copy is FORA's substitute (the public
base model and an aligner), its features are drawn to the victim's by MK-MMD and critic
(`alignment`), and the decoder is FORA's, without the paper's second critic on pictures.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from qpriv.datasets.sample import VQASample
from qpriv.models.decoder.sequences import IGNORED
from qpriv.models.llava.vision_language import VisionLanguageModel
from qpriv.models.precision import autocast_dtype
from qpriv.split.layers import Tail
from qpriv.split.layout import TokenLayout

from ..gradients.report import answer_ids
from ..observation import Observation
from ..token_grid import TokenGrid

TaskLoss = Callable[[TokenGrid, Tensor], Tensor]
"""From simulated tokens of some of the attacker's pictures and their rows ``[B]`` to a loss."""


class ServerLoss:
    """The loss of the server's layers on simulated image tokens; a `TaskLoss`.

    Text tokens are those that the public client sends for the attacker's own questions and
    answers. The layers are read, never trained: take the gradient of the tokens alone.

    Args:
        model: The victim's model, of which the server holds the layers from the cut on.
        seen: What crosses for the attacker's samples through the public client.
        samples: The attacker's samples, with their answers.
    """

    def __init__(
        self, model: VisionLanguageModel, seen: Observation, samples: Sequence[VQASample]
    ) -> None:
        self.tail = Tail(model, seen.cut)
        self.device = model.device
        # the server's layers are the victim's, and compute as they do in its training
        self.cast = autocast_dtype(model.device)
        self.dtype = next(self.tail.norm.parameters()).dtype
        self.rows = seen.transcript.rows(seen.cut)
        self.spans = [s for message in seen.transcript.select(seen.cut) for s in message.spans]
        self.answers = [answer_ids(model, sample) for sample in samples]

    def __call__(self, moved: TokenGrid, rows: Tensor) -> Tensor:
        """Return the mean cross-entropy of the answers in nats."""
        chosen = rows.tolist()
        layout = TokenLayout(torch.tensor([len(self.rows[row]) for row in chosen]))
        packed = [
            self._with_image(row, moved.tokens[place][moved.present[place]])
            for place, row in enumerate(chosen)
        ]
        hidden = layout.unpack(torch.cat(packed)).to(self.device, self.dtype)
        labels = layout.unpack(torch.cat([self._labels(row) for row in chosen]), IGNORED)
        mask, positions = layout.mask.to(self.device), layout.position_ids.to(self.device)
        with torch.autocast(self.device.type, self.cast, enabled=self.cast is not None):
            return self.tail.loss(self.tail(hidden, mask, positions), labels.to(self.device))

    def _with_image(self, row: int, image: Tensor) -> Tensor:
        start, stop = self.spans[row]
        sent = self.rows[row].to(image)
        return torch.cat([sent[:start], image, sent[stop:]])

    def _labels(self, row: int) -> Tensor:
        answer = self.answers[row]
        return torch.tensor([IGNORED] * (len(self.rows[row]) - len(answer)) + answer)

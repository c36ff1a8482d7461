"""Donut: a page encoder and a text decoder whose prompt is the question.

Kim et al. 2022 (arXiv 2111.15664); the target string and the masking of the question are those of
the official code (clovaai/donut, ``donut/util.py`` and ``config/train_docvqa.yaml``).
"""

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from .base import DocumentModel, EncodedPages, TokenisedAnswers
from .decoding import GreedySettings

PROMPT = "<s_docvqa><s_question>{question}</s_question><s_answer>"
END = "</s_answer>"
YES_NO = {"yes": "<yes/>", "no": "<no/>"}
"""Answers that the official fine-tuning writes as one special token."""


class Donut(DocumentModel):
    """A `VisionEncoderDecoderModel` with a `DonutProcessor`."""

    family = "donut"

    def page(self, image: Image.Image) -> Tensor:
        """Return the page resized, centred and padded by the processor."""
        images = self.processor.image_processor
        pixels = images(image, do_rescale=False, do_normalize=False, return_tensors="pt")
        return torch.as_tensor(pixels["pixel_values"][0], dtype=torch.uint8)

    def encode(
        self, pages: Sequence[Tensor], questions: Sequence[str], page_of: Sequence[int]
    ) -> EncodedPages:
        """Encode each page once; questions come in at the decoder."""
        pixels = self.normalised(pages).to(self.dtype)
        states: Tensor = self.base.encoder(pixel_values=pixels).last_hidden_state
        rows = torch.tensor(page_of, dtype=torch.long, device=states.device)
        return EncodedPages(states, None, rows)  # type: ignore[arg-type]

    def normalised(self, pages: Sequence[Tensor]) -> Tensor:
        """Return pages as the encoder expects them ``[P, 3, H, W]``."""
        return normalised(pages, self.processor.image_processor, self.device)

    def prompt_ids(self, question: str) -> list[int]:
        """Return the token ids of a question up to where its answer begins."""
        prompt = PROMPT.format(question=question)
        return list(self.tokenizer(prompt, add_special_tokens=False).input_ids)

    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer; yes and no are tokens of their own."""
        text = YES_NO.get(answer, answer)
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Return the marker after an answer and the end of the sequence."""
        end = self.tokenizer.convert_tokens_to_ids(END)
        return int(end), int(self.tokenizer.eos_token_id)

    def logits(self, pages: EncodedPages, tokens: TokenisedAnswers) -> Tensor:
        """Return the decoder's logits; padding is on the right, so causality hides it.

        Labels are not handed over: the library would build decoder inputs from them and turn the
        masked question into padding, so that the model never sees what is asked.
        """
        states, _ = pages.expanded()
        output = self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            decoder_input_ids=tokens.ids,
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def generate(
        self, pages: EncodedPages, ids: Tensor, max_new_tokens: int, settings: GreedySettings
    ) -> list[list[int]]:
        """Return the new tokens after prompts of equal length."""
        output = self.network.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=pages.expanded()[0]),
            decoder_input_ids=ids,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            **settings,
        )
        new: list[list[int]] = output[:, ids.shape[1] :].tolist()
        return new

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of answer ids."""
        words = {token: word for word, token in YES_NO.items()}
        marked = str(self.tokenizer.decode(ids)).strip()
        return words.get(marked) or super().decode(ids)


def normalised(pages: Sequence[Tensor], images: object, device: torch.device) -> Tensor:
    """Return pages in [0, 255] of one size, scaled and normalised as an image processor does."""
    mean, std, factor = (
        torch.tensor(getattr(images, name), device=device, dtype=torch.float32)
        for name in ("image_mean", "image_std", "rescale_factor")
    )
    batch = torch.stack([page.to(device, torch.float32) for page in pages])
    return (batch * factor - mean.view(3, 1, 1)) / std.view(3, 1, 1)

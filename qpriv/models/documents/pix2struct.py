"""Pix2Struct: the question is drawn above the page, and both are read as one picture.

Lee et al. 2023 (arXiv 2210.03347); header and patches are those of google-research/pix2struct.
"""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageFont
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from .base import DocumentModel, EncodedPages, TokenisedAnswers
from .decoding import GreedySettings


class Pix2Struct(DocumentModel):
    """A `Pix2StructForConditionalGeneration` with its processor.

    The processor would fetch its font from the hub and take no other. The header is drawn by the
    same code with a font at hand, and the processor gets the finished picture.
    """

    family = "pix2struct"
    header_font: bytes | None = None
    """A TrueType font for the question, Arial for the official look; Pillow's where None."""

    def page(self, image: Image.Image) -> Tensor:
        """Return the page at its own size: the patches are cut after the header is on."""
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)

    def encode(
        self, pages: Sequence[Tensor], questions: Sequence[str], page_of: Sequence[int]
    ) -> EncodedPages:
        """Encode a picture for each question: here pages cannot be shared."""
        pictures = [
            self.with_header(pages[number], question)
            for number, question in zip(page_of, questions, strict=True)
        ]
        patches = self.processor.image_processor(pictures, is_vqa=False, return_tensors="pt")
        mask = patches["attention_mask"].to(self.device)
        flattened = patches["flattened_patches"].to(self.device, self.dtype)
        output = self.base.encoder(flattened_patches=flattened, attention_mask=mask)
        rows = torch.arange(len(questions), device=self.device)
        return EncodedPages(output.last_hidden_state, mask, rows)  # type: ignore[arg-type]

    def with_header(self, page: Tensor, question: str) -> Tensor:
        """Return a page with the question above it, scaled to the same width.

        The text is 36 pixels high before scaling, so a short question becomes a tall header: see
        `header_share`.
        """
        font = self.header_font or _pillow_font()
        whole = page.round().clamp(0, 255).to("cpu", torch.uint8)
        drawn: Tensor = self.processor.image_processor.render_header(
            whole, question, font_bytes=font
        )
        return drawn

    def header_share(self, page: Tensor, question: str) -> float:
        """Return the share of the picture's height that the question takes."""
        picture = self.with_header(page, question)
        height = int(page.shape[1] * (picture.shape[2] / page.shape[2]))
        return 1 - height / picture.shape[1]

    def prompt_ids(self, question: str) -> list[int]:
        """Return the start of the decoder: the question is in the picture."""
        start = self.base.config.decoder_start_token_id
        return [self.tokenizer.pad_token_id if start is None else start]

    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer."""
        return list(self.tokenizer(answer, add_special_tokens=False).input_ids)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Return the end of the sequence."""
        return (int(self.tokenizer.eos_token_id),)

    def logits(self, pages: EncodedPages, tokens: TokenisedAnswers) -> Tensor:
        """Return the decoder's logits."""
        states, mask = pages.expanded()
        output = self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=tokens.ids,
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def generate(
        self, pages: EncodedPages, ids: Tensor, max_new_tokens: int, settings: GreedySettings
    ) -> list[list[int]]:
        """Return the new tokens."""
        states, mask = pages.expanded()
        output = self.network.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=mask,
            decoder_input_ids=ids,
            max_new_tokens=max_new_tokens,
            do_sample=False,
            **settings,
        )
        new: list[list[int]] = output[:, ids.shape[1] :].tolist()
        return new


def _pillow_font() -> bytes:
    """Return the font inside Pillow as a file."""
    loaded = ImageFont.load_default(36)
    assert isinstance(loaded, ImageFont.FreeTypeFont)
    return bytes(loaded.font_bytes)

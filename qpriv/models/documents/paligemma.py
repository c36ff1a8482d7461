"""PaliGemma: image tokens and question as one prefix, the answer as its continuation.

Beyer et al. 2024 (arXiv 2407.07726). It stands in for PaLI-3 (arXiv 2310.09199), which was never
published and by which it is inspired; figures of the two cannot be compared. Start from the
``pt`` checkpoints: ``mix`` and ``ft-docvqa`` have seen all of DocVQA's training set.
"""

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from .base import DocumentModel, EncodedPages, TokenisedAnswers
from .decoding import GreedySettings
from .donut import normalised


class PaliGemma(DocumentModel):
    """A `PaliGemmaForConditionalGeneration` with its processor; the prompt is the bare question."""

    family = "paligemma"

    def page(self, image: Image.Image) -> Tensor:
        """Return the page squeezed into the processor's square."""
        images = self.processor.image_processor
        pixels = images(
            image.convert("RGB"), do_rescale=False, do_normalize=False, return_tensors="pt"
        )
        return torch.as_tensor(pixels["pixel_values"][0], dtype=torch.uint8)

    def encode(
        self, pages: Sequence[Tensor], questions: Sequence[str], page_of: Sequence[int]
    ) -> EncodedPages:
        """Encode each page once; questions come in at the decoder."""
        pixels = normalised(pages, self.processor.image_processor, self.device).to(self.dtype)
        features: Tensor = self.base.get_image_features(pixel_values=pixels).pooler_output
        rows = torch.tensor(page_of, dtype=torch.long, device=features.device)
        return EncodedPages(features, None, rows)  # type: ignore[arg-type]

    def prompt_ids(self, question: str) -> list[int]:
        """Return the image tokens, the start of the text, the question and a line break."""
        tokens = self.processor.image_seq_length
        text = f"{self.processor.image_token * tokens}{self.tokenizer.bos_token}{question}\n"
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer."""
        return list(self.tokenizer(answer, add_special_tokens=False).input_ids)

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Return the end of the sequence."""
        return (int(self.tokenizer.eos_token_id),)

    def logits(self, pages: EncodedPages, tokens: TokenisedAnswers) -> Tensor:
        """Return the decoder's logits; the prefix attends to itself in both directions."""
        output = self.network(
            input_ids=tokens.ids,
            attention_mask=tokens.mask,
            token_type_ids=1 - tokens.prompt,
            mm_encoder_outputs=self._encoded(pages),
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def generate(
        self, pages: EncodedPages, ids: Tensor, max_new_tokens: int, settings: GreedySettings
    ) -> list[list[int]]:
        """Return the new tokens after prompts of equal length."""
        output = self.network.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            token_type_ids=torch.zeros_like(ids),
            mm_encoder_outputs=self._encoded(pages),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            **settings,
        )
        new: list[list[int]] = output[:, ids.shape[1] :].tolist()
        return new

    def _encoded(self, pages: EncodedPages) -> dict[str, BaseModelOutputWithPooling]:
        return {"image": BaseModelOutputWithPooling(pooler_output=pages.expanded()[0])}

"""Donut: a page encoder and a text decoder whose prompt is the question.

Kim et al. 2022 (arXiv 2111.15664); the target string and the masking of the question are those of
the official code (clovaai/donut, ``donut/util.py`` and ``config/train_docvqa.yaml``).
"""

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from .base import IGNORED, DocumentModel, EncodedPages, Generated, TokenisedAnswers, pad_right
from .decoding import banned_beginnings, buckets, kept_tokens

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
        states: Tensor = self.base.encoder(pixel_values=self.normalised(pages)).last_hidden_state
        rows = torch.tensor(page_of, dtype=torch.long, device=states.device)
        return EncodedPages(states, None, rows)  # type: ignore[arg-type]

    def normalised(self, pages: Sequence[Tensor]) -> Tensor:
        """Return pages as the encoder expects them ``[P, 3, H, W]``."""
        images = self.processor.image_processor
        batch = torch.stack([page.to(self.device, torch.float32) for page in pages])
        mean = torch.tensor(images.image_mean, device=batch.device).view(3, 1, 1)
        std = torch.tensor(images.image_std, device=batch.device).view(3, 1, 1)
        scaled: Tensor = batch * images.rescale_factor
        return (scaled - mean) / std

    def prompt_ids(self, question: str) -> list[int]:
        """Return the token ids of a question up to where its answer begins."""
        prompt = PROMPT.format(question=question)
        return list(self.tokenizer(prompt, add_special_tokens=False).input_ids)

    def answer_ids(self, answer: str) -> list[int]:
        """Return the token ids of an answer and its end marker."""
        text = YES_NO.get(answer, answer) + END
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def tokenise(self, questions: Sequence[str], answers: Sequence[str]) -> TokenisedAnswers:
        """Return decoder inputs and labels, shifted against each other by one.

        Labels alone would not do: the library builds decoder inputs from them and turns the
        masked question into padding, so that the model never sees what is asked.
        """
        prompts = [self.prompt_ids(question) for question in questions]
        ends = [[*self.answer_ids(answer), self.tokenizer.eos_token_id] for answer in answers]
        full = [prompt + end for prompt, end in zip(prompts, ends, strict=True)]
        self.check_lengths([len(row) for row in full], questions)
        labels = [
            [IGNORED] * (len(prompt) - 1) + end for prompt, end in zip(prompts, ends, strict=True)
        ]
        ids = pad_right([row[:-1] for row in full], self.tokenizer.pad_token_id, self.device)
        real = [[1] * (len(row) - 1) for row in full]
        mask = pad_right(real, 0, self.device)
        return TokenisedAnswers(ids, pad_right(labels, IGNORED, self.device), mask)

    def logits(self, pages: EncodedPages, tokens: TokenisedAnswers) -> Tensor:
        """Return the decoder's logits; padding is on the right, so causality hides it."""
        states, _ = pages.expanded()
        output = self.network(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            decoder_input_ids=tokens.ids,
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    @torch.no_grad()
    def answer(
        self,
        pages: EncodedPages,
        questions: Sequence[str],
        max_new_tokens: int | None = None,
        banned: Sequence[str] = (),
    ) -> list[Generated]:
        """Return greedy answers, prompts of equal length together.

        The decoder counts positions from the start of the row, padding included, so prompts of
        unequal length in one batch would give wrong text whichever side is padded.
        """
        prompts = [self.prompt_ids(question) for question in questions]
        answers: list[Generated | None] = [None] * len(questions)
        for rows in buckets([len(prompt) for prompt in prompts]):
            ids = torch.tensor([prompts[row] for row in rows], device=self.device)
            room = self.max_tokens - ids.shape[1]
            states, _ = pages.for_rows(torch.tensor(rows, device=self.device)).expanded()
            output = self.network.generate(
                encoder_outputs=BaseModelOutput(last_hidden_state=states),
                decoder_input_ids=ids,
                max_new_tokens=min(room, max_new_tokens or room),
                do_sample=False,
                num_beams=1,
                pad_token_id=self.tokenizer.pad_token_id,
                eos_token_id=[self.tokenizer.eos_token_id, self._end_id],
                bad_words_ids=[[self.tokenizer.unk_token_id]],
                logits_processor=banned_beginnings(self._first_ids(banned), ids.shape[1]),
            )
            for row, new in zip(rows, output[:, ids.shape[1] :].tolist(), strict=True):
                answers[row] = self._generated(new)
        return [answer for answer in answers if answer is not None]

    @property
    def _end_id(self) -> int:
        return int(self.tokenizer.convert_tokens_to_ids(END))

    def _first_ids(self, banned: Sequence[str]) -> list[list[int]]:
        return [self.answer_ids(text)[:-1] for text in banned]

    def _generated(self, new: list[int]) -> Generated:
        kept, ended = kept_tokens(new, {self._end_id, self.tokenizer.eos_token_id})
        text = self.decode(kept)
        words = {token: word for word, token in YES_NO.items()}
        marked = str(self.tokenizer.decode(kept)).strip()
        return Generated(words.get(marked, text), ended)

    def round_trips(self, answer: str) -> bool:
        """Return whether the vocabulary can spell an answer; yes and no are tokens of their own."""
        return answer in YES_NO or super().round_trips(answer)

"""Defences that change the question at inference: paraphrase (ITP), random prefix, random suffix.

Pinto et al. 2024 (arXiv 2407.08707), section 6. They cost accuracy and leave the memory in place.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from qpriv.datasets.encodings import read_text
from qpriv.datasets.files import DiskFile
from qpriv.datasets.sample import VQASample
from qpriv.errors import DataError, reason
from qpriv.models.llava.encoders import as_model_error, quiet_loading


@dataclass
class RandomDigits:
    """Puts six random digits before (PR) or after (AR) every question.

    Args:
        place: ``before`` or ``after`` the question.
        digits: Number of digits.
        seed: Seed of the digits; they differ from question to question.
    """

    place: Literal["before", "after"] = "before"
    digits: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        """Start the random numbers and name the defence."""
        self._rng = Random(self.seed)
        self.label = f"random digits {self.place}"

    def __call__(self, question: str) -> str:
        """Return the question with its digits."""
        number = "".join(self._rng.choices("0123456789", k=self.digits))
        return f"{number} {question}" if self.place == "before" else f"{question} {number}"


_SYNONYMS = {
    "mentioned": "given",
    "company": "firm",
    "organization": "institution",
    "document": "paper",
    "letter": "note",
    "sent": "mailed",
    "written": "noted",
    "total": "overall",
    "amount": "sum",
    "name": "full name",
    "number": "no.",
}
_TEMPLATES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"^what(?: i|')s (?:the )?(.+?)\s*\?$", r"tell me the \1 ."),
        (r"^tell me (?:the )?(.+?)\s*\.$", r"what is the \1 ?"),
        (r"^find (?:the )?(.+?)\s*\.$", r"can you see the \1 ?"),
        (r"^can you see (?:the )?(.+?)\s*\?$", r"find the \1 ."),
        (r"^please read (?:the )?(.+?)\s*\.$", r"find the \1 ."),
        (r"^who (?:is|was) (.+?)\s*\?$", r"give the name of the person who is \1 ."),
        (r"^when (?:is|was|did) (.+?)\s*\?$", r"give the date of \1 ."),
        (r"^where (?:is|was) (.+?)\s*\?$", r"give the place of \1 ."),
        (r"^how many (.+?)\s*\?$", r"give the number of \1 ."),
        (r"^(?:which|what) (.+?) is (?:given|mentioned)(.*?)\s*\?$", r"find the \1\2 ."),
    )
)


@dataclass(frozen=True)
class RuleParaphrase:
    """Rewords a question by templates and, where none fits, by synonyms; keeps all names.

    Deterministic and offline: a floor for what a language model would do.
    """

    label: str = "paraphrase by rules"

    def __call__(self, question: str) -> str:
        """Return the reworded question.

        >>> RuleParaphrase()("What is the fax number?")
        'tell me the fax number .'
        """
        for pattern, replacement in _TEMPLATES:
            if pattern.match(question.strip()):
                return pattern.sub(replacement, question.strip())
        words = [_SYNONYMS.get(word.lower(), word) for word in question.split()]
        return " ".join(words) if words != question.split() else f"please answer: {question}"


class FileParaphrase:
    """Rewords by a table, as written by people or a language model beforehand.

    Args:
        path: JSON from question to its rewording, or to a list of them whose first is used.

    Raises:
        DataError: If it is not such a table.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.label = path, f"paraphrase from {path.name}"
        try:
            table = msgspec.json.decode(read_text(DiskFile(path)), type=dict[str, str | list[str]])
            self._table = {k: v if isinstance(v, str) else v[0] for k, v in table.items()}
        except (msgspec.DecodeError, RecursionError, IndexError) as error:
            raise DataError(
                f"no table of paraphrases: {reason(error)}",
                where=str(path),
                remedy='write {"question": "reworded question", ...}',
            ) from error

    def __call__(self, question: str) -> str:
        """Return the reworded question.

        Raises:
            DataError: If the table does not have it.
        """
        if question not in self._table:
            raise DataError(
                f"no paraphrase of {question!r}",
                where=str(self.path),
                remedy="add it, or reword by rules",
            )
        return self._table[question]


def of_samples(paraphrase: Callable[[str], str]) -> Callable[[VQASample], str]:
    """Return a paraphrase of samples: the sample's own where its data set brings one."""

    def reworded(sample: VQASample) -> str:
        return str(sample.meta.get("paraphrase") or paraphrase(sample.question))

    return reworded


def by_question(paraphrase: Callable[[str], str]) -> Callable[[VQASample], str]:
    """Return a paraphrase of samples that asks the question alone."""
    return lambda sample: paraphrase(sample.question)


class Seq2SeqParaphrase:
    """Rewords by a sequence-to-sequence model of the hub or a folder.

    Args:
        model: Hub id or folder, such as ``humarin/chatgpt_paraphraser_on_T5_base``.
        prompt: Template with ``{question}``.

    Raises:
        ModelError: If there is no such model.
    """

    def __init__(self, model: str, prompt: str = "paraphrase: {question}") -> None:
        with quiet_loading(), as_model_error(Path(model), "paraphrasing model"):
            self.tokenizer = AutoTokenizer.from_pretrained(model)
            self.network = AutoModelForSeq2SeqLM.from_pretrained(model).eval()
        self.prompt = prompt
        self.label = f"paraphrase by {model}"

    def __call__(self, question: str) -> str:
        """Return the reworded question."""
        ids = self.tokenizer(self.prompt.format(question=question), return_tensors="pt")
        output = self.network.generate(**ids, max_new_tokens=64, num_beams=4)
        return str(self.tokenizer.decode(output[0], skip_special_tokens=True))

"""The word-level tokenizer of the embedded models: every word of the embedded data sets."""

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from qpriv.datasets.scene_questions import (
    COLOR_TEMPLATES,
    COUNT_TEMPLATES,
    EXIST_TEMPLATES,
    MEMORISATION_QUESTION,
    NUMBERS,
    SHAPE_TEMPLATES,
)
from qpriv.datasets.scenes import COLORS, KINDS

PAD, UNKNOWN, BEGIN, END, IMAGE = SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<image>")
# END must not have id 2: CLIP's text tower takes that as a sign of its first, faulty release

_EASY_VQA = "what color is the shape does image contain not present in of there a teal triangle"
_PROMPT = "user assistant : ? . ,"
_CAPTIONS = "a and person texture"


def words() -> list[str]:
    """Return the words the embedded models know, without the special tokens."""
    templates = (*COLOR_TEMPLATES, *SHAPE_TEMPLATES, *COUNT_TEMPLATES, *EXIST_TEMPLATES)
    texts = [*templates, MEMORISATION_QUESTION, _EASY_VQA, _PROMPT, _CAPTIONS]
    found = {word for text in texts for word in text.split() if not word.startswith("{")}
    return sorted(found | {*COLORS, *KINDS, *NUMBERS, "yes", "no"})


def tokenizer(*, ends: bool) -> PreTrainedTokenizerFast:
    """Return the tokenizer: lower case, one token a word or punctuation mark.

    Args:
        ends: Whether a text closes with the end token, as CLIP's text tower wants it. A language
            model's prompt must stay open.
    """
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words()])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}" if ends else f"{BEGIN} $A",
        special_tokens=[(token, vocabulary[token]) for token in (BEGIN, END)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        extra_special_tokens={"image_token": IMAGE},
        model_max_length=77 if ends else 512,
        clean_up_tokenization_spaces=False,
    )

"""How evaluators make two spellings of an answer equal, one function an evaluator.

Written from the behaviour of the public tools, which each docstring names. `vqa` and its
relatives differ in details that move scores by points, so none is built on another's rules
beyond the two shared steps, `strip_punctuation` and `fold_words`.
"""

import re
import string
import unicodedata
from collections.abc import Callable, Collection
from typing import Final

PUNCTUATION: Final = ';/[]"{}()=+\\_-><@`,?!'
NUMBERS: Final = dict(
    zip(
        "none zero one two three four five six seven eight nine ten".split(),
        "0 0 1 2 3 4 5 6 7 8 9 10".split(),
        strict=True,
    )
)
ARTICLES: Final = frozenset({"a", "an", "the"})

# the words whose apostrophe the tool puts back; `lets`, `ill`, `well`, `im` are not among them
_ONE_APOSTROPHE = """
    ain't aren't can't could've couldn't didn't doesn't don't hadn't hasn't haven't he'd he's
    how'd how'll how's isn't it'd it'll ma'am might've mightn't must've mustn't needn't not've
    o'clock oughtn't shan't should've shouldn't somebody'll somebody's someone'd someone'll
    someone's something'd something'll that's there'd there're there's they'd they'll they're
    they've 'twas wasn't we've weren't what'll what're what's what've when's where'd where's
    where've who'd who'll who's who've why'll why're why's won't would've wouldn't y'all you'd
    you'll you're you've
""".split()

# either of their two apostrophes may be missing, not both
_TWO_APOSTROPHES = """
    couldn't've hadn't've mightn't've shouldn't've wouldn't've he'd've it'd've she'd've
    somebody'd've someone'd've something'd've there'd've they'd've we'd've who'd've you'd've
    y'all'll
""".split()

# any one of three
_THREE_APOSTROPHES = ["y'all'd've", "'ow's'at"]


def _without_one_apostrophe(word: str) -> list[str]:
    return [word[:at] + word[at + 1 :] for at, mark in enumerate(word) if mark == "'"]


CONTRACTIONS: Final = {
    short: word
    for word in (*_ONE_APOSTROPHE, *_TWO_APOSTROPHES, *_THREE_APOSTROPHES)
    for short in _without_one_apostrophe(word)
} | {"somebody'd": "somebodyd"}  # a slip of the official table, kept because scores rest on it

_THOUSANDS_2 = re.compile(r"\d,\d", re.ASCII)  # Python 2, in which the official tool runs
_STOP_2 = re.compile(r"\.(?!\d)", re.ASCII)
_THOUSANDS_3 = re.compile(r"\d,+\d")
_STOP_3 = re.compile(r"\.(?!\d)")
_MOST_STOPS = 32  # the tool passes `re.UNICODE`, which is 32, where `re.sub` takes a count


def strip_punctuation(text: str, *, python3: bool = False) -> str:
    """Delete or blank the 21 punctuation marks, and full stops that no digit follows.

    A mark is deleted where the text has it next to a blank, or has a digit-comma-digit
    anywhere, and becomes a blank otherwise.

    Args:
        text: An answer.
        python3: Take any script's digits for digits, as the tools for Python 3 do.

    >>> strip_punctuation("t-shirt"), strip_punctuation("1,000 t-shirts")
    ('t shirt', '1000 tshirts')
    """
    thousands, stop = (_THOUSANDS_3, _STOP_3) if python3 else (_THOUSANDS_2, _STOP_2)
    has_thousands = thousands.search(text) is not None
    stripped = text
    for mark in PUNCTUATION:
        delete = has_thousands or f"{mark} " in text or f" {mark}" in text
        stripped = stripped.replace(mark, "" if delete else " ")
    return stop.sub("", stripped, count=_MOST_STOPS)


def fold_words(text: str) -> str:
    """Lower the case, write numbers to ten as digits, drop articles, restore contractions.

    >>> fold_words("The two dogs dont bark")
    "2 dogs don't bark"
    """
    numbered = (NUMBERS.get(word, word) for word in text.lower().split())
    return " ".join(CONTRACTIONS.get(word, word) for word in numbered if word not in ARTICLES)


def blank_whitespace(text: str) -> str:
    """Replace newlines and tabs by blanks and strip, as the official tool does first."""
    return text.replace("\n", " ").replace("\t", " ").strip()


def vqa(text: str, *, python3: bool = False) -> str:
    """Normalise as the official VQA tool does (GT-Vision-Lab/VQA, vqaEval.py).

    >>> vqa("The  T-Shirt.")
    't shirt'
    """
    return fold_words(strip_punctuation(text, python3=python3))


def evalai(text: str) -> str:
    """Normalise as EvalAI's processor does (mmf, LLaVA's m4c evaluator, lmms-eval's OK-VQA).

    It deletes every comma and question mark first, so ``yes,it is`` becomes ``yesit is``.

    >>> evalai("Dog's, 1,500")
    "dog 's 1500"
    """
    words = text.lower().replace(",", "").replace("?", "").replace("'s", " 's")
    return vqa(blank_whitespace(words), python3=True)


def llava_med(text: str) -> str:
    """Normalise as LLaVA-Med v1.0.0 does (run_eval.py): the official rule, less any comma.

    >>> llava_med("Chest X-Ray.")
    'chest x ray'
    """
    return vqa(text.lower()).replace(",", "")


def says_nothing(text: str) -> bool:
    """Return whether nothing is left of an answer once LLaVA-Med's rule has normalised it.

    >>> says_nothing("The"), says_nothing("?"), says_nothing("B")
    (True, True, False)
    """
    return not llava_med(text)


def same(one: str, other: str, normalise: Callable[[str], Collection[str]] = llava_med) -> bool:
    """Return whether two answers are equal once normalised.

    Two of which nothing is left, such as ``A`` and ``the``, are held against each other as they are
    written: without marks, or with them if those are all there is.

    Args:
        one: An answer.
        other: Another one.
        normalise: The rule.

    >>> same("A.", "a"), same("A", "the"), same("", "A"), same("?", "?"), same("?", "!")
    (True, False, False, True, False)
    """
    pair = normalise(one), normalise(other)
    if any(pair):
        return pair[0] == pair[1]
    marked = [blank_whitespace(text).lower() for text in (one, other)]
    plain = [" ".join(strip_punctuation(text).split()) for text in marked]
    return plain[0] == plain[1] if any(plain) else marked[0] == marked[1]


def gqa(text: str) -> str:
    """Lower the case and strip blanks and final full stops.

    >>> gqa(" Yes. ")
    'yes'
    """
    return text.strip().lower().rstrip(".").rstrip()


_CHINESE_MARKS = "。、·《》【】「」『』“”\u2018\u2019"  # NFKC has made ASCII of the others
_ENUMERATION = re.compile("[、,]")
_CHINESE_YES = frozenset("是 是的 对 有 包含 包括 存在 可以 能 会 yes".split())
_CHINESE_NO = frozenset("否 不是 不 没有 无 不包含 不包括 不存在 不可以 不能 不会 no".split())


def chinese(text: str, *, fold_yes_no: bool = False) -> frozenset[str]:
    """Return the parts of a Chinese answer, in one width and without final punctuation.

    An enumeration is a set: ``肺、肝脏`` equals ``肝脏、肺``.

    Args:
        text: An answer.
        fold_yes_no: Make the words for yes one word, and those for no. 正常 and 异常 (normal,
            abnormal) are neither.

    >>> sorted(chinese("肺、肝脏。")) == sorted(chinese("肝脏、肺"))
    True
    """
    whole = unicodedata.normalize("NFKC", text).lower().strip()
    parts = (part.strip(string.whitespace) for part in _ENUMERATION.split(whole))
    stripped = (part.rstrip(_CHINESE_MARKS + string.punctuation + " ") for part in parts)
    words = frozenset(part for part in stripped if part)
    if fold_yes_no and len(words) == 1:
        (word,) = words
        return frozenset({"yes" if word in _CHINESE_YES else "no" if word in _CHINESE_NO else word})
    return words


_FULL_WIDTH = 0xFEE0  # distance of a full-width form from its ASCII character
_LMMS_MARKS = string.punctuation + "。、《》【】\uff61"
_LMMS_MARKS += "".join(chr(ord(mark) + _FULL_WIDTH) for mark in string.punctuation if mark != ".")
_LMMS_BLANKS = str.maketrans(dict.fromkeys(_LMMS_MARKS, " "))
_LMMS_YES = frozenset("yes yeah yep true 是 是的 有 包含 可以 能 会 正常".split())
_LMMS_NO = frozenset("no nope false 否 不是 没有 无 不包含 不能 不会 不可以 不正常 异常".split())


def lmms_slake(text: str) -> str:
    """Normalise as lmms-eval's SLAKE task does, both languages alike.

    It folds 正常 (normal) into yes and 异常 (abnormal) into no, and does not know 存在.

    >>> lmms_slake("X-Ray (chest)"), lmms_slake("正常")
    ('xray', 'yes')
    """
    bare = re.sub(r"\([^)]*\)|\uff08[^\uff09]*\uff09", " ", text.strip().lower())
    folded = " ".join(bare.translate(_LMMS_BLANKS).split())
    if folded in {"x ray", "xray"}:
        return "xray"
    return "yes" if folded in _LMMS_YES else "no" if folded in _LMMS_NO else folded

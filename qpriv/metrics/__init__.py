"""Scores and privacy measures: Metric classes over pure functions."""

from . import functional
from .answers import (
    ANLS,
    AnswerScore,
    AnswerScores,
    ClosedExactMatch,
    ClosedFirstWord,
    GQAAccuracy,
    LlavaMedClosed,
    OpenRecall,
    SlakeMatch,
    VQAAccuracy,
    score_sample,
)

__all__ = (
    "ANLS",
    "AnswerScore",
    "AnswerScores",
    "ClosedExactMatch",
    "ClosedFirstWord",
    "GQAAccuracy",
    "LlavaMedClosed",
    "OpenRecall",
    "SlakeMatch",
    "VQAAccuracy",
    "functional",
    "score_sample",
)

"""The figures made of answered questions."""

from lightning_modules.answers import Answered, figures
from qpriv.datasets.sample import AnswerType


def answered(number, prediction):
    return Answered(
        key=f"Doc/test/{number}", group=f"Doc/{number}", question_type="", prediction=prediction,
        answer_type=AnswerType.OPEN, score=0.0, loss=1.0, kept=3,
    )  # fmt: skip


def test_predictions_of_which_nothing_is_left_are_counted():
    said = ["lung", "the", "A", ""]
    rows = [answered(number, prediction) for number, prediction in enumerate(said)]
    found = {one.name: one for one in figures(rows, "val", "medical", "{question}")}
    assert found["empty_predictions"].value == 0.75
    assert found["empty_predictions"].note.startswith("3 predictions")
    whole = figures(rows[:1], "val", "medical", "{question}")
    assert "empty_predictions" not in {one.name for one in whole}

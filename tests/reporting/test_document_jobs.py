"""Trainings that each leave one file: order, several at a time, and what a failure costs."""

import json
from functools import partial

import pytest

from qpriv.reporting.document_jobs import Job, carry_out


def answer(number):
    if number < 0:
        raise ValueError(number)
    return {"number": number}


def jobs(folder, *numbers):
    return [Job(folder / f"run={number}.json", partial(answer, number)) for number in numbers]


def left(folder):
    return {json.loads(path.read_text())["number"] for path in folder.glob("*.json")}


@pytest.mark.parametrize("at_once", [1, 2])
def test_only_what_is_missing_runs(tmp_path, capsys, at_once):
    carry_out(jobs(tmp_path, 1), at_once)
    capsys.readouterr()
    carry_out(jobs(tmp_path, 1, 2, 3), at_once)
    assert left(tmp_path) == {1, 2, 3}
    said = capsys.readouterr().out
    assert "[1/2] run=2: trains" in said and "run=1" not in said


def test_what_is_left_is_said_while_something_is(tmp_path, capsys):
    carry_out(jobs(tmp_path, 1, 2, 3))
    assert capsys.readouterr().out.count("minutes left") == 2


def test_a_failure_ends_the_study_and_keeps_what_was_done(tmp_path):
    with pytest.raises(ValueError, match="-1"):
        carry_out(jobs(tmp_path, 1, -1, 2))
    assert left(tmp_path) == {1} and not list(tmp_path.glob(".*"))

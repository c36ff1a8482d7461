"""``qpriv predict`` on the test servers' splits: what is uploaded, and the prompt it was asked by."""

import json

import pytest

from cli.main import main
from tests.data.gqa import data as gqa
from tests.data.vqav2 import data as vqav2


def predict(tmp_path, name, *words):
    """Predict the tiny model's answers to a release and return the run folder."""
    main(
        [
            "predict",
            "--model=VQAModule",
            f"--data={name}",
            f"--data.root={tmp_path / 'data'}",
            f"--trainer.default_root_dir={tmp_path / 'run'}",
            "--trainer.enable_progress_bar=false",
            "--model.feature_cache=null",
            "--run.wandb=off",
            *words,
        ]
    )
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def data(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_vqav2_is_submitted_with_the_numbers_of_the_questions_file(tmp_path, data):
    vqav2.write_release(data)
    run = predict(tmp_path, "VQAv2", "--data.test_split=test", "--data.eval_batch_size=3")
    rows = json.loads((run / "submission.json").read_text())
    asked = vqav2.questions("test2015")["questions"]
    assert [row["question_id"] for row in rows] == [row["question_id"] for row in asked]
    assert all(set(row) == {"question_id", "answer"} for row in rows)
    answers = {
        line["key"]: line["prediction"]
        for line in map(json.loads, (run / "predictions.jsonl").read_text().splitlines())
    }
    assert answers == {f"VQAv2/test/{row['question_id']}": row["answer"] for row in rows}


def test_gqa_is_submitted_with_the_zeros_of_its_ids(tmp_path, data):
    gqa.write_release(data)
    run = predict(tmp_path, "GQA", "--data.test_split=test")
    rows = json.loads((run / "submission.json").read_text())
    assert [row["questionId"] for row in rows] == list(gqa.questions("test"))
    assert all(set(row) == {"questionId", "prediction"} for row in rows)
    assert rows[0]["questionId"].startswith("00")


@pytest.mark.parametrize("cut", ["--data.cap=1", "--data.max_eval=1", "--data.missing_images=drop"])
def test_what_a_server_would_reject_is_not_written(tmp_path, data, cut, capsys):
    vqav2.write_release(data)
    if "missing" in cut:
        (data / "test2015/COCO_test2015_000000000002.jpg").unlink()
    run = predict(tmp_path, "VQAv2", "--data.test_split=test", cut)
    assert (run / "predictions.jsonl").is_file()
    assert not (run / "submission.json").exists()
    assert "warning: no submission.json" in capsys.readouterr().err

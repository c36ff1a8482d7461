"""``qpriv data check`` as a user meets it: text, JSON, exit codes, and no traceback."""

import json
import os
import pickle
import zipfile

import pytest

from cli.main import main
from tests.data.conversations import data as conversations
from tests.data.gqa import data as gqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake


def run(capsys, *words):
    """Run the command and return exit code, what it printed and what it complained of."""
    code = 0
    try:
        main(["data", "check", *map(str, words)])
    except SystemExit as stop:
        code = stop.code
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_sound_folder_prints_its_account(tmp_path, capsys):
    root = slake.write_release(tmp_path)
    code, out, _ = run(capsys, "--dataset", "SLAKE", "--root", root)
    assert code == 0
    assert "SLAKE/train: 11 rows read, 10 kept" in out
    assert "languages: en 6, zh 4" in out
    assert "2 of 2 images of test are also in train" in out


def test_json_is_one_object_with_the_same_counts(tmp_path, capsys):
    root = slake.write_release(tmp_path)
    (root / "imgs/xmlab3/source.jpg").unlink()
    code, out, _ = run(capsys, "--dataset", "SLAKE", "--root", root, "--json")
    found = json.loads(out)
    assert code == 2  # an image is missing
    assert found["reports"][1]["missing_images"] == 1
    assert found["leaks"][0]["groups"] == 2


def test_leaks_stop_on_request(tmp_path, capsys):
    root = slake.write_release(tmp_path)
    code, _, err = run(capsys, "--dataset", "SLAKE", "--root", root, "--on-leak", "error")
    assert code == 2
    assert "2 of 2 images" in err


def test_conversations_are_checked_too(tmp_path, capsys):
    code, out, _ = run(capsys, "--dataset", "Conversations", "--root",
                       conversations.write_release(tmp_path))  # fmt: skip
    assert "Conversations/train: 6 rows read, 5 kept" in out
    assert code == 0


def test_a_split_without_rows_is_not_sound(tmp_path, capsys):
    root = slake.write_release(tmp_path)
    (root / "test.json").write_text("[]")
    code, out, _ = run(capsys, "--dataset", "SLAKE", "--root", root)
    assert code == 2 and "SLAKE/test: 0 rows read, 0 kept" in out


@pytest.mark.parametrize("gone", ["train.json", "validate.json", "test.json"])
def test_a_split_that_is_needed_and_not_there_is_not_sound(tmp_path, capsys, gone):
    root = slake.write_release(tmp_path)
    (root / gone).unlink()
    code, out, _ = run(capsys, "--dataset", "SLAKE", "--root", root)
    assert code == 2 and f"not there (no file {gone}" in out and "--split" in out
    found = json.loads(run(capsys, "--dataset", "SLAKE", "--root", root, "--json")[1])
    assert not found["is_sound"]


def test_only_the_splits_that_are_named_are_looked_at(tmp_path, capsys):
    root = slake.write_release(tmp_path)
    (root / "train.json").unlink()
    code, out, _ = run(capsys, "--dataset", "SLAKE", "--root", root, "--split", "val", "test")
    assert code == 0 and "SLAKE/train" not in out
    code, _, err = run(capsys, "--dataset", "SLAKE", "--root", root, "--split", "nightly")
    assert code == 2 and "use train, val, test" in err


def test_bad_rows_are_all_found_and_not_sound(tmp_path, capsys):
    root = slake.write_release(tmp_path)
    rows = json.loads((root / "train.json").read_text())
    rows[2]["answer"], rows[5]["answer"], rows[6]["question"] = None, {"a": 1}, "<image> ?"
    (root / "train.json").write_text(json.dumps(rows))
    code, out, _ = run(capsys, "--dataset", "SLAKE", "--root", root)
    assert code == 2
    for told in (
        "record 2: ",
        "record 5: ",
        "got `null`",
        "got `object`",
        "holds the text <image>",
    ):
        assert told in out


def malicious(root):
    path_vqa.write_release(root)

    class Malicious:
        def __reduce__(self):
            return (open, (str(root / "marker"), "w"))

    (root / "pvqa/qas/train/train_qa.pkl").write_bytes(pickle.dumps([Malicious()], 2))


def slip(root):
    with zipfile.ZipFile(root / "slip.zip", "w") as archive:
        archive.writestr("../out.json", "[]")


def html(root):
    path_vqa.write_release(root)
    (root / "pvqa/qas/train/train_qa.pkl").write_text("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(malicious, "could run code"), (slip, "leaves the data folder"), (html, "web page")],
)
def test_bad_input_is_one_short_error(tmp_path, capsys, spoil, message):
    spoil(tmp_path)
    code, out, err = run(capsys, "--dataset", "PathVQA", "--root", tmp_path)
    assert code == 2 and not out
    assert message in err and "Traceback" not in err
    assert len(err.splitlines()) <= 4
    assert not (tmp_path / "marker").exists()
    assert not (tmp_path.parent / "out.json").exists()


def test_the_unbalanced_questions_of_gqa_can_be_looked_at(tmp_path, capsys):
    root = gqa.write_release(tmp_path)
    for path in root.rglob("*balanced*"):
        path.unlink()
    words = ("--dataset", "GQA", "--root", root, "--split", "train")
    code, _, err = run(capsys, *words)
    assert code == 2 and "train_balanced_questions.json" in err
    code, out, _ = run(capsys, *words, "--subset", "all")
    assert code == 0 and "GQA/train" in out


def test_an_object_of_other_fields_is_not_taken_for_json_lines(tmp_path, capsys):
    (tmp_path / "train.json").write_text('{"data": []}')
    _, _, err = run(capsys, "--dataset", "Conversations", "--root", tmp_path)
    assert "JSON Lines" not in err and "none of 1 rows can be used" in err


def test_what_is_there_instead_of_a_picture_is_told(tmp_path, capsys):
    root = conversations.write_release(tmp_path)
    for name, make in (("1.jpg", os.mkdir), ("2.jpg", os.mkfifo)):
        (root / "images/a" / name).unlink()
        make(root / "images/a" / name)
    code, out, _ = run(capsys, "--dataset", "Conversations", "--root", root)
    assert code == 2 and "is neither a file" in out and "a folder" in out

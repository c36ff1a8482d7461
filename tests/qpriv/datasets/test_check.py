import json
import logging

import pytest

from qpriv.datasets.check import check
from qpriv.datasets.gqa import GQA
from qpriv.datasets.leaks import find_leaks, report_leaks
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.submission import write_submission
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import ConfigError, DataError
from tests.data.celeba import data as celeba
from tests.data.gqa import data as gqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2


def test_a_check_tells_everything_and_is_plain_json(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "imgs/xmlab3/source.jpg").write_bytes(b"<html>")
    (root / "imgs/xmlab1/source.jpg").unlink()
    found = check("SLAKE", root)
    plain = json.loads(json.dumps(found.as_dict()))
    train, val, _ = plain["reports"]
    assert (train["read"], train["kept"], train["empty_golds"]) == (11, 10, 1)
    assert train["languages"] == {"en": 6, "zh": 4}
    assert (train["missing_images"], val["broken_images"]) == (1, 1)
    assert plain["reports"][2]["shared_groups"] == {"train": 2}
    assert not found.is_sound
    text = str(found)
    for words in ("11 rows read, 10 kept", "gold answer is empty", "missing images", "web page"):
        assert words in text
    assert "2 of 2 images of test are also in train" in text


def test_a_sound_folder_is_sound_and_absent_splits_are_named(tmp_path):
    root = celeba.write_release(tmp_path)
    assert check("CelebA", root).is_sound
    for path in vqav2.write_release(tmp_path).glob("v2_*2015*"):
        path.unlink()
    found = check("VQAv2", tmp_path)
    assert set(found.absent) == {"test", "test-dev"} and found.is_sound


def test_a_leak_by_carving_is_also_counted_for_the_release(tmp_path):
    found = check("VQARAD", vqa_rad.write_release(tmp_path), decode_images=False)
    by_pair = {leak.one: leak.groups for leak in found.leaks}
    assert by_pair.get("train or val", by_pair.get("train")) == 2
    assert all(report.broken_images is None for report in found.reports)


def test_unknown_sets_and_empty_folders_are_one_error_each(tmp_path):
    with pytest.raises(ConfigError, match=r"'VizWiz'.*SLAKE"):
        check("VizWiz", tmp_path)
    with pytest.raises(DataError, match=r"no file train\.json"):
        check("SLAKE", tmp_path)


def test_leaks_warn_or_stop(tmp_path, caplog):
    root = slake.write_release(tmp_path)
    leaks = find_leaks({split: SLAKE(root, split, "all").samples for split in SLAKE.splits})
    with caplog.at_level(logging.WARNING):
        report_leaks(leaks, "SLAKE", "warn")
    assert "2 of 2 images" in caplog.text
    with pytest.raises(DataError, match=r"2 of 2 images.*on_leak"):
        report_leaks(leaks, "SLAKE", "error")


def test_submissions_have_the_servers_format_and_every_question(tmp_path):
    samples = VQAv2(vqav2.write_release(tmp_path), "test").samples
    answers = {sample.key: "two dogs" for sample in samples}
    write_submission(tmp_path / "out/vqa.json", samples, answers)
    rows = json.loads((tmp_path / "out/vqa.json").read_text())
    assert rows[0] == {"question_id": 1000, "answer": "two dogs"}
    assert [row["question_id"] for row in rows] == [1000, 1001, 2000, 2001]
    with pytest.raises(DataError, match=r"no answer.*VQAv2/test/2001"):
        write_submission(tmp_path / "x.json", samples, dict(list(answers.items())[:3]))
    assert not (tmp_path / "x.json").exists()


def test_gqa_submissions_keep_the_zeros(tmp_path):
    samples = GQA(gqa.write_release(tmp_path), "test").samples
    write_submission(tmp_path / "gqa.json", samples, {s.key: "Yes." for s in samples})
    rows = json.loads((tmp_path / "gqa.json").read_text())
    assert rows[0] == {"questionId": "0040000", "prediction": "yes"}


def test_sets_without_a_server_say_so(tmp_path):
    samples = SLAKE(slake.write_release(tmp_path), "test").samples
    with pytest.raises(DataError, match="no test server"):
        write_submission(tmp_path / "x.json", samples, {})

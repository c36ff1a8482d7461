"""Rows that cannot be used stop before a fit, or are left out by name; they never become text."""

import json
import pickle
import zipfile
from collections import Counter
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from datamodules.dpriv import DPriv
from datamodules.slake import SLAKE as SLAKEModule
from qpriv.datasets import images
from qpriv.datasets.check import check
from qpriv.datasets.conversations import Conversations
from qpriv.datasets.decoding import load_picture, suspect_images
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.files import zip_members
from qpriv.datasets.gqa import GQA
from qpriv.datasets.image_index import ArchivedImage
from qpriv.datasets.mixture import VQAMixture
from qpriv.datasets.okvqa import OKVQA
from qpriv.datasets.path_vqa import PathVQA
from qpriv.datasets.sample import FileImage
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.submission import write_submission
from qpriv.datasets.vqa_rad import VQARAD
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import DataError
from tests.data import pictures
from tests.data.celeba import data as celeba
from tests.data.gqa import data as gqa
from tests.data.mnist import data as mnist
from tests.data.okvqa import data as okvqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2
from tests.qpriv.datasets.contract import rewrite

RELEASES = {
    SLAKE: (slake, "train.json", None),
    VQARAD: (vqa_rad, "VQA_RAD Dataset Public.json", None),
    VQAv2: (vqav2, "v2_mscoco_train2014_annotations.json", "annotations"),
    OKVQA: (okvqa, "mscoco_train2014_annotations.json", "annotations"),
    GQA: (gqa, "train_balanced_questions.json", None),
}


def spoil(root, kind, value):
    """Give the second record of a release an answer that is none."""
    _, name, array = RELEASES[kind]

    def changed(content):
        rows = content[array] if array else content
        row = list(rows.values())[1] if isinstance(rows, dict) else rows[1]
        row["answers" if "answers" in row else "answer"] = value
        return content

    rewrite(next(root.rglob(name)), changed)


@pytest.mark.parametrize("value", [{"text": "a mass"}, [{"text": 1}], True], ids=str)
@pytest.mark.parametrize("kind", RELEASES, ids=lambda kind: kind.name)
def test_an_answer_that_is_no_text_stops_or_is_dropped_by_name(tmp_path, kind, value):
    root = RELEASES[kind][0].write_release(tmp_path)
    options = {"val_fraction": 0.0} if kind is VQARAD else {}
    whole = kind(root, **options)
    spoil(root, kind, value)
    with pytest.raises(DataError, match=r"record .*on_bad_row: drop"):
        kind(root, **options)
    left = kind(root, on_bad_row="drop", **options)
    report = left.report
    assert len(left) == len(whole) - 1
    assert report.read == report.kept + report.dropped.total() == whole.report.read
    assert report.bad_rows == 1 == report.dropped.total() - whole.report.dropped.total()
    assert "record 1" in report.bad[0] or "record 0" in report.bad[0] or "0080" in report.bad[0]
    assert not any("None" in s.answers or "text" in s.answers for s in left.samples)


def test_rows_of_a_mirror_and_of_a_pickle_too(tmp_path):
    pictures.save(tmp_path / "x.png", 1)
    image = {"bytes": (tmp_path / "x.png").read_bytes(), "path": None}
    rows = {"image": [image] * 2, "question": ["a", "b"], "answer": [None, "yes"]}
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    with pytest.raises(DataError, match=r"row 0.*on_bad_row"):
        PathVQA(tmp_path)
    left = PathVQA(tmp_path, on_bad_row="drop")
    assert [s.answer for s in left.samples] == ["yes"] and "row 0" in left.report.bad[0]

    root = path_vqa.write_release(tmp_path / "release")
    file = next(root.rglob("train_qa.pkl"))
    records = pickle.loads(file.read_bytes())
    ids = [s.qid for s in PathVQA(root).samples]
    records[1]["answer"] = None
    file.write_bytes(pickle.dumps(records, 2))
    with pytest.raises(DataError, match="record 1"):
        PathVQA(root)
    assert [s.qid for s in PathVQA(root, on_bad_row="drop").samples] == [ids[0], *ids[2:]]


def test_a_file_of_nothing_but_bad_rows_is_the_wrong_file(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "train.json").write_text(json.dumps([{"id": 1}, {"id": 2}]))
    with pytest.raises(DataError, match=r"none of 2 rows.*record 0"):
        SLAKE(root, on_bad_row="drop")


def test_broken_json_is_no_bad_row(tmp_path):
    root = slake.write_release(tmp_path)
    (root / "train.json").write_text(json.dumps(slake.records("train"))[:-30])
    with pytest.raises(DataError, match="ends early"):
        SLAKE(root, on_bad_row="drop")


def test_bad_rows_across_blocks_of_a_large_file_keep_the_places_of_the_others(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("qpriv.datasets.encodings._BLOCK", 2000)
    root = slake.write_release(tmp_path)
    rows = [slake.records("train")[0] | {"qid": n} for n in range(60)]
    for number in (0, 7, 31, 59):
        rows[number]["answer"] = None
    (root / "train.json").write_text(json.dumps(rows))
    left = SLAKE(root, on_bad_row="drop")
    assert [int(s.qid) for s in left.samples] == [n for n in range(60) if n not in (0, 7, 31, 59)]
    places = [told.partition(": ")[0].rpartition(" ")[2] for told in left.report.bad]
    assert places == ["0", "7", "31", "59"]


@pytest.mark.parametrize("kind", ["null", "dict", "<image>"])
def test_turns_of_a_conversation(tmp_path, kind):
    value = {"null": None, "dict": {"a": 1}, "<image>": "see <image>"}[kind]
    pictures.save(tmp_path / "a.jpg", 1)
    good = [{"from": "human", "value": "<image> what ?"}, {"from": "gpt", "value": "a mass"}]
    rows = [{"id": n, "image": "a.jpg", "conversations": good} for n in range(3)]
    rows[1] = rows[1] | {"conversations": [good[0], {"from": "gpt", "value": value}]}
    (tmp_path / "train.json").write_text(json.dumps(rows))
    with pytest.raises(DataError, match="on_bad_row"):
        Conversations(tmp_path)
    left = Conversations(tmp_path, on_bad_row="drop")
    assert [s.qid for s in left.samples] == ["0", "2"] and left.report.bad_rows == 1


def test_a_main_answer_alone_cannot_be_scored(tmp_path):
    root = vqav2.write_release(tmp_path)
    path = root / "v2_mscoco_train2014_annotations.json"

    def without(file):
        file["annotations"][0].pop("answers")
        return file

    rewrite(path, without)
    with pytest.raises(DataError, match="no `answers`"):
        VQAv2(root)
    assert VQAv2(root, on_bad_row="drop").report.bad_rows == 1

    def one(file):
        return {"annotations": [row | {"answers": row.get("answers", ["x"])[:1]}
                                for row in file["annotations"]]}  # fmt: skip

    rewrite(path, one)
    assert "accuracy_official is 0" in str(VQAv2(root).report)


def test_pictures_are_decoded_before_a_fit_where_bad_rows_are_dropped(tmp_path, caplog):
    root = slake.write_release(tmp_path)
    (root / "imgs/xmlab1/source.jpg").write_bytes(b"no picture")
    gone = next(s for s in SLAKE(root, "val").samples)
    whole = SLAKE(root).samples
    module = SLAKEModule(root=str(root), on_bad_row="drop")
    with caplog.at_level("INFO"):
        module.setup("fit")
    left = module.samples("train")
    assert 0 < len(left) < len(whole) and all(s.image.load() for s in left)
    assert "bad row" in caplog.text and "xmlab1" in caplog.text
    pictures.save(root / "imgs/xmlab1/source.jpg", 1)
    gone.image.path.unlink()
    with pytest.raises(DataError, match="missing"):
        SLAKEModule(root=str(root)).setup("fit")


def test_texts_that_the_model_does_not_take_are_left_out_before_the_first_batch(tmp_path, caplog):
    root = str(slake.write_release(tmp_path))

    def check_text(sample):
        if sample.qid == second.qid:
            raise DataError("too long", where=sample.key)

    modules = [SLAKEModule(root=root, on_bad_row=choice) for choice in ("stop", "drop")]
    second = modules[0].samples("train")[1]
    for module in modules:
        preprocessor = Mock(check_text=check_text)
        module.trainer = Mock(lightning_module=Mock(preprocessor=preprocessor, data_replicas=1))
        module.trainer.global_rank, module.trainer.world_size = 0, 1
    with pytest.raises(DataError, match=r"too long.*on_bad_row"):
        modules[0].train_dataloader()
    loader = modules[1].train_dataloader()
    assert second.key not in {sample.key for sample in loader.dataset}
    assert len(loader.dataset) == len(modules[0].read("train")) - 1
    assert [s.key for s in modules[1].samples("train")] == [s.key for s in loader.dataset]
    assert "1 rows are left out" in caplog.text and second.key in caplog.text


def test_records_of_document_sets_too(tmp_path):
    document = {"docId": 1, "ucsf_document_id": "a", "image": "documents/a_1.png"}
    rows = [
        document | {"questionId": 7, "question": "q ?", "answers": answers}
        for answers in (["x"], {"text": "y"}, ["z"], ["x"])
    ]
    pictures.save(tmp_path / "documents/a_1.png", 1)
    (tmp_path / "train_v1.0.json").write_text(json.dumps({"data": rows}))
    with pytest.raises(DataError, match=r"record 1.*on_bad_row"):
        DocVQA(tmp_path)
    left = DocVQA(tmp_path, on_bad_row="drop")
    # the last one repeats the first and is the same sample, the other is not
    assert [(s.qid, s.answer) for s in left.samples] == [("7", "x"), ("7~2", "z"), ("7", "x")]
    assert left.report.bad_rows == 1


def test_undecodable_pictures_of_image_sets(tmp_path):
    root = celeba.write_release(tmp_path / "a")
    next(root.rglob("000001.jpg")).write_bytes(b"no picture")
    settings = {"celeba": str(root), "mnist": str(mnist.write_release(tmp_path / "b"))}
    module = DPriv(**settings, on_bad_row="drop")
    assert all(sample.image.load() for sample in module.read("train"))


def test_a_bad_annotation_is_counted_where_its_question_would_be_a_row(tmp_path):
    root = vqav2.write_release(tmp_path)
    path = root / "v2_mscoco_train2014_annotations.json"

    def spoilt(file):
        rows = file["annotations"]
        rows[0]["question_id"], rows[1]["answers"] = None, 1
        return file | {"annotations": [*rows, rows[2] | {"answers": 1}]}  # the last one for nobody

    bad = sorted(row["question_id"] for row in vqav2.annotations("train2014")["annotations"][:2])
    rewrite(path, spoilt)
    left = VQAv2(root, on_bad_row="drop")
    report = left.report
    assert (report.read, report.kept, report.bad_rows) == (6, 4, 2)
    assert not {int(s.qid) for s in left.samples} & set(bad)
    assert {told.partition(": ")[0].rpartition(" ")[2] for told in report.bad} == {"0", "1"}
    # what a cap leaves out is left out once, whatever its annotation
    kept = VQAv2(root, cap=2, on_bad_row="drop").report
    assert kept.read == 6 == kept.kept + kept.dropped.total()
    assert kept.dropped["beyond the cap of 2, drawn by image"] == 4
    with pytest.raises(DataError, match=r"record [01].*on_bad_row"):
        VQAv2(root, cap=2)


def test_golds_that_normalise_to_nothing_are_counted(tmp_path):
    root = slake.write_release(tmp_path)
    rewrite(root / "train.json", lambda rows: [rows[0] | {"answer": "A"}, *rows[1:]])
    assert check("SLAKE", root).reports[0].bare_golds == 1


def conversation(root, ids):
    pictures.save(root / "a.jpg", 1)
    turns = [{"from": "human", "value": "what ?"}, {"from": "gpt", "value": "a mass"}]
    rows = [{"id": name, "image": "a.jpg", "conversations": turns * 2} for name in ids]
    (root / "train.json").write_text(json.dumps(rows))
    return root


def test_keys_are_unique_whatever_the_ids(tmp_path):
    found = Conversations(conversation(tmp_path, ["x", "x", "x-0", "x-0~2", None, 4]))
    keys = [sample.key for sample in found.samples]
    assert len(keys) == len(set(keys)) == 12
    assert keys[:4] == [f"Conversations/train/{q}" for q in ("x-0", "x-1", "x-0~2", "x-1~2")]
    assert "told apart" in str(found.report)


def test_keys_of_two_folders_of_one_kind_are_unique_in_a_mixture(tmp_path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    mixed = VQAMixture([Conversations(conversation(folder, ["x"])) for folder in folders])
    assert len({sample.key for sample in mixed.samples}) == len(mixed) == 4
    assert {s.key for s in mixed.oracle_samples} <= {s.key for s in mixed.samples}


def test_ids_that_servers_know_stand_once(tmp_path):
    root = vqav2.write_release(tmp_path)
    path = next(root.rglob("v2_*_test2015_questions.json"))
    rewrite(path, lambda file: file | {"questions": [*file["questions"], file["questions"][0]]})
    with pytest.raises(DataError, match="an id that an earlier question has"):
        VQAv2(root, "test")
    whole = VQAv2(root, "test", on_bad_row="drop")
    assert whole.report.bad_rows == 1
    twice = [*whole.samples, whole.samples[0]]
    with pytest.raises(DataError, match="two answers to one question"):
        write_submission(tmp_path / "x.json", twice, {s.key: "a" for s in twice})


def test_ids_do_not_change_on_the_way_to_a_submission(tmp_path):
    root = vqav2.write_release(tmp_path)
    path = next(root.rglob("v2_*_test2015_questions.json"))
    ids = iter(["007", "q7", 7, 12])

    def renamed(file):
        return file | {"questions": [q | {"question_id": next(ids)} for q in file["questions"]]}

    rewrite(path, renamed)
    samples = VQAv2(root, "test").samples
    write_submission(tmp_path / "x.json", samples, {s.key: "a" for s in samples})
    rows = json.loads((tmp_path / "x.json").read_text())
    assert [row["question_id"] for row in rows] == ["007", "q7", 7, 12]


BROKEN = {
    "cut short": lambda data: data[: len(data) // 2],
    "a web page": lambda data: b"<!DOCTYPE html>",
    "too large": lambda data: data[:16] + (60_000).to_bytes(4, "big") * 2 + data[24:],
}


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "webp"])
def test_broken_files_are_found_without_decoding_those_that_are_whole(
    tmp_path, ending, archived, monkeypatch
):
    pictures.save(tmp_path / "noise.png", 1, size=(90, 70))
    for number in range(2):
        with Image.open(tmp_path / "noise.png") as image:
            image.save(tmp_path / f"{number}.{ending}")
    whole, broken = ((tmp_path / f"{n}.{ending}") for n in range(2))
    kinds = [kind for kind in BROKEN if ending == "png" or kind != "too large"]
    for kind in kinds:
        broken.write_bytes(BROKEN[kind](whole.read_bytes()))
        if archived and kind == "cut short":
            continue  # only the head of an archived picture is unpacked
        decoded = Counter()
        monkeypatch.setattr(images, "_upright", lambda image, _: decoded.update(["one"]) or image)
        found = suspect_images([Picture(path, archived) for path in (whole, broken)])
        assert list(found) == [broken.name] and broken.name in found[broken.name].where
        assert archived or decoded.total() == (ending in ("bmp", "webp"))


def test_a_fit_stops_at_broken_pictures_before_it_begins(tmp_path):
    root = slake.write_release(tmp_path)
    broken = [s.image.path for s in SLAKE(root).samples[:1]] + [SLAKE(root).samples[-1].image.path]
    for path in broken:
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"on_bad_row: drop") as caught:
        SLAKEModule(root=str(root)).setup("fit")
    told = str(caught.value)
    assert str(broken[0]) in told and "as are 1 others" in told
    assert "`qpriv data check --dataset SLAKE --root FOLDER`" in told


def test_a_picture_that_breaks_in_the_middle_of_a_fit_is_told_with_its_record(tmp_path):
    sample = SLAKE(slake.write_release(tmp_path)).samples[0]
    sample.image.path.write_bytes(b"no picture")
    with pytest.raises(DataError) as caught:
        load_picture(sample)
    for words in (str(sample.image.path), sample.key, "qpriv data check --dataset SLAKE",
                  "on_bad_row: drop", "--ckpt_path last"):  # fmt: skip
        assert words in str(caught.value)


class Picture:
    """A sample whose picture is a file, or a member of an archive."""

    def __init__(self, path, archived):
        self.image_id, self.image = path.name, FileImage(path)
        if archived:
            archive = path.with_suffix(".zip")
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
                file.write(path, path.name)
            self.image = ArchivedImage(next(zip_members(archive)))

"""Groups: a patient is never on both sides of a split, whatever field names it and however."""

import json
from collections import Counter
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datamodules.conversations import Conversations as ConversationsModule
from datamodules.docvqa_canaries import DocVQACanaries
from datamodules.dpriv import DPriv
from qpriv.datasets.check import check
from qpriv.datasets.conversations import Conversations
from qpriv.datasets.documents.canaries import group_of, without
from qpriv.datasets.documents.docvqa import DocVQA
from qpriv.datasets.documents.imdb import PFLDocVQA, convert_imdb
from qpriv.datasets.documents.multi_page import DUDE, MPDocVQA
from qpriv.datasets.dpriv.celeba import CelebA
from qpriv.datasets.dpriv.nih import NIHChestXray14
from qpriv.datasets.folds import shared_groups
from qpriv.datasets.gqa import GQA
from qpriv.datasets.groups import common_fields, group_name, joined
from qpriv.datasets.path_vqa import PathVQA
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.vqa_rad import VQARAD
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import ConfigError, DataError
from tests.data import pictures
from tests.data.celeba import data as celeba
from tests.data.gqa import data as gqa
from tests.data.mnist import data as mnist
from tests.data.nih import data as nih
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2
from tests.qpriv.datasets.contract import rewrite


class WithoutVal(Conversations):
    val_split = None


class Carved(ConversationsModule):
    source = WithoutVal


def records(patients, **more):
    """Return conversation records, one image each, with the patient that is given for each."""
    turns = [{"from": "human", "value": "what ?"}, {"from": "gpt", "value": "a mass"}]
    rows = [{"id": n, "image": f"{n}.jpg", "conversations": turns} for n in range(len(patients))]
    return [row | more | patient for row, patient in zip(rows, patients, strict=True)]


def write(root, patients, name="train.json"):
    (root / name).write_text(json.dumps(records(patients)))
    for number in range(len(patients)):
        pictures.save(root / f"{number}.jpg", number)
    return root


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("007", "7"), (7, "7"), (7.0, "7"), ("7.0", "7"), (" P7\n", "P7"), ("0", "0"), (0, "0"),
        (None, ""), ("", ""), ("NaN", ""), (float("nan"), ""), ("null", ""), ("7a", "7a"),
        ("1.5", "1.5"),
    ],
)  # fmt: skip
def test_a_group_has_one_name_as_text_and_as_number(value, name):
    assert group_name(value) == name


@pytest.mark.parametrize("value", [{}, [1], True])
def test_a_group_is_text_or_a_number(value):
    with pytest.raises(TypeError, match="text or a number"):
        group_name(value)


@pytest.mark.parametrize("field", ["patient_id", "PatientID", "Patient ID", "group", "subject_id"])
def test_common_names_are_found(tmp_path, field):
    assert field in common_fields()
    write(tmp_path, [{field: 7}, {field: "007"}, {field: "8"}, {}])
    found = Conversations(tmp_path)
    groups = [sample.group_id for sample in found.samples]
    assert groups[0] == groups[1] and len(set(groups)) == 3
    assert (found.report.groups, found.report.images) == (3, 4)
    assert found.report.grouped_by == {field: 3, "image": 1}
    assert f"groups: 3, by {field} (3 rows); 1 rows without it by image" in str(found.report)


def test_a_field_of_another_name_is_told_and_must_be_there(tmp_path):
    write(tmp_path, [{"case": "x"}, {"case": "x"}])
    assert Conversations(tmp_path).report.groups == 2
    assert Conversations(tmp_path, group_field="case").report.groups == 1
    assert Conversations(tmp_path, group_field="image").report.groups == 2  # a declared field
    with pytest.raises(DataError, match=r"group_field 'cas'"):
        Conversations(tmp_path, group_field="cas")


def test_what_is_no_name_is_told(tmp_path):
    write(tmp_path, [{"group": {"a": 1}}, {"patient_id": 3}])
    found = Conversations(tmp_path).report
    assert "group is not read as a group" in found.notes[0]
    with pytest.raises(DataError, match="record 0"):
        Conversations(tmp_path, group_field="group")


def test_rows_of_one_image_are_one_group_whatever_they_say(tmp_path):
    rows = records([{"patient_id": 1}, {"patient_id": 2}, {}])
    for row in rows:
        row["image"] = "0.jpg"
    rows += [row | {"image": "1.jpg", "patient_id": 2} for row in rows[:1]]
    write(tmp_path, [{}, {}])
    (tmp_path / "train.json").write_text(json.dumps(rows))
    assert len({sample.group_id for sample in Conversations(tmp_path).samples}) == 1
    assert joined([("a", "1"), ("b", "2")]) == {}


def with_patients(path, array=None):
    """Give all records of a file one patient, and return how many there are."""

    def changed(content):
        rows = content[array] if array else content
        for row in rows.values() if isinstance(rows, dict) else rows:
            row["patient_id"] = "007"
        return content

    rewrite(path, changed)


def test_every_set_that_can_carry_patients_groups_by_them(tmp_path):
    with_patients(slake.write_release(tmp_path / "a") / "train.json")
    with_patients(vqa_rad.write_release(tmp_path / "b") / "VQA_RAD Dataset Public.json")
    for name in "cd":
        (tmp_path / name).mkdir()
    questions = next(vqav2.write_release(tmp_path / "c").rglob("v2_*train2014_questions.json"))
    with_patients(questions, "questions")
    with_patients(next(gqa.write_release(tmp_path / "d").rglob("train_balanced_questions.json")))
    whole = [
        SLAKE(tmp_path / "a", lang="all"),
        VQARAD(tmp_path / "b", val_fraction=0),
        VQAv2(tmp_path / "c"),
        GQA(tmp_path / "d"),
    ]
    for dataset in whole:
        assert dataset.report.images > 1
        assert len({sample.group_id for sample in dataset.samples}) == 1
        assert "by patient_id" in str(dataset.report)


def test_a_mirror_groups_by_its_column(tmp_path):
    for number in range(2):
        pictures.save(tmp_path / f"{number}.png", number)
    picture, other = ((tmp_path / f"{number}.png").read_bytes() for number in range(2))
    rows = {
        "image": [{"bytes": data, "path": None} for data in (picture, other, other)],
        "question": ["a", "b", "c"],
        "answer": ["yes"] * 3,
        "subject_id": [1.0, 1.0, float("nan")],
    }
    pq.write_table(pa.table(rows), tmp_path / "train.parquet")
    for kind in (PathVQA, VQARAD, SLAKE):
        options = {"val_fraction": 0.0} if kind is VQARAD else {}
        assert len({s.group_id for s in kind(tmp_path, **options).samples}) == 1


def test_pickles_carry_groups_too(tmp_path):
    path_vqa.write_release(tmp_path)
    found = PathVQA(tmp_path, group_field="question")
    assert found.report.groups < found.report.images + len({s.question for s in found.samples})
    assert "by question" in str(found.report)


def test_the_carved_validation_set_and_folds_keep_patients_whole(tmp_path):
    patients = [{"patient_id": str(n // 5) if n % 2 else n // 5} for n in range(60)]
    write(tmp_path, patients[:50])
    write(tmp_path, [{"patient_id": 100 + n} for n in range(5)], "val.json")
    write(tmp_path, [{"patient_id": 3}] * 5, "test.json")
    module = ConversationsModule(root=str(tmp_path), victim_share=0.2, seed=1)
    lists = [module.members(), module.nonmembers(), module.population(), module.auxiliary()]
    assert [len(one) for one in lists] == [10, 10, 25, 5]
    assert all(not shared_groups(one, other) for one, other in combinations(lists, 2))
    assert len(module.targets()) == 5  # of one patient, an image each
    text = str(check("Conversations", tmp_path))
    assert "1 of 1 groups of test are also in train" in text


def test_rows_of_groups_are_counted_in_the_split_they_are_in(tmp_path):
    write(tmp_path, [{"patient_id": n} if n % 3 else {} for n in range(60)])
    whole = Conversations(tmp_path).report.grouped_by
    assert whole == {"patient_id": 40, "image": 20}
    capped = Conversations(tmp_path, cap=12).report
    assert capped.grouped_by.total() == capped.kept == 12
    module = Carved(root=str(tmp_path), val_fraction=0.25)
    parts = {split: module.dataset(split) for split in ("train", "val")}
    for part in parts.values():
        named = sum("/group " in sample.group_id for sample in part.samples)
        assert part.report.grouped_by == {"patient_id": named, "image": len(part) - named}
        assert f"by patient_id ({named} rows); {len(part) - named} rows" in str(part.report)
    assert sum((part.report.grouped_by for part in parts.values()), Counter()) == whole
    assert module.dataset("train").report.grouped_by == parts["train"].report.grouped_by


def test_several_fields_are_told_as_one_where_rows_are_left_out(tmp_path):
    write(tmp_path, [{"patient_id": 1}, {"subject_id": 1}, {"subject_id": 2}, {}])
    assert Conversations(tmp_path).report.grouped_by == {
        "patient_id": 1, "subject_id": 2, "image": 1,
    }  # fmt: skip
    (tmp_path / "3.jpg").unlink()
    module = ConversationsModule(root=str(tmp_path), missing_images="drop")
    assert module.dataset("train").report.grouped_by == {"patient_id or subject_id": 3}


def test_val_of_vqa_rad_is_carved_by_patient(tmp_path):
    root = vqa_rad.write_release(tmp_path)
    rewrite(
        root / "VQA_RAD Dataset Public.json",
        lambda rows: [row | {"patient_id": n % 2} for n, row in enumerate(rows)],
    )
    train, val = (VQARAD(root, split, val_fraction=0.5) for split in ("train", "val"))
    assert not shared_groups(train.samples, val.samples)
    assert {s.image_id for s in train.samples}.isdisjoint(s.image_id for s in val.samples)


def test_a_patient_named_in_one_split_alone_is_told(tmp_path):
    write(tmp_path, [{"patient_id": 1}, {"patient_id": 1}])
    write(tmp_path, [{}], "test.json")
    found = check("Conversations", tmp_path)
    assert found.leaks[0].groups == 1  # the same image, though under another group
    assert "no row names a group, those of train do" in str(found)


def test_image_sets_tell_their_groups_and_shared_patients(tmp_path):
    root = nih.write_release(tmp_path)
    found = check("NIHChestXray14", root)
    assert "by Patient ID" in str(found) and not found.leaks
    with pytest.raises(DataError, match="no column 'x' to group by"):
        check("NIHChestXray14", root, group_field="x")
    lists = [root / "train_val_list.txt", root / "test_list.txt"]
    names = [name for path in lists for name in path.read_text().split()]
    lists[0].write_text("\n".join(names[::2]))
    lists[1].write_text("\n".join(names[1::2]))
    assert any(leak.other == "test" for leak in check("NIHChestXray14", root).leaks)


def test_documents_are_grouped_by_the_field_that_names_a_person(tmp_path):
    rows = [
        {"questionId": n, "image": f"p{n}.png", "docId": n, "ucsf_document_id": f"d{n}",
         "question": "who?", "answers": [f"name {n}"]}
        for n in range(4)
    ]  # fmt: skip
    for n in range(4):
        pictures.save(tmp_path / f"p{n}.png", n)
    people = {0: "007", 1: 7, 2: "8"}

    def write(field):
        data = [row | ({field: people[n]} if n in people else {}) for n, row in enumerate(rows)]
        (tmp_path / "train_v1.0.json").write_text(json.dumps({"data": data}))

    write("holder")
    plain = DocVQA(tmp_path)
    assert plain.report.groups == 4 and "groups: 4, by document" in str(plain.report)
    split = DocVQA(tmp_path, group_field="holder")
    assert len({one.group_id for one in split.samples[:2]}) == 1 and split.report.groups == 3
    assert "by holder (3 rows); 1 rows without it by document" in str(split.report)
    with pytest.raises(DataError, match=r"no record of DocVQA/train.*leave .* by document"):
        DocVQA(tmp_path, group_field="owner")
    write("person_id")
    assert DocVQA(tmp_path).report.grouped_by == {"person_id": 3, "document": 1}

    module = DocVQACanaries(root=str(tmp_path), group_field="person_id")
    assert module.split_samples("train")[0].group_id == "docvqa/group 7"
    canaries = [SimpleNamespace(key=one.key, group=group_of(one)) for one in plain.samples[:1]]
    assert len(without(plain.samples, canaries)) == 3
    with pytest.raises(DataError, match="same group_field"):
        without(split.samples, canaries)


def test_several_pages_and_providers_are_grouped_by_a_field_too(tmp_path):
    pictures.save(tmp_path / "a_p0.jpg", 1)
    row = {"questionId": 1, "question": "who?", "answers": ["Acme"], "subject_id": "s1"}
    page = row | {"doc_id": "a", "page_ids": ["a_p0"]}
    (tmp_path / "train.json").write_text(json.dumps({"data": [page]}))
    assert MPDocVQA(tmp_path).report.grouped_by == {"subject_id": 1}
    (tmp_path / "2023_DUDE_gt.json").write_text(json.dumps({"data": [row | {"docId": "a"}]}))
    assert DUDE(tmp_path).report.grouped_by == {"subject_id": 1}
    imdb = tmp_path / "imdb"
    imdb.mkdir()
    record = {"question_id": 1, "image_name": "acme_0.jpg", "question": "who?", "answers": "Acme"}
    rows = [{"version": 1}, record | {"subject_id": 7, "till": "x"}]
    np.save(imdb / "imdb_train.npy", np.array(rows, dtype=object), allow_pickle=True)
    for field, named in ((None, "subject_id"), ("till", "till")):
        split = PFLDocVQA(imdb, allow_pickle=True, group_field=field)
        assert split.report.grouped_by == {named: 1}
    convert_imdb(imdb / "imdb_train.npy", imdb / "imdb_train.json", "till")
    assert PFLDocVQA(imdb).report.grouped_by == {"subject_id": 1}
    assert PFLDocVQA(imdb, group_field="till").report.grouped_by == {"till": 1}


def test_data_check_knows_the_document_sets(tmp_path, capsys):
    rows = [{"questionId": n, "image": "p.png", "question": "who?", "answers": ["Acme"],
             "docId": 1, "holder": n} for n in range(2)]  # fmt: skip
    pictures.save(tmp_path / "p.png", 1)
    for split in ("train", "val"):
        (tmp_path / f"{split}_v1.0.json").write_text(json.dumps({"data": rows}))
    found = check("DocVQA", tmp_path, group_field="holder")
    assert found.is_sound and "test" in found.absent
    assert found.reports[0].groups == 1  # one page
    assert found.reports[1].shared_groups == {"train": 1}


def test_the_table_of_xrays_may_name_other_groups(tmp_path):
    root = nih.write_release(tmp_path)
    table = root / "Data_Entry_2017_v2020.csv"
    header, *rows = table.read_text().splitlines()
    for quoted in (False, True):
        head = header.replace("OriginalImage[Width,Height]", '"OriginalImage[Width,Height]"')
        lines = [f"{row},{int(row[:8]) // 2 if int(row[:8]) < 9 else ''}" for row in rows]
        text = "\n".join([(head if quoted else header) + ",Family", *lines])
        table.write_text(text)
        found = check("NIHChestXray14", root, group_field="Family")
        groups = {one.group_id for one in NIHChestXray14(root, group_field="Family").samples}
        assert {"nih/group 1", "nih/group 2"} & groups
        report = found.reports[0]
        assert report.grouped_by["Family"] and "by Family" in str(found)
        carved = [NIHChestXray14(root, split, group_field="Family") for split in ("train", "val")]
        assert not shared_groups(*(split.samples for split in carved))
    same = check("NIHChestXray14", root, group_field="Patient ID")
    assert str(same) == str(check("NIHChestXray14", root))
    with pytest.raises(DataError, match=r"no column 'Clan'.*Family"):
        check("NIHChestXray14", root, group_field="Clan")


@pytest.mark.parametrize("field", ["person_id", "clan"])
def test_faces_may_have_a_column_of_persons(tmp_path, field):
    root = celeba.write_kaggle(tmp_path)
    path = root / "list_attr_celeba.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text(
        "\n".join([f"{header},{field}", *(f"{r},{n // 3}" for n, r in enumerate(rows))])
    )
    given = None if field == "person_id" else field
    split = CelebA(root, group_field=given)
    assert split.report.groups == 2 and split.report.grouped_by == {field: 6}
    assert all(len(one.labels) < 41 and field not in one.labels for one in split.samples)
    digits = str(mnist.write_release(tmp_path / "m"))
    module = DPriv(celeba=str(root), mnist=digits, celeba_group_field=given or "")
    assert "celeba/group 0" in {one.group_id for one in module.dataset("train").samples}
    with pytest.raises(DataError, match="attributes to group by"):
        CelebA(root, group_field="tribe")
    with pytest.raises(ConfigError, match="MNIST cannot name groups"):
        check("MNIST", tmp_path / "m", group_field="person")

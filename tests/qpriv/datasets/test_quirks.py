"""The quirks of each release, one test each."""

import gzip
import json

import pytest

from qpriv.datasets.conversations import Conversations
from qpriv.datasets.folds import shared_groups
from qpriv.datasets.gqa import GQA
from qpriv.datasets.leaks import find_leaks
from qpriv.datasets.mixture import VQAMixture
from qpriv.datasets.okvqa import OKVQA
from qpriv.datasets.path_vqa import PathVQA
from qpriv.datasets.sample import AnswerType
from qpriv.datasets.slake import SLAKE
from qpriv.datasets.vqa_rad import VQARAD
from qpriv.datasets.vqav2 import VQAv2
from qpriv.errors import DataError
from tests.data.conversations import data as conversations
from tests.data.gqa import data as gqa
from tests.data.okvqa import data as okvqa
from tests.data.path_vqa import data as path_vqa
from tests.data.slake import data as slake
from tests.data.vqa_rad import data as vqa_rad
from tests.data.vqav2 import data as vqav2
from tests.qpriv.datasets.contract import rewrite


def test_gqa_ids_keep_their_zeros_and_structure_says_what_is_closed(tmp_path):
    dataset = GQA(gqa.write_release(tmp_path), "testdev")
    assert dataset[0].qid == "0070000"
    assert [s.answer_type for s in dataset.samples[:2]] == [AnswerType.OPEN, AnswerType.CLOSED]


def test_gqa_train_all_is_the_union_of_its_chunks(tmp_path):
    root = gqa.write_release(tmp_path)
    assert len(GQA(root, "train", "all")) == len(GQA(root, "train"))
    assert len(GQA(root, "train", "all").report.files) == 2


def test_slakes_english_mirror_has_no_chinese(tmp_path):
    root = slake.write_mirror(tmp_path)
    with pytest.raises(DataError, match="English questions alone"):
        SLAKE(root, "train", lang="zh")
    assert "English questions alone" in str(SLAKE(root, "train", lang="all").report)


def test_gqa_test_has_questions_and_no_answers(tmp_path):
    dataset = GQA(gqa.write_release(tmp_path), "test")
    assert [sample.answers for sample in dataset.samples] == [(), ()]
    assert dataset.report.empty_golds == 0


def test_vqav2_joins_by_id_and_trains_on_the_main_answer(tmp_path):
    dataset = VQAv2(vqav2.write_release(tmp_path), "train")  # annotations come in reverse
    sample = dataset[0]
    assert (sample.qid, sample.answer, len(sample.answers)) == ("458752000", "pitcher", 10)
    assert dataset[1].answer_type is AnswerType.CLOSED
    assert sample.group_id == "coco/458752"  # OK-VQA asks about the same images


def test_vqav2_reduced_annotations_are_filled_in_and_reported(tmp_path):
    root = vqav2.write_release(tmp_path)

    def reduce(file):
        kept = ("answers", "question_id")
        return {"annotations": [{k: row[k] for k in kept} for row in file["annotations"]]}

    rewrite(root / "v2_mscoco_train2014_annotations.json", reduce)
    dataset = VQAv2(root, "train")
    assert [s.answer for s in dataset.samples[:2]] == ["pitcher", "yes"]
    assert dataset[1].answer_type is AnswerType.CLOSED
    assert dataset.report.repaired.total() == len(dataset)


def test_vqav2_questions_without_annotation_are_dropped_with_the_reason(tmp_path):
    root = vqav2.write_release(tmp_path)
    path = root / "v2_mscoco_train2014_annotations.json"
    rewrite(path, lambda file: file | {"annotations": file["annotations"][1:]})
    report = VQAv2(root, "train").report
    assert report.dropped == {"question without an annotation": 1}


def test_okvqa_scores_use_the_stemmed_answer_and_break_ties_by_place(tmp_path):
    root = okvqa.write_release(tmp_path)
    sample = OKVQA(root, "val")[0]
    assert sample.answer == "race" and "racing" not in sample.answers
    path = root / "mscoco_val2014_annotations.json"
    answers = [{"answer": text, "answer_id": 1} for text in ("tail", "pony", "pony", "tail")]
    rewrite(path, lambda f: {"annotations": [f["annotations"][0] | {"answers": answers}]})
    assert OKVQA(root, "val")[0].answer == "tail"


def test_okvqa_refuses_the_files_of_vqa_v1_with_the_same_names(tmp_path):
    root = okvqa.write_release(tmp_path)

    def as_v1(file):
        rows = [row | {"multiple_choice_answer": "race"} for row in file["annotations"]]
        return {"annotations": rows}

    rewrite(root / "mscoco_val2014_annotations.json", as_v1)
    with pytest.raises(DataError, match="VQA v1"):
        OKVQA(root, "val")


def test_slake_is_english_by_default_keeps_qid_0_and_drops_the_empty_gold(tmp_path):
    dataset = SLAKE(slake.write_release(tmp_path), "train")
    assert {sample.lang for sample in dataset.samples} == {"en"}
    assert dataset[0].qid == "0"
    assert dataset.report.empty_golds == 1
    assert dataset.report.dropped["language zh"] == 4


def test_slake_reads_the_validation_file_under_both_names_and_packed(tmp_path):
    one = SLAKE(slake.write_release(tmp_path / "a"), "val")
    other = SLAKE(slake.write_release(tmp_path / "b", "validation.json"), "val")
    path = tmp_path / "b" / "validation.json"
    path.with_name("validation.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    packed = SLAKE(tmp_path / "b", "val")
    assert [s.key for s in one.samples] == [s.key for s in other.samples]
    assert [s.key for s in one.samples] == [s.key for s in packed.samples]


def test_slake_union_of_languages_leaks_and_each_language_does_not(tmp_path):
    root = slake.write_release(tmp_path)
    splits = {split: SLAKE(root, split, "all").samples for split in SLAKE.splits}
    leaks = {(leak.lang, leak.one, leak.other): leak for leak in find_leaks(splits)}
    assert set(leaks) == {("all", "train", "test")}
    assert (leaks["all", "train", "test"].groups, leaks["all", "train", "test"].of_groups) == (2, 2)


def test_vqa_rad_repairs_are_counted(tmp_path):
    root = vqa_rad.write_release(tmp_path)
    train, val = (VQARAD(root, split) for split in ("train", "val"))
    assert len(train) + len(val) == 8
    assert not shared_groups(train.samples, val.samples)
    assert train.report.repaired["answer that is a number"] == 4
    test = VQARAD(root, "test")
    assert len(test) == 4
    assert test[0].answer_type is AnswerType.CLOSED
    assert test.report.repaired == {"answer type with blanks or in lower case": 2}


def test_vqa_rad_keeps_all_images_in_train_on_request(tmp_path):
    assert len(VQARAD(vqa_rad.write_release(tmp_path), "train", val_fraction=0)) == 8


def test_vqa_rad_leak_is_counted_against_the_whole_training_release(tmp_path):
    root = vqa_rad.write_release(tmp_path)
    splits = {split: VQARAD(root, split, val_fraction=0.5).samples for split in VQARAD.splits}
    seen = {leak.one: leak for leak in find_leaks(splits)}
    total = seen["train or val"] if "train or val" in seen else next(iter(seen.values()))
    assert (total.groups, total.of_groups, total.triplets) == (2, 2, 2)


def test_path_vqa_ids_come_from_the_numbered_file_and_duplicates_are_reported(tmp_path):
    root = path_vqa.write_release(tmp_path)
    dataset = PathVQA(root, "val")
    assert dataset[0].qid == "100001000"
    assert dataset.report.duplicates == 2
    (root / "pvqa/qas/val_vqa.pkl").unlink()
    assert PathVQA(root, "val")[0].qid == "0"


def test_conversations_read_both_spellings_and_report_text_only_records(tmp_path):
    root = conversations.write_release(tmp_path)
    dataset = Conversations(root, "train")
    assert dataset[0].question == "Is it a cat?"
    assert dataset[0].answer_type is AnswerType.OPEN  # as stated, though the answer is yes
    assert [s.qid for s in dataset.samples] == [
        "train-0", "train-1-0", "train-1-1", "train-2-0", "train-2-1",
    ]  # fmt: skip
    assert dataset.report.dropped == {"no image": 1}
    assert dataset[1].image.path.parts[-2:] == ("a", "2.jpg")


def test_conversations_never_take_another_image_of_the_same_name(tmp_path):
    root = conversations.write_release(tmp_path)
    (root / "images/a/1.jpg").unlink()  # b/1.jpg stays
    report = Conversations(root, "train").report
    assert report.missing_images == 1
    inside = Conversations(
        root, "val", "val.json"
    )  # named images/c/1.jpg from the root, c/1.jpg in the file
    assert inside.report.missing_images == 0
    rewrite(root / "val.json", lambda rows: [rows[0] | {"image": "coco/images/c/1.jpg"}])
    assert Conversations(root, "val", "val.json").report.missing_images == 0


def test_an_image_name_that_leaves_the_folder_is_refused(tmp_path):
    root = slake.write_release(tmp_path)
    for name in ("../../etc/source.jpg", "/etc/source.jpg", "..\\x\\source.jpg"):
        rewrite(root / "test.json", lambda rows, name=name: [rows[0] | {"img_name": name}])
        with pytest.raises(DataError, match=r"leaves the data folder .*test\.json, qid"):
            SLAKE(root, "test")


def test_a_record_of_another_type_is_named(tmp_path):
    root = slake.write_release(tmp_path)
    rewrite(root / "test.json", lambda rows: [rows[0], rows[1] | {"question": 7}])
    with pytest.raises(DataError, match=r"Expected `str`, got `int`.*question.*record 1") as caught:
        SLAKE(root, "test")
    assert "test.json" in caught.value.where


def test_mixture_caps_each_set_by_image_and_draws_the_oracle_from_it(tmp_path):
    sets = [
        VQAv2(vqav2.write_release(tmp_path / "a"), "train"),
        GQA(gqa.write_release(_folder(tmp_path / "b")), "train"),
    ]
    mixture = VQAMixture(sets, cap=4, oracle_cap=2, seed=3)
    assert [s.dataset for s in mixture.samples] == ["VQAv2"] * 4 + ["GQA"] * 4
    oracle = [s.key for s in mixture.oracle_samples]
    assert len(oracle) == 4 and set(oracle) <= {s.key for s in mixture.samples}
    assert mixture.report.read == mixture.report.kept + mixture.report.dropped.total()
    with pytest.raises(DataError, match="no set"):
        VQAMixture([])


def _folder(path):
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def _folders(tmp_path):
    (tmp_path / "a").mkdir()


def test_json_dump_of_the_report_has_every_count(tmp_path):
    import msgspec

    report = SLAKE(slake.write_release(tmp_path), "train").report
    plain = json.loads(msgspec.json.encode(report))
    assert plain["empty_golds"] == 1 and plain["languages"] == {"en": 6}


def turns(text):
    """Return the turns of a conversation, ``h`` a human's, ``g`` the model's, ``s`` the system's."""
    speakers = {"h": "human", "u": "User", "g": "gpt", "a": "assistant", "s": "system", "t": "tool"}
    return [{"from": speakers[who], "value": f"{who}{n}"} for n, who in enumerate(text)]


UNANSWERED = "question without an answer in the next turn"
UNASKED = "answer without a question in the turn before"


@pytest.mark.parametrize(
    ("speakers", "pairs", "dropped"),
    [
        ("hghg", [("h0", "g1"), ("h2", "g3")], {}),
        ("ua", [("u0", "a1")], {}),
        ("hhg", [("h1", "g2")], {UNANSWERED: 1}),
        ("shg", [("h1", "g2")], {"turn of the system": 1}),
        ("hgh", [("h0", "g1")], {UNANSWERED: 1}),
        ("hgghg", [("h0", "g1"), ("h3", "g4")], {UNASKED: 1}),
        ("ghgh", [("h1", "g2")], {UNASKED: 1, UNANSWERED: 1}),
        ("htg", [], {UNANSWERED: 1, "turn of 'tool'": 1, UNASKED: 1}),
        ("", [], {"no turns": 1}),
    ],
)
def test_every_turn_of_a_conversation_is_paired_or_accounted_for(
    tmp_path, speakers, pairs, dropped
):
    rows = [{"image": "c/1.jpg", "conversations": turns(speakers)}]
    (conversations.write_release(tmp_path) / "train.json").write_text(json.dumps(rows))
    found = Conversations(tmp_path, "train")
    assert [(sample.question, sample.answer) for sample in found.samples] == pairs
    assert found.report.dropped == dropped
    assert found.report.read == max(len(speakers) - len(pairs), 1)


@pytest.mark.parametrize(
    ("image", "reason"),
    [(["c/1.jpg"], None), (["a/1.jpg", "c/1.jpg"], "several images"), ([], "no image"),
     (None, "no image"), ("", "no image")],
)  # fmt: skip
def test_conversations_have_one_image_or_are_dropped_with_the_reason(tmp_path, image, reason):
    rows = [{"image": image, "conversations": turns("hghgh")}]
    (conversations.write_release(tmp_path) / "train.json").write_text(json.dumps(rows))
    found = Conversations(tmp_path, "train")
    assert found.report.read == 3
    assert found.report.dropped == ({reason: 3} if reason else {UNANSWERED: 1})
    assert reason or found[0].image.load().size == (12, 10)

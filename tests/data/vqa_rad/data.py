"""Fake VQA-RAD: the release's one file with its quirks, the MEVF layout, the parquet mirror."""

import json

from tests.data import pictures

TRAIN_IMAGES = [f"synpic{number}.jpg" for number in (100, 101, 102, 103)]
TEST_IMAGES = ["synpic100.jpg", "synpic101.jpg"]  # as released, test images are training images


def records():
    """Return the records: ids and answers of both types, misspelt answer types, a missing key."""
    rows = []
    for image in TRAIN_IMAGES:
        rows += [
            _record(len(rows), image, "freeform", "Is there a mass?", "Yes", "CLOSED"),
            _record(len(rows) + 1, image, "para", "How many masses?", 2, "OPEN"),
        ]
    for image in TEST_IMAGES:
        rows += [
            _record(len(rows), image, "test_freeform", "Is it normal?", "No", "CLOSED "),
            _record(len(rows) + 1, image, "test_para", "Is there a mass?", "Yes", "CLOSED"),
        ]
    rows[0]["qid"] = "0"  # a string among numbers
    del rows[1]["question_rephrase"]
    return rows


def _record(qid, image, phrase_type, question, answer, answer_type):
    return {
        "qid": qid,
        "phrase_type": phrase_type,
        "qid_linked_id": "03f451ca",
        "image_case_url": "https://medpix.nlm.nih.gov/case?id=48e1dd0e",
        "image_name": image,
        "image_organ": "CHEST",
        "evaluation": "not evaluated",
        "question": question,
        "question_rephrase": "NULL",
        "question_relation": "NULL",
        "question_frame": "NULL",
        "question_type": "PRES",
        "answer": answer,
        "answer_type": answer_type,
    }


def _write_images(folder):
    for number, image in enumerate(TRAIN_IMAGES):
        pictures.save(folder / image, number)


def write_release(root):
    """Write the JSON file and the image folder, whose names have blanks."""
    _write_images(root / "VQA_RAD Image Folder")
    (root / "VQA_RAD Dataset Public.json").write_text(json.dumps(records(), indent=1))
    return root


def write_mevf(root):
    """Write ``trainset.json``, ``testset.json`` and ``images/``."""
    _write_images(root / "images")
    rows = records()
    for part, name in ((False, "trainset.json"), (True, "testset.json")):
        chosen = [row for row in rows if row["phrase_type"].startswith("test") is part]
        (root / name).write_text(json.dumps(chosen))
    return root


def write_mirror(root):
    """Write the files of flaviagiammarino/vqa-rad: lower case, no ids."""
    for part, name in ((False, "train"), (True, "test")):
        rows = [
            {
                "image": pictures.cell(TRAIN_IMAGES.index(row["image_name"])),
                "question": row["question"].lower(),
                "answer": str(row["answer"]).lower(),
            }
            for row in records()
            if row["phrase_type"].startswith("test") is part
        ]
        pictures.write_parquet(root / "data" / f"{name}-00000-of-00001.parquet", rows)
    return root

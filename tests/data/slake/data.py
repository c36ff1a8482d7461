"""Fake SLAKE: the official layout in both languages, and the English parquet mirror.

As in the release, the languages have different image splits: image 2 is a test image in
English and a training image in Chinese.
"""

import json

from tests.data import pictures

IMAGES = {
    "train": {"en": [0, 1], "zh": [1, 2]},
    "validate": {"en": [3], "zh": [3]},
    "test": {"en": [2], "zh": [0]},
}
TEXTS = {
    "en": [
        ("Which organ is shown?", "Liver, Heart", "OPEN", "Organ"),
        ("Is the lung healthy?", "Yes", "CLOSED", "Abnormality"),
        ("Which side is it on?", "left", "CLOSED", "Position"),
    ],
    "zh": [
        ("图中有哪些器官?", "肝脏、心脏", "OPEN", "Organ"),
        ("肺部健康吗?", "是的", "CLOSED", "Abnormality"),
    ],
}


def records(split):
    """Return the records of a split; the first id is 0, and one gold answer is empty."""
    rows = []
    for lang, images in IMAGES[split].items():
        for image in images:
            for question, answer, answer_type, content in TEXTS[lang]:
                rows.append(
                    {
                        "img_id": image,
                        "img_name": f"xmlab{image}/source.jpg",
                        "question": question,
                        "answer": answer,
                        "q_lang": lang,
                        "location": "Lung",
                        "modality": "CT",
                        "answer_type": answer_type,
                        "base_type": "vqa",
                        "content_type": content,
                        "triple": ["vhead", "_", "_"],
                        "qid": len(rows) + 1000 * list(IMAGES).index(split),
                    }
                )
    if split == "train":
        empty = rows[0] | {"question": "Does it contain liver?", "answer": "", "qid": 1622}
        rows.append(empty)
    return rows


def write_release(root, validation="validate.json"):
    """Write the three files and ``imgs/``; the mirror on Hugging Face says validation.json."""
    root.mkdir(parents=True, exist_ok=True)
    for split in IMAGES:
        name = validation if split == "validate" else f"{split}.json"
        (root / name).write_text(json.dumps(records(split), ensure_ascii=False), encoding="utf-8")
    for image in range(4):
        pictures.save(root / f"imgs/xmlab{image}/source.jpg", image, "L")
        pictures.save(root / f"imgs/xmlab{image}/mask.png", image)
    return root


def write_mirror(root):
    """Write the files of mdwiratathya/SLAKE-vqa-english."""
    for split, name in {"train": "train", "validate": "validation", "test": "test"}.items():
        rows = [
            {
                "image": pictures.cell(row["img_id"]),
                "question": row["question"],
                "answer": row["answer"],
            }
            for row in records(split)
            if row["q_lang"] == "en" and row["answer"]
        ]
        pictures.write_parquet(root / "data" / f"{name}-00000-of-00001.parquet", rows)
    return root

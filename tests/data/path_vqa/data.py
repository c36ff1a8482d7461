"""Fake PathVQA: the official pickles and images, and the parquet mirror."""

import pickle

from tests.data import pictures

SPLITS = {"train": 4, "val": 2, "test": 2}
TEXTS = [
    ("Is it a carcinoma?", "yes"),
    ("What form nests?", "malignant cells"),
    ("Is it a carcinoma?", "yes"),  # an exact duplicate, as the release has 163
]


def records(split):
    """Return the rows of ``{split}_qa.pkl``."""
    return [
        {"image": f"{split}_{number:04d}", "question": question, "answer": answer}
        for number in range(SPLITS[split])
        for question, answer in TEXTS
    ]


def write_release(root):
    """Write ``pvqa/``; one picture is CMYK, as printed books are."""
    for split, number in SPLITS.items():
        folder = root / "pvqa" / "qas" / split
        folder.mkdir(parents=True)
        rows = records(split)
        (folder / f"{split}_qa.pkl").write_bytes(pickle.dumps(rows, protocol=2))
        numbered = [
            {
                "answer_type": "yes/no" if row["answer"] == "yes" else "other",
                "img_id": row["image"],
                "label": {row["answer"]: 1},
                "question_id": 100_001_000 + position,
                "question_type": row["question"].split()[0].lower(),
                "sent": row["question"],
            }
            for position, row in enumerate(rows)
        ]
        path = root / "pvqa" / "qas" / f"{split}_vqa.pkl"
        path.write_bytes(pickle.dumps(numbered, protocol=2))
        for index in range(number):
            path = root / "pvqa" / "images" / split / f"{split}_{index:04d}.jpg"
            pictures.save(path, index + 10 * len(split), "CMYK" if index == 0 else "RGB")
    return root


def write_mirror(root):
    """Write the files of flaviagiammarino/path-vqa."""
    for split, name in {"train": "train", "val": "validation", "test": "test"}.items():
        rows = [
            {
                "image": pictures.cell(int(row["image"][-4:]) + 10 * len(split)),
                "question": row["question"].lower(),
                "answer": row["answer"],
            }
            for row in records(split)
        ]
        pictures.write_parquet(root / "data" / f"{name}-00000-of-00001.parquet", rows)
    return root

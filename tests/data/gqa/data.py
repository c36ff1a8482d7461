"""Fake GQA: the official layout, and the parquet mirror with the same questions."""

import json

from tests.data import pictures

IMAGES = {
    "train": ["2370799", "2370800", "2370801", "2370802"],
    "val": ["1159529", "1159530"],
    "testdev": ["n578564", "n578565"],
    "test": ["n1"],
}
QUERY = [("Who is wearing a shirt?", "man", "query"), ("Is it indoors?", "yes", "verify")]


def questions(split):
    """Return the records of a split by id; ids begin with zeros."""
    return {
        f"00{len(split)}{number:03d}{which}": {
            "semantic": [{"operation": "select", "dependencies": [], "argument": "shirt (7)"}],
            "entailed": [],
            "equivalent": [],
            "question": text,
            "imageId": image,
            "isBalanced": True,
            "groups": {"global": None, "local": "13-pond_cart"},
            **({} if split == "test" else {"answer": answer, "fullAnswer": f"It is {answer}."}),
            "semanticStr": "select: shirt (7)",
            "annotations": {"answer": {}, "question": {"2": "7"}, "fullAnswer": {}},
            "types": {"detailed": "existRelS", "semantic": "rel", "structural": structural},
        }
        for number, image in enumerate(IMAGES[split])
        for which, (text, answer, structural) in enumerate(QUERY)
    }


def write_release(root):
    """Write ``questions1.2/`` and ``images/``, train also as the ten-chunk folder's first two."""
    folder = root / "questions1.2"
    chunks = folder / "train_all_questions"
    chunks.mkdir(parents=True)
    for split, images in IMAGES.items():
        records = questions(split)
        (folder / f"{split}_balanced_questions.json").write_text(json.dumps(records))
        for image in images:
            pictures.save(root / "images" / f"{image}.jpg", sum(map(ord, image)))
    items = list(questions("train").items())
    for number, part in enumerate((items[:3], items[3:])):
        (chunks / f"train_all_questions_{number}.json").write_text(json.dumps(dict(part)))
    return root


def write_mirror(root):
    """Write the folders of lmms-lab/GQA."""
    for split, images in IMAGES.items():
        rows = [
            {"id": qid, **{key: row.get(key) for key in ("imageId", "question", "answer", "types")}}
            for qid, row in questions(split).items()
        ]
        name = f"{split}-00000-of-00001.parquet"
        pictures.write_parquet(root / f"{split}_balanced_instructions" / name, rows)
        pictures.write_parquet(
            root / f"{split}_balanced_images" / name,
            [{"id": image, "image": pictures.cell(sum(map(ord, image)))} for image in images],
        )
    return root
